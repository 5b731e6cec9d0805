#include "stage7_transformer/07_train_shakespeare/settings.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "stage7_transformer/06_transformer_block/problem.h"

namespace train_shakespeare {

void check(const ModelSizes& sizes) {
  if (sizes.layers == 0) throw std::invalid_argument("a model has at least one layer");
  transformer_block::check({sizes.batch, sizes.context, sizes.width, sizes.heads});
}

double learning_rate(const Settings& settings, std::uint64_t t) {
  const double steps = static_cast<double>(settings.steps), step = static_cast<double>(t);
  const double warm = static_cast<double>(std::min(settings.steps / 10, kMostWarmUp));
  const double highest = static_cast<double>(settings.hyper.learning_rate);
  if (step < warm) return highest * (step + 1) / warm;
  const double done = std::min((step - warm) / std::max(steps - warm, 1.0), 1.0);
  return highest * (kLastRate + (1 - kLastRate) * (1 + std::cos(std::acos(-1.0) * done)) / 2);
}

}  // namespace train_shakespeare
