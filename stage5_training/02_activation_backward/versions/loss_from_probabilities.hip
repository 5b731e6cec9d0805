// loss_from_probabilities: (p - 1[label]) / count: what is left of both together.
//
// Fixes : loss_composed writes and reads a matrix that is nearly all zeros.
// Idea  : the quotient of the loss and the probability of the slope have cancelled.
// Costs : 8 bytes per element.
#include "common/gpu.h"
#include "stage3_ml_ops/03_losses/detail/gradient.h"
#include "stage5_training/02_activation_backward/loss_backward.h"

namespace activation_backward {

// The kernel of step 3.3 for probabilities that are stored.
void launch_from_probabilities(float* grad, const float*, const float* p,
                               const losses::Targets& targets, const losses::Workspace& workspace,
                               hipStream_t stream) {
  const losses::Count count = losses::count_rows(targets, workspace, stream);
  if (targets.rows > 0)
    losses::launch_gradient(grad, losses::StoredProbabilities{p}, losses::Gradient{targets, count},
                            stream);
}

}  // namespace activation_backward
