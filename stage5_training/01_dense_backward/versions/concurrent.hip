// concurrent: the gradients at the same time, on two or three streams.
#include <stdexcept>

#include "stage5_training/01_dense_backward/slices.h"

namespace dense_backward {

// Fixes : bias_by_tiles leaves multiprocessors idle at the end of each launch, while its last
//         blocks run.
// Idea  : no gradient needs another, so each gets a stream, and the next launch's blocks fill what
//         the last ones leave. The bias of a batch in slices stays with the weights, whose tiles it
//         comes from.
// Costs : two events per branch. In a graph they are its edges and cost nothing: small layers gain
//         most, whose products fill the device only together. Launched one by one, a small layer
//         loses by it, since the host takes longer to fork and join than the device to compute.
void launch_concurrent(const Gradients& to, const float* grad_y, const float* x, size_t batch,
                       const Layer& layer, float beta, Workspace& workspace,
                       const Streams& streams) {
  if (streams.branches == nullptr)
    throw std::invalid_argument("dense_backward: concurrent needs branches");
  if (to.bias != nullptr) workspace.require(batch);
  const Branches& branches = *streams.branches;
  branches.fork(streams.caller);
  launch_grad_x(to, grad_y, batch, layer, beta, branches[0]);
  if (workspace.slices(batch, layer) > 1) {
    launch_grad_parameters(to, grad_y, x, batch, layer, beta, workspace, streams.caller);
  } else {
    launch_grad_bias(to, grad_y, batch, layer, beta, workspace, branches[1],
                     gemv::launch_split_columns);
    launch_grad_w(to, grad_y, x, batch, layer, beta, streams.caller);
  }
  branches.join(streams.caller);
}

}  // namespace dense_backward
