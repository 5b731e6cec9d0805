// What a model is made of, and how it is trained.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "stage5_training/06_train_toy/trainer.h"

namespace train_shakespeare {

using optimizers::Schedule;

// Blocks, heads of each, channels, characters that a piece of text has, pieces in a batch.
struct ModelSizes {
  size_t layers, heads, width, context, batch;
};

// Throws std::invalid_argument, one line, where there is no such model.
void check(const ModelSizes& sizes);

// What --config names: a model, and how it is trained unless the command line says otherwise.
struct Config {
  const char* name;
  ModelSizes sizes;
  size_t steps;
  double learning_rate;
};
inline constexpr Config kConfigs[] = {
    {"small", {2, 4, 64, 128, 32}, 1000, 3e-3},
    {"medium", {6, 6, 384, 256, 64}, 200, 1e-3},
};

// The optimizer, its numbers and the seed are step 5.6's. The learning rate is the highest one. The
// seed is that of the first weights and of the pieces of text.
struct Settings : train_toy::Settings {
  Settings() {
    kind = optimizers::Kind::AdamW;
    hyper.learning_rate = static_cast<float>(kConfigs[0].learning_rate);
  }
  explicit Settings(const train_toy::Settings& asked_for) : train_toy::Settings(asked_for) {}

  ModelSizes sizes = kConfigs[0].sizes;
  size_t steps = kConfigs[0].steps;  // of the whole training, which the learning rate depends on
};

inline constexpr size_t kMostWarmUp = 100;  // steps
inline constexpr double kLastRate = 0.1;    // of the highest

// A learning rate, of the step that has `done` behind it: rises for `warm` steps, then falls along
// half a cosine to `last` of the highest (Loshchilov and Hutter: SGDR, arXiv:1608.03983).
double warm_cosine(double highest, std::uint64_t done, std::uint64_t steps, std::uint64_t warm,
                   double last);

// The learning rate of step t + 1: rises for a tenth of the steps, while m and v fill.
double learning_rate(const Settings& settings, std::uint64_t t);

// What the optimizer does in each step, for an array that the device reads:
// versions/first_values.hip.
std::vector<Schedule> schedules(const Settings& settings);

}  // namespace train_shakespeare
