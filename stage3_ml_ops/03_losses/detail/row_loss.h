// How a kernel leaves the loss of a row, and a label that is no class.
#pragma once

#include "common/gpu.h"
#include "stage3_ml_ops/03_losses/detail/targets.h"

namespace losses {

// One thread per row calls it. `label` is what targets.label(row) gave. Returns what it has left.
__device__ inline float leave_row_loss(const Workspace& workspace, const Targets& targets,
                                       size_t row, int label, float loss) {
  const float left = label >= 0 ? loss : label == kIgnored ? 0.0f : NAN;
  workspace.row_losses[row] = left;
  if (label == kBadLabel)  // the row in the upper half: the smallest word is the first row's
    atomicMin(workspace.bad_label, static_cast<unsigned long long>(row) << 32 |
                                       static_cast<unsigned>(targets.labels[row]));
  return left;
}

}  // namespace losses
