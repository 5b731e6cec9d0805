// What the tests of step 6.4 share.
#pragma once

#include <vector>

#include "stage5_training/06_train_toy/reference.h"
#include "stage5_training/08_train_mnist/reference.h"
#include "stage5_training/08_train_mnist/training_for_tests.h"
#include "stage6_cnn/04_train_cnn/train_cnn.h"

namespace cnn_test {

using mnist::compare_losses;
using mnist::DeviceDigits;
using mnist::Samples;
using mnist::train;
using mnist::Trajectory;
using mnist_test::losses_of;
using mnist_test::parameters_after;
using mnist_test::require_agrees;
using mnist_test::require_damage_refused;
using mnist_test::require_others_refused;
using mnist_test::require_refused;
using mnist_test::require_resumes;
using train_cnn::Launch;
using train_cnn::Training;

// Tensor by tensor.
inline std::vector<std::vector<float>> parameters_of(const mnist::Training& t) {
  return train_toy::by_tensor(t.model, t.parameters());
}

}  // namespace cnn_test
