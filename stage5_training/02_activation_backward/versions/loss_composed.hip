// loss_composed: the loss by p, then softmax: grad_p goes through memory.
#include "common/gpu.h"
#include "stage3_ml_ops/03_losses/detail/grid.h"
#include "stage5_training/02_activation_backward/loss_backward.h"
#include "stage5_training/02_activation_backward/softmax_backward.h"

namespace activation_backward {

// grad_p[r,c] = -1[c = label[r]] / (p[r,c] count)    p, grad_p (rows, classes).
// Fixes : -
// Idea  : the loss by itself does not know that a softmax came before it.
// Thread: t of a block owns the columns t, t + kBlock, ... of the rows blockIdx.x, ...
// Costs : 4 rows classes bytes, nearly all of them zeros; infinite where p has underflowed.
static __global__ void cross_entropy_grad_p(float* grad_p, const float* p, losses::Targets targets,
                                            losses::Count count) {
  for (size_t row = blockIdx.x; row < targets.rows; row += gridDim.x) {
    const int label = targets.label(row);
    for (size_t c = threadIdx.x; c < targets.classes; c += blockDim.x) {
      const size_t i = row * targets.classes + c;
      const bool chosen = label >= 0 && c == static_cast<size_t>(label);
      grad_p[i] = chosen ? -1.0f / (p[i] * count.value()) : 0.0f;
    }
  }
}

void launch_grad_p(float* grad_p, const float* p, const losses::Targets& targets,
                   const losses::Count& count, hipStream_t stream) {
  if (targets.rows > 0)
    LAUNCH_ON(stream, cross_entropy_grad_p, losses::row_blocks(targets.rows), losses::kBlock, 0,
              grad_p, p, targets, count);
}

void launch_composed(float* grad, const float*, const float* p, const losses::Targets& targets,
                     const losses::Workspace& workspace, hipStream_t stream) {
  const losses::Count count = losses::count_rows(targets, workspace, stream);
  if (targets.rows == 0) return;
  launch_grad_p(grad, p, targets, count, stream);
  softmax_backward(grad, grad, p, targets.rows, targets.classes, stream);
}

}  // namespace activation_backward
