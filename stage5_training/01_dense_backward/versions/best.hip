// best: at the same time where the caller has branches for it, else one after the other; either way
// the bits are the same, so only a batch in slices has its bias from the tiles.
#include "stage5_training/01_dense_backward/dense_backward.h"

namespace dense_backward {

void backward(const Gradients& to, const float* grad_y, const float* x, size_t batch,
              const Layer& layer, float beta, Workspace& workspace, const Streams& streams) {
  const int wanted = (to.w != nullptr) + (to.bias != nullptr) + (to.x != nullptr);
  const bool forks = streams.branches != nullptr && wanted > 1;
  const auto alone =
      workspace.slices(batch, layer) > 1 ? launch_bias_by_tiles : launch_weight_slices;
  const auto launch = forks ? launch_concurrent : alone;
  launch(to, grad_y, x, batch, layer, beta, workspace, streams);
}

}  // namespace dense_backward
