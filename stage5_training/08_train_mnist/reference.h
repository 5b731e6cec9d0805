// 5.8  The reference of trainings on digits in double: their first steps. Step 6.4 holds its
// network against it too.
#pragma once

#include <cstddef>
#include <vector>

#include "stage5_training/05_sequential/sequential.h"
#include "stage5_training/06_train_toy/trajectory.h"
#include "stage5_training/08_train_mnist/mnist_training.h"

namespace mnist {

// How many first steps are held against the reference.
inline constexpr size_t kCheckedSteps = 20;

// The images of a step, the first being number 0: pixels / 255 (batch, 784), with no error.
sequential::Values images_of(const Digits& digits, const Sampler& sampler, std::uint64_t step);
std::vector<int> labels_of(const Digits& digits, const Sampler& sampler, std::uint64_t step);

// What the first `steps` steps of a training must do that begins with its present parameters
// (train_toy::trajectory_cpu); it may end before. Waits for the device.
Trajectory trajectory_cpu(const Training& training, const Digits& digits, size_t steps,
                          const train_toy::Twins& drift = train_toy::Twins(10));

}  // namespace mnist
