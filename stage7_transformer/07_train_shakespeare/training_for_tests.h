// What the tests of step 7.7 share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "stage5_training/06_train_toy/trainers_for_tests.h"
#include "stage7_transformer/07_train_shakespeare/train_shakespeare.h"

namespace shakespeare_test {

using namespace train_shakespeare;
using trainer_test::losses_of;
using trainer_test::parameters_after;
using trainer_test::require_agrees;
using trainer_test::require_damage_refused;
using trainer_test::require_refused;
using trainer_test::require_resumes;

inline Settings settings_of(const ModelSizes& sizes, size_t steps, std::uint64_t seed = 17) {
  Settings settings;
  settings.sizes = sizes, settings.steps = steps, settings.seed = seed;
  return settings;
}

// A play of some thousand characters.
inline const Corpus& corpus() {
  static const Corpus play(shakespeare::compose(3000, 5));
  return play;
}

inline std::vector<std::vector<float>> parameters_of(const Training& training) {
  return train_shakespeare::parameters_of(training.model);
}

// The words of the exception that `work` throws, "" where it throws none.
template <class Work>
std::string complaint(Work&& work) {
  try {
    work();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace shakespeare_test
