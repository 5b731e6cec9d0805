// What the tests of step 7.7 share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "stage7_transformer/07_train_shakespeare/train_shakespeare.h"

namespace shakespeare_test {

using namespace train_shakespeare;

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

// The losses of a training's next steps, which are its first.
inline std::vector<float> first_losses(Training& training, Launch version, size_t steps) {
  train(training, version, steps);
  std::vector<float> losses = losses_of(training);
  losses.resize(steps);
  return losses;
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
