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

double warm_cosine(double highest, std::uint64_t done, std::uint64_t steps, std::uint64_t warm,
                   double last) {
  const double at = static_cast<double>(done), begin = static_cast<double>(warm);
  if (done < warm) return highest * (at + 1) / begin;
  const double way =
      std::min((at - begin) / std::max(static_cast<double>(steps) - begin, 1.0), 1.0);
  return highest * (last + (1 - last) * (1 + std::cos(std::acos(-1.0) * way)) / 2);
}

double learning_rate(const Settings& settings, std::uint64_t t) {
  return warm_cosine(static_cast<double>(settings.hyper.learning_rate), t, settings.steps,
                     std::min(settings.steps / 10, kMostWarmUp), kLastRate);
}

}  // namespace train_shakespeare
