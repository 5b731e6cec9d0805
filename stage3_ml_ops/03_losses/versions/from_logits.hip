// from_logits: log-sum-exp: no probability is stored, and none underflows.
#include "common/gpu.h"
#include "stage3_ml_ops/02_softmax/detail/team.h"
#include "stage3_ml_ops/03_losses/detail/gradient.h"
#include "stage3_ml_ops/03_losses/losses.h"

namespace losses {

// row_losses[r] = log(sum of exp(x[r])) - x[r, label[r]], wholes[r] = the row's maximum and sum
// x (rows, classes).
// Fixes : the probabilities are written only to be read again, and lose the small ones.
// Idea  : the logarithm of softmax needs no probability: maximum and sum of the row, in one pass.
// Thread: t of a block owns the columns t, t + kBlock, ... of the rows blockIdx.x, ...
// Costs : 4 rows classes bytes of global memory; 2 barriers per row.
static __global__ void cross_entropy_of_logits(const float* x, LossAndGradient output) {
  const size_t rows = output.gradient.targets.rows, classes = output.gradient.targets.classes;
  for (size_t r = blockIdx.x; r < rows; r += gridDim.x) {
    const LossAndGradient::Row output_row = output.row(r);
    softmax::MaxSum part = softmax::nothing();
    // exercise: merge this thread's columns into part, one at a time (about 2 lines)
    for (size_t c = threadIdx.x; c < classes; c += kBlock)
      part = softmax::merge(part, {x[r * classes + c], 1.0f});
    // end exercise
    const softmax::MaxSum whole = softmax::block_merge(part);
    if (threadIdx.x == 0) {
      output_row.finish(whole);
      output.workspace.wholes[r] = whole;
    }
  }
}

// Where the gradient's probabilities come from: the logits are read again.
struct Logits {
  const float* x;
  const softmax::MaxSum* wholes;
  struct Row {
    const float* x;
    float max, scale;
    __device__ float operator()(size_t column) const {
      return scale * softmax::exponential(x[column] - max);
    }
  };
  __device__ Row row(size_t r, size_t classes) const {
    return {x + r * classes, wholes[r].max, 1.0f / wholes[r].sum};
  }
};

void launch_row_losses(const float* logits, const Targets& targets, Count count,
                       const Workspace& workspace, hipStream_t stream) {
  LAUNCH_ON(stream, cross_entropy_of_logits, row_blocks(targets.rows), kBlock, 0, logits,
            (LossAndGradient{{targets, count}, logits, workspace}));
}

Count launch_loss_of_logits(float* loss, const float* logits, const Targets& targets,
                            const Workspace& workspace, hipStream_t stream) {
  const Count count = count_rows(targets, workspace, stream);
  if (targets.rows > 0) launch_row_losses(logits, targets, count, workspace, stream);
  launch_mean(loss, workspace.row_losses, targets.rows, count, workspace.partials, stream);
  return count;
}

void launch_from_logits(float* loss, float* grad, const float* logits, const Targets& targets,
                        const Workspace& workspace, hipStream_t stream) {
  const Count count = launch_loss_of_logits(loss, logits, targets, workspace, stream);
  if (targets.rows > 0)
    launch_gradient(grad, Logits{logits, workspace.wholes}, Gradient{targets, count}, stream);
}

// Buffers holds wholes as two floats each.
static_assert(sizeof(softmax::MaxSum) == 2 * sizeof(float));

}  // namespace losses
