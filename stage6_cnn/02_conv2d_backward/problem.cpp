#include "stage6_cnn/02_conv2d_backward/problem.h"

#include "stage6_cnn/01_conv2d/problem.h"

namespace conv2d_backward {

void check_backward(const Gradients& to, const float* grad_y, const float* x, const float* w,
                    const Problem& p) {
  using conv2d::require_array;
  const size_t size = size_of_y(p);
  require_array("grad_w", to.w, to.w == nullptr ? 0 : 1);
  require_array("grad_bias", to.bias, to.bias == nullptr ? 0 : 1);
  require_array("grad_x", to.x, to.x == nullptr ? 0 : 1);
  if (to.w != nullptr || to.bias != nullptr || to.x != nullptr)
    require_array("grad_y", grad_y, size);
  if (to.w != nullptr) require_array("x", x, size == 0 ? 0 : size_of_x(p));
  if (to.x != nullptr) require_array("w", w, size_of_x(p) == 0 ? 0 : size_of_w(p));
}

namespace {

gpu::DeviceArray<float> tiles_of(const Problem& p, gpu::DeviceParts* parts) {
  return gpu::take<float>(parts, winograd_elements(p, {p.H, p.W}));
}

}  // namespace

Workspace::Workspace(const Problem& largest, const Wanted& wanted, gpu::DeviceParts* parts) {
  const size_t weights = size_of_w(largest);
  if (wanted.x && use_winograd(largest)) tiles = tiles_of(largest, parts);
  if (wanted.w && weights > 0)
    slices = gpu::take<float>(parts, count_slices(largest) * (weights + largest.K));
}

Workspace Workspace::for_all_versions(const Problem& largest, const Wanted& wanted,
                                      gpu::DeviceParts* parts) {
  Workspace made(largest, wanted, parts);
  if (wanted.x && fits_winograd(largest) && made.tiles.size() == 0)
    made.tiles = tiles_of(largest, parts);
  return made;
}

void backward(const Gradients& to, const float* grad_y, const float* x, const float* w,
              const Problem& problem, float beta, Workspace& workspace, hipStream_t stream) {
  const Run run = use_winograd(problem) ? launch_winograd : launch_sliced;
  run(to, grad_y, x, w, problem, beta, workspace, stream);
}

}  // namespace conv2d_backward
