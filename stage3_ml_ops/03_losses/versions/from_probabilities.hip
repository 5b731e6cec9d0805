// from_probabilities: softmax, then the loss of each row, then the gradient: three kernels.
#include "common/gpu.h"
#include "stage3_ml_ops/02_softmax/softmax.h"
#include "stage3_ml_ops/03_losses/detail/row_loss.h"
#include "stage3_ml_ops/03_losses/losses.h"

namespace losses {

// row_losses[r] = -log(p[r, label[r]])    p (rows, classes); +infinity where p is 0.
// Fixes : a CPU core takes the rows one after the other.
// Idea  : of each row only one probability counts.
// Thread: t owns the rows t, t + T, ...
// Costs : 4 bytes of a row, but the memory sends 32; a p below 1e-38 has lost its digits, and 0
//         has no logarithm: logits say more.
static __global__ void cross_entropy_of_probabilities(Workspace workspace, const float* p,
                                                      Targets targets) {
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t row = size_t{blockIdx.x} * blockDim.x + threadIdx.x; row < targets.rows;
       row += threads) {
    const int label = targets.label(row);
    // 0 - x rather than -x: a difference of NaN is NVIDIA's own NaN, but its negative would look
    // like memory that nobody has written.
    const float loss =
        label < 0 ? 0.0f : 0.0f - logf(p[row * targets.classes + static_cast<size_t>(label)]);
    leave_row_loss(workspace, targets, row, label, loss);
  }
}

// grad[r,c] = (p[r,c] - 1[c == label[r]]) / count    grad, p (rows, classes); grad may be p.
// Fixes : training needs the slope, not the loss.
// Idea  : the slope of log-softmax is the probability, less 1 at the label.
// Thread: t of a block owns the columns t, t + kBlock, ... of the rows blockIdx.x, ...
// Costs : 8 rows classes bytes of global memory.
static __global__ void gradient_of_probabilities(float* grad, const float* p, Targets targets,
                                                 Count count) {
  const size_t classes = targets.classes;
  for (size_t row = blockIdx.x; row < targets.rows; row += gridDim.x) {
    const int label = targets.label(row);
    const float weight = label >= 0 ? 1.0f / count.value() : 0.0f;  // 0: the row has no gradient
    for (size_t c = threadIdx.x; c < classes; c += kBlock) {
      const float probability = p[row * classes + c];
      // exercise: the gradient of one logit; 0 times a NaN would not be 0 (about 2 lines)
      const float one_hot = c == static_cast<size_t>(label) ? 1.0f : 0.0f;
      grad[row * classes + c] = weight == 0 ? 0.0f : weight * (probability - one_hot);
      // end exercise
    }
  }
}

void launch_loss_of_probabilities(float* loss, const float* p, const Targets& targets,
                                  const Workspace& workspace, hipStream_t stream) {
  const Count count = count_rows(targets, workspace, stream);
  if (targets.rows > 0)
    LAUNCH_ON(stream, cross_entropy_of_probabilities, vector_add::full_grid(targets.rows), kBlock,
              0, workspace, p, targets);
  launch_mean(loss, workspace.row_losses, targets.rows, count, workspace.partials, stream);
}

void launch_from_probabilities(float* loss, float* grad, const float* logits,
                               const Targets& targets, const Workspace& workspace,
                               hipStream_t stream) {
  softmax::best(grad, logits, targets.rows, targets.classes, stream);
  launch_loss_of_probabilities(loss, grad, targets, workspace, stream);
  if (targets.rows == 0) return;
  const Count count{targets.rows, targets.ignores() ? workspace.counted : nullptr};
  LAUNCH_ON(stream, gradient_of_probabilities, row_blocks(targets.rows), kBlock, 0, grad, grad,
            targets, count);
}

}  // namespace losses
