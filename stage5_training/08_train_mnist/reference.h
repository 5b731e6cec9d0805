// 5.8  The reference of train_mnist in double: the first steps of a training.
#pragma once

#include <cstddef>
#include <vector>

#include "stage5_training/08_train_mnist/train_mnist.h"

namespace train_mnist {

using mnist::compare_losses;
using mnist::Trajectory;

// How many first steps are held against the reference.
inline constexpr size_t kCheckedSteps = 20;

// What the first `steps` steps must do from these parameters (train_toy::trajectory_cpu); it may
// end before. Ten times what the twins drift away is allowed.
Trajectory trajectory_cpu(const Sequential& model, const std::vector<float>& parameters,
                          const mnist::Digits& digits, const Settings& settings, size_t steps);

}  // namespace train_mnist
