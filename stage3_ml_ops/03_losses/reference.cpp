#include "stage3_ml_ops/03_losses/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "stage3_ml_ops/03_losses/losses.h"

namespace losses {

using softmax::kTiny;

// One rounding per addition to the thread's sum and in the tree, twice where several blocks add;
// the count's and the quotient's.
double mean_roundings(size_t n) {
  const double blocks = mean_blocks(n), tree = std::log2(kBlock);
  const double first = std::ceil(static_cast<double>(n) / (blocks * kBlock)) + tree;
  const double second = blocks > 1 ? std::ceil(blocks / kBlock) + tree : 0;
  return first + second + 2;
}

// ---- Squared error ----------------------------------------------------------------------------

double squared_error_cpu(const std::vector<float>& p, const std::vector<float>& t) {
  double total = 0;
  constexpr size_t kPiece = 4096;  // partial sums keep the reference's own error small
  for (size_t begin = 0; begin < p.size(); begin += kPiece) {
    double piece = 0;
    for (size_t i = begin; i < std::min(begin + kPiece, p.size()); ++i)
      piece += std::pow(static_cast<double>(p[i]) - static_cast<double>(t[i]), 2);
    total += piece;
  }
  return total / static_cast<double>(p.size());
}

std::vector<double> squared_error_gradient_cpu(const std::vector<float>& p,
                                               const std::vector<float>& t, size_t n) {
  std::vector<double> grad(p.size());
  for (size_t i = 0; i < grad.size(); ++i)
    grad[i] = 2 * (static_cast<double>(p[i]) - static_cast<double>(t[i])) / static_cast<double>(n);
  return grad;
}

// The difference, the scale (n's conversion and the quotient) and the product round once each.
double squared_error_gradient_bound(double grad) { return gamma(4) * std::fabs(grad) + kTiny; }

// The terms share a sign, so the worst case is nearly as tight as a probabilistic bound. The
// difference counts twice in its square, which rounds once more.
static double squared_error_bound(double want, double additions_of_thread, unsigned blocks) {
  return gamma(3 + additions_of_thread + std::log2(kBlock) + mean_roundings(blocks)) * want + kTiny;
}

double squared_error_scalar_bound(double want, const Split& split) {
  const size_t n = split.head + 4 * split.vectors + split.tail;
  const unsigned blocks = scalar_blocks(n);
  return squared_error_bound(want, static_cast<double>(gpu::ceil_div(n, size_t{blocks} * kBlock)),
                             blocks);
}

double squared_error_vectorized_bound(double want, const Split& split) {
  const unsigned blocks = tile_blocks(split);
  const size_t threads = size_t{blocks} * kBlock, singles = split.head + split.tail;
  const size_t tiles = gpu::ceil_div(split.vectors, threads * kVectors);
  return squared_error_bound(
      want, static_cast<double>(kVectors * tiles + gpu::ceil_div(singles, threads) + 2), blocks);
}

// ---- Cross-entropy ----------------------------------------------------------------------------

// A thread adds one element after the other, each of which may rescale the sum; then comes the
// tree.
Roundings roundings_from_logits(size_t classes) {
  const double steps = static_cast<double>(gpu::ceil_div(classes, kBlock));
  return {steps + std::log2(kBlock), steps + 3};
}

CrossEntropy cross_entropy_cpu(const HostRows& rows) {
  CrossEntropy result;
  result.grad = softmax::softmax_cpu(rows.logits, rows.classes);
  for (size_t row = 0; row < rows.labels.size(); ++row) {
    const float* x = rows.logits.data() + row * rows.classes;
    double* grad = result.grad.data() + row * rows.classes;
    const int label = rows.label(row);
    if (label < 0) {
      std::fill(grad, grad + rows.classes, 0.0);
      result.row_losses.push_back(label == kIgnored ? 0 : std::numeric_limits<double>::quiet_NaN());
      continue;
    }
    double max = -std::numeric_limits<double>::infinity(), sum = 0;
    for (size_t c = 0; c < rows.classes; ++c) max = std::max(max, static_cast<double>(x[c]));
    for (size_t c = 0; c < rows.classes; ++c) sum += std::exp(static_cast<double>(x[c]) - max);
    result.row_losses.push_back(std::log(sum) + (max - static_cast<double>(x[label])));
    grad[label] -= 1;
    for (size_t c = 0; c < rows.classes; ++c) grad[c] /= rows.count;
  }
  return result;
}

// softmax::bounds derives the probability's bound; subtracting 1, the count's conversion, its
// reciprocal and the product round once each. A row's loss is log(sum) + (max - x[label]), with
// both terms at least 0. The sum's relative error is its logarithm's absolute one, and part of the
// largest probability's; 4 u from logf (2 ulp), 1 u from the difference and 1 u from the last sum,
// each of a number that is no larger than the loss. From a probability the loss is -log(p), and p's
// own relative error is the logarithm's.
CrossEntropy cross_entropy_bounds(const HostRows& rows, const CrossEntropy& want,
                                  Roundings roundings, bool from_probabilities) {
  const size_t classes = rows.classes;
  const std::vector<double> p = softmax::softmax_cpu(rows.logits, classes);
  const std::vector<double> of_p = softmax::bounds(rows.logits, p, classes, roundings);
  CrossEntropy bounds{{}, std::vector<double>(p.size())};  // 0 where no row counts
  for (size_t row = 0; row < rows.labels.size(); ++row) {
    const int label = rows.label(row);
    if (label < 0) {
      bounds.row_losses.push_back(0);
      continue;
    }
    const size_t begin = row * classes;
    size_t largest = begin;
    for (size_t i = begin; i < begin + classes; ++i) {
      const double grad = std::fabs(want.grad[i]);
      bounds.grad[i] = of_p[i] / rows.count + gamma(4) * grad + (grad == 0 ? 0 : kTiny);
      if (p[i] > p[largest]) largest = i;
    }
    const size_t logarithm_of = from_probabilities ? begin + static_cast<size_t>(label) : largest;
    bounds.row_losses.push_back(of_p[logarithm_of] / p[logarithm_of] +
                                6 * kFloatRoundoff * want.row_losses[row] + kTiny);
  }
  return bounds;
}

double mean_bound(const std::vector<float>& row_losses, double count) {
  double sum = 0;
  for (const float loss : row_losses) sum += std::fabs(static_cast<double>(loss));
  return gamma(mean_roundings(row_losses.size())) * sum / count + kTiny;
}

}  // namespace losses
