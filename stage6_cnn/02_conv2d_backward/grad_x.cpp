// The gradient of x, one convolution of step 6.1 for each kind of its elements.
#include <algorithm>

#include "stage6_cnn/01_conv2d/detail/geometry.h"
#include "stage6_cnn/01_conv2d/detail/windows.h"
#include "stage6_cnn/02_conv2d_backward/detail/kinds.h"
#include "stage6_cnn/02_conv2d_backward/problem.h"

namespace conv2d_backward {

void launch_grad_x(float* grad_x, const float* grad_y, const float* w, const Problem& problem,
                   float* memory, size_t room, hipStream_t stream) {
  if (size_of_x(problem) == 0) return;
  const Geometry g = conv2d::geometry_of(problem);
  if (g.stride_h > g.R || g.stride_w > g.S)  // some elements were never met
    HIP_CHECK(hipMemsetAsync(grad_x, 0, size_of_x(problem) * sizeof(float), stream));
  for (int r0 = 0; r0 < std::min(g.stride_h, g.R); ++r0)
    for (int s0 = 0; s0 < std::min(g.stride_w, g.S); ++s0) {
      const Kind down = kind_of(r0, g.H, g.R, g.stride_h, g.pad_h);
      const Kind across = kind_of(s0, g.W, g.S, g.stride_w, g.pad_w);
      const Windows windows = windows_of_kind(grad_x, grad_y, w, g, down, across);
      const conv2d::BiasLinear as_it_is{nullptr};
      if (memory != nullptr && fits_winograd(windows))
        conv2d::launch_winograd(windows, problem.N, as_it_is, memory, room, stream);
      else
        conv2d::launch_right_tile(windows, problem.N, as_it_is, stream);
    }
}

}  // namespace conv2d_backward
