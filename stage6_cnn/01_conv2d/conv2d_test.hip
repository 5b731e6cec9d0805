// The kernel of detail/window_sums.h for a few images at a time, for conv2d_test.cpp.
#include "common/gpu.h"
#include "stage6_cnn/01_conv2d/detail/window_sums.h"

namespace conv2d_test {

// y = x * w + bias, with fewer than `most` pixels in a launch, or one image.
void launch_few_images(float* y, const float* x, const float* w, const float* bias,
                       const conv2d::Problem& p, size_t most) {
  using Shape = conv2d::Large::Shape<8>;
  conv2d::for_images<Shape>(
      conv2d::windows_of(y, x, w, p), p.N,
      [&](const conv2d::Windows& part, unsigned blocks) {
        LAUNCH((conv2d::conv2d_sum_windows<Shape, conv2d::Places<Shape>, conv2d::AnyWindow,
                                           conv2d::BiasLinear>),
               blocks, Shape::kThreads, 0, part, conv2d::BiasLinear{bias});
      },
      most);
}

}  // namespace conv2d_test
