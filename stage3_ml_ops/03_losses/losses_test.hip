// A softmax and its loss by one thread per row, with the mistakes that losses_test.cpp must see.
#include "common/gpu.h"
#include "stage3_ml_ops/02_softmax/detail/launch_best.h"
#include "stage3_ml_ops/02_softmax/softmax.h"
#include "stage3_ml_ops/03_losses/detail/gradient.h"
#include "stage3_ml_ops/03_losses/losses.h"

namespace losses_test {

using namespace losses;

struct Mistakes {
  bool no_one_hot, no_maximum, neighbours_label;
};

static __global__ void thread_per_row(float* grad, const float* logits, Targets targets,
                                      Workspace workspace, Mistakes mistakes) {
  const size_t row = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row >= targets.rows) return;
  const float* const x = logits + row * targets.classes;
  float* const row_grad = grad + row * targets.classes;
  const int label = targets.label(mistakes.neighbours_label ? (row + 1) % targets.rows : row);
  float max = -FLT_MAX, sum = 0;
  for (size_t c = 0; c < targets.classes; ++c) max = fmaxf(max, x[c]);
  if (mistakes.no_maximum) max = 0;
  for (size_t c = 0; c < targets.classes; ++c) sum += expf(x[c] - max);
  const Gradient::Row output{mistakes.no_one_hot ? -1 : label,
                             1.0f / static_cast<float>(targets.rows)};
  for (size_t c = 0; c < targets.classes; ++c) row_grad[c] = output(c, expf(x[c] - max) / sum);
  leave_row_loss(workspace, targets, row, label, logf(sum) + (max - x[label]));
}

// For batches of at most kBlock rows. The mean is of `miscounted` rows more than there are.
void launch_mistaken(float* loss, float* grad, const float* logits, const Targets& targets,
                     const Workspace& workspace, bool no_one_hot, bool no_maximum,
                     bool neighbours_label, size_t miscounted) {
  const Mistakes mistakes{no_one_hot, no_maximum, neighbours_label};
  LAUNCH(thread_per_row, 1, kBlock, 0, grad, logits, targets, workspace, mistakes);
  launch_mean(loss, workspace.row_losses, targets.rows, {targets.rows + miscounted},
              workspace.partials, nullptr);
}

// Ignored rows are counted all the same.
void launch_counting_all(float* loss, float* grad, const float* logits, const Targets& targets,
                         const Workspace& workspace, hipStream_t stream) {
  const LossAndGradient output{{targets, {targets.rows}}, logits, workspace};
  softmax::launch_best(grad, logits, targets.rows, targets.classes, output, stream);
  launch_mean(loss, workspace.row_losses, targets.rows, {targets.rows}, workspace.partials, stream);
}

// The gradient of probabilities that are stored, which later steps use.
void launch_gradient_of_softmax(float* grad, const float* logits, const Targets& targets,
                                const Workspace& workspace, hipStream_t stream) {
  softmax::best(grad, logits, targets.rows, targets.classes, stream);
  const Count count = count_rows(targets, workspace, stream);
  if (targets.rows > 0)
    launch_gradient(grad, StoredProbabilities{grad}, Gradient{targets, count}, stream);
}

}  // namespace losses_test
