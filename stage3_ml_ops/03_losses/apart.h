// Cross-entropy and its gradient one without the other, in few launches: a framework asks for them
// at different times, and a small batch takes as long as its launches. Sizes, errors and labels are
// those of losses.h.
#pragma once

#include "stage3_ml_ops/03_losses/losses.h"

namespace losses {

// *loss = the mean alone, of logits (rows, classes): one launch for at most kBlock short rows, two
// for at most kOneBlock rows.
void launch_loss_apart(float* loss, const float* logits, const Targets& targets,
                       const Workspace& workspace, hipStream_t stream = nullptr);

// grad (rows, classes) = *factor times the gradient by the logits, which may be logits; `factor` is
// on the device. One launch for at most kCountedByWave rows. A bad label is not reported: the loss
// does that.
void launch_gradient_apart(float* grad, const float* factor, const float* logits,
                           const Targets& targets, const Workspace& workspace,
                           hipStream_t stream = nullptr);

inline constexpr size_t kShortRow = 16;         // classes that one thread may read
inline constexpr size_t kRowOfWave = 512;       // that one wave may read
inline constexpr size_t kCountedByWave = 1024;  // more labels are counted by a launch of their own

}  // namespace losses
