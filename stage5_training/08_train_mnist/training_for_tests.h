// What the tests of trainings on digits share: step 6.4's, too.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "stage5_training/08_train_mnist/train_mnist.h"

namespace mnist_test {

using mnist::DeviceDigits;
using mnist::train;
using train_mnist::Launch;
using train_mnist::Training;

// The losses of `steps` steps, epoch by epoch.
template <class T>
std::vector<float> losses_of(T& training, const mnist::Launch<T>& version, size_t steps) {
  const size_t per_epoch = training.steps_per_epoch();
  std::vector<float> losses;
  while (steps > 0) {
    const size_t first = training.steps % per_epoch, part = std::min(steps, per_epoch - first);
    train(training, version, part);
    const std::vector<float> curve = training.losses();
    losses.insert(losses.end(), curve.begin() + static_cast<std::ptrdiff_t>(first),
                  curve.begin() + static_cast<std::ptrdiff_t>(first + part));
    steps -= part;
  }
  return losses;
}

}  // namespace mnist_test
