// A step that counts itself: what it needs lies in device memory, and it is one launch. A framework
// keeps its optimizers so. Plain C++.
#pragma once

#include <cstdint>

#include "stage5_training/04_optimizers/optimizers.h"

namespace optimizers {

struct CountedStep {
  Hyperparameters hyper;  // but for the learning rate
  const float* rate;      // that is here
  std::int64_t* step;     // how many steps have begun
  unsigned* finished;     // 0 before the first launch and behind each; one stream's alone
};

// *step += 1, and the arena's update of that step.
void launch_counted_update(Kind kind, ParameterArena arena, const CountedStep& counted,
                           hipStream_t stream = nullptr);

}  // namespace optimizers
