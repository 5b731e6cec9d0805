// row_slices: the sum of rows in slices of the batch.
#include "stage5_training/01_dense_backward/dense_backward.h"

namespace dense_backward {

// Fixes : thread_per_column keeps as many threads busy as there are units, for the whole batch.
// Idea  : step 2.2's best: slices of the batch keep every multiprocessor busy, and a second pass
//         adds the slices' sums in their order, so that the bits are the same on every run.
void launch_row_slices(const Gradients& to, const float* grad_y, const float* x, size_t batch,
                       const Layer& layer, float beta, Workspace& workspace,
                       const Streams& streams) {
  launch_grad_w(to, grad_y, x, batch, layer, beta, streams.caller);
  launch_grad_bias(to, grad_y, batch, layer, beta, workspace, streams.caller,
                   gemv::launch_split_columns);
  launch_grad_x(to, grad_y, batch, layer, beta, streams.caller);
}

}  // namespace dense_backward
