// The third ladder of step 5.2: back through a softmax with cross-entropy behind it.
#pragma once

#include "common/version.h"
#include "stage3_ml_ops/03_losses/detail/targets.h"

namespace activation_backward {

// The loss of a row is -log p[label]. Its gradient by p is -1 / p[label] there and 0 elsewhere, and
// through softmax_backward, whose sum is -1, comes p - 1[label]: no quotient is left. All of it is
// divided by the number of rows that count.

// versions/loss_composed.hip: grad_p[r,c] = -1[c = label[r]] / (p[r,c] count), which is infinite
// where p has underflowed.
void launch_grad_p(float* grad_p, const float* p, const losses::Targets& targets,
                   const losses::Count& count, hipStream_t stream = nullptr);

// All write the gradient by the logits of a mean over all rows, (rows, classes). P =
// softmax(logits) is stored already, but from_logits does not read it. Errors: also those of
// losses::count_rows.
void launch_composed(float* grad, const float* logits, const float* p,
                     const losses::Targets& targets, const losses::Workspace& workspace,
                     hipStream_t stream = nullptr);
void launch_from_probabilities(float* grad, const float* logits, const float* p,
                               const losses::Targets& targets, const losses::Workspace& workspace,
                               hipStream_t stream = nullptr);
void launch_from_logits(float* grad, const float* logits, const float* p,
                        const losses::Targets& targets, const losses::Workspace& workspace,
                        hipStream_t stream = nullptr);

struct LossLaunch {
  void (*run)(float* grad, const float* logits, const float* p, const losses::Targets& targets,
              const losses::Workspace& workspace, hipStream_t stream);
  bool from_logits;
};

inline constexpr Version<LossLaunch> kLossVersions[] = {
    {"loss_composed",
     {launch_composed, false},
     "the loss by p, then softmax: grad_p goes through memory"},
    {"loss_from_probabilities",
     {launch_from_probabilities, false},
     "(p - 1[label]) / count: what is left of both together"},
    {"loss_from_logits",
     {launch_from_logits, true},
     "step 3.3: p need not be stored by the forward pass"},
};

}  // namespace activation_backward
