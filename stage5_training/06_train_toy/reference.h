// The reference of step 5.6: the first steps of a training in double.
#pragma once

#include <cstddef>
#include <vector>

#include "stage5_training/04_optimizers/optimizers.h"
#include "stage5_training/06_train_toy/data.h"
#include "stage5_training/06_train_toy/trajectory.h"

namespace train_toy {

// The trajectory from these parameters, which lie in the order of the model's. Ten times what the
// twins drift away is allowed, and 4 u: a loss near 0 is the logarithm of 1 + e, a sum that has
// lost what is below u. Long trainings drift apart for good: what can be compared then is the
// accuracy. It may end before `steps` steps.
Trajectory trajectory_cpu(const std::vector<size_t>& widths, const Points& points,
                          const std::vector<float>& parameters, optimizers::Kind kind,
                          const optimizers::Hyperparameters& hyper, size_t steps);

}  // namespace train_toy
