#include "stage7_transformer/07_train_shakespeare/sampling.h"

#include <algorithm>
#include <cmath>

#include "common/random.h"

namespace train_shakespeare {

size_t choose(const std::vector<float>& logits, const Sampling& sampling, std::uint64_t i) {
  constexpr std::uint32_t kStream = 0x3C3Bu;  // a sequence that nothing else uses
  std::vector<size_t> order(logits.size());
  for (size_t token = 0; token < order.size(); ++token) order[token] = token;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  if (sampling.temperature == 0) return order[0];
  if (sampling.top_k > 0) order.resize(std::min(sampling.top_k, order.size()));
  const auto weight = [&](size_t token) {
    return std::exp((static_cast<double>(logits[token]) - static_cast<double>(logits[order[0]])) /
                    sampling.temperature);
  };
  double total = 0;
  for (const size_t token : order) total += weight(token);
  const double uniform = static_cast<double>(random_numbers::uniform(sampling.seed, kStream, i));
  double left = (uniform + 1) / 2 * total;
  for (const size_t token : order) {
    left -= weight(token);
    if (left < 0) return token;
  }
  return order.back();
}

}  // namespace train_shakespeare
