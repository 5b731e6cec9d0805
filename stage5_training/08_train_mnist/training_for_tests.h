// What the tests of trainings on digits share: step 6.4's, too.
#pragma once

#include <string>

#include "stage5_training/06_train_toy/trainers_for_tests.h"
#include "stage5_training/08_train_mnist/train_mnist.h"

namespace mnist_test {

using mnist::DeviceDigits;
using mnist::train;
using train_mnist::Launch;
using train_mnist::Training;
using trainer_test::losses_of;
using trainer_test::parameters_after;
using trainer_test::require_agrees;
using trainer_test::require_damage_refused;
using trainer_test::require_refused;
using trainer_test::require_resumes;

// The checkpoint of a training with `settings`, the default seed and Adam, on 40 images, is refused
// by trainings with others: make(settings, samples) makes them. `settings` has batches of 8.
template <class Make>
void require_others_refused(const mnist::Settings& settings, const std::string& path,
                            const mnist::Samples& images, const mnist::Samples& fewer, Make make) {
  const auto refuses = [&](const mnist::Settings& other, const mnist::Samples& samples,
                           const std::string& words) {
    trainer_test::require_refused(*make(other, samples), path, words);
  };
  mnist::Settings other = settings;
  other.seed = 2;
  refuses(other, images, "seed 1, not 2");
  other = settings, other.batch = 5;
  refuses(other, images, "batch 8, not 5");
  other = settings, other.kind = optimizers::Kind::Sgd;
  refuses(other, images, "optimizer adam, not sgd");
  other = settings, other.hidden = 5;
  refuses(other, images, "Linear(784, 5)");
  refuses(settings, fewer, "images 40, not 30");
}

}  // namespace mnist_test
