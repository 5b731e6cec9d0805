#include "stage3_ml_ops/02_softmax/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/gpu_runtime.h"
#include "common/rounding.h"
#include "stage3_ml_ops/02_softmax/detail/grid.h"

namespace softmax {

std::vector<double> softmax_cpu(const std::vector<float>& x, size_t cols) {
  std::vector<double> y(x.size());
  for (size_t begin = 0; begin < x.size(); begin += cols) {
    double max = -std::numeric_limits<double>::infinity(), sum = 0;
    for (size_t c = 0; c < cols; ++c) max = std::max(max, static_cast<double>(x[begin + c]));
    for (size_t c = 0; c < cols; ++c)
      sum += y[begin + c] = std::exp(static_cast<double>(x[begin + c]) - max);
    for (size_t c = 0; c < cols; ++c) y[begin + c] /= sum;
  }
  return y;
}

// What a float result may be off, to first order in u = 2^-24. Let d = m - x >= 0.
// An exponential is off by 3 u d, since the difference, its product with log2(e) and log2(e) itself
// are rounded, and by 4 u (2 ulp: the worst that CUDA, AMD's OCML and glibc promise for exp2f). A
// version that computes exp(-d) as a product of exponentials pays the 4 u and the product's u again
// each time, but 3 u d only once: the arguments add up to d. The sum's terms are positive: its
// relative error is the mean of theirs, weighted by y, and one u per addition (Higham, Accuracy and
// Stability of Numerical Algorithms, 2nd ed., section 4.2). The reciprocal and the last product
// cost u each. kTiny covers what lies below float's normal range. -infinity must give 0, not nearly
// 0.
std::vector<double> bounds(const std::vector<float>& x, const std::vector<double>& y, size_t cols,
                           Roundings roundings) {
  std::vector<double> result(x.size());
  const auto distance = [&](double max, size_t i) {
    return std::isinf(x[i]) ? 0.0 : max - static_cast<double>(x[i]);
  };
  for (size_t begin = 0; begin < x.size(); begin += cols) {
    double max = -std::numeric_limits<double>::infinity(), mean = 0;
    for (size_t c = 0; c < cols; ++c) max = std::max(max, static_cast<double>(x[begin + c]));
    for (size_t i = begin; i < begin + cols; ++i) mean += y[i] * distance(max, i);
    const double of_sum = 3 * mean + 5 * roundings.exponentials + roundings.additions;
    for (size_t i = begin; i < begin + cols; ++i) {
      const double of_term = 3 * distance(max, i) + 5 * roundings.exponentials;
      const bool masked = x[i] == -std::numeric_limits<float>::infinity();
      result[i] = masked ? 0.0 : kFloatRoundoff * y[i] * (of_term + of_sum + 2) + kTiny;
    }
  }
  return result;
}

// Additions: those of a thread one after the other, those of a float4, and the tree of the team.
double additions(size_t cols, size_t threads) {
  return static_cast<double>(gpu::ceil_div(cols, threads)) + std::log2(threads);
}
Roundings roundings_thread_per_row(size_t cols) { return {static_cast<double>(cols), 1}; }
Roundings roundings_block_per_row(size_t cols) { return {additions(cols, kBlock), 1}; }
Roundings roundings_wave_per_row(size_t cols) {
  return {additions(cols, gpu::device_wave_size()), 1};
}
// Exponentials: an element's own, those of two merges, and of every step that may rescale the sum.
Roundings roundings_online(size_t cols) {
  const double steps = std::ceil(static_cast<double>(cols) / (4 * kOnlineVectors * kOnlineThreads));
  return {additions(cols, 4 * kOnlineThreads) + 2 + steps, 3 + steps};
}
// A thread adds kVectors float4s, or those that there are, and a single element.
Roundings roundings_row_in_registers(size_t cols) {
  const double vectors = std::fmax(8.0, std::ceil(static_cast<double>(cols) / (4 * 256)));
  const Roundings online = roundings_online(cols);
  return {std::fmax(vectors + 3 + std::log2(512), online.additions), online.exponentials};
}
// Shared memory is one part more to merge.
Roundings roundings_row_in_shared(size_t cols) {
  const Roundings online = roundings_online(cols);
  return {std::fmax(additions(cols, 4 * kSharedThreads) + 2, online.additions),
          1 + online.exponentials};
}
Roundings roundings_best(size_t cols) {
  const Roundings a = roundings_row_in_registers(cols), b = roundings_row_in_shared(cols);
  return {std::fmax(a.additions, b.additions), std::fmax(a.exponentials, b.exponentials)};
}

}  // namespace softmax
