// best: one after the other, or at the same time, as it was measured to be faster.
#include "stage5_training/01_dense_backward/dense_backward.h"

namespace dense_backward {

void backward(const Gradients& to, const float* grad_y, const float* x, size_t batch,
              const Layer& layer, float beta, Workspace& workspace, const Streams& streams) {
  const double operations = 2.0 * static_cast<double>(batch) * static_cast<double>(layer.in) *
                            static_cast<double>(layer.out);
  const int wanted = (to.w != nullptr) + (to.bias != nullptr) + (to.x != nullptr);
  const bool forks =
      streams.branches != nullptr && wanted > 1 && operations >= kConcurrentOperations;
  const auto launch = forks ? launch_concurrent : launch_weight_slices;
  launch(to, grad_y, x, batch, layer, beta, workspace, streams);
}

}  // namespace dense_backward
