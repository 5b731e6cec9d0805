#include "stage3_ml_ops/03_losses/problem.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/random.h"
#include "common/timer.h"

namespace losses {

std::vector<Size> sizes() { return {{"rows", 8192, 64, 67}, {"classes", 8192, 1024, 1003}}; }

std::string Shape::squared_error_name() const {
  return "squared error and gradient   n=" + size_text(elements()) + " float32";
}

std::string Shape::cross_entropy_name() const {
  return "cross-entropy and gradient   " + std::to_string(rows) + "x" + std::to_string(classes) +
         " float32";
}

std::vector<Shape> printed(const Shape& first, bool only_first) {
  if (only_first) return {first};
#if defined(GPU_BACKEND_CPU)
  return {first, {8, 50257}};
#else
  return {first, {4096, 50257}};
#endif
}

// ---- Squared error ----------------------------------------------------------------------------

ExactSquares exact_squares(std::size_t n, std::uint64_t seed) {
  constexpr std::size_t kWhole = std::size_t{1} << 20, kChunk = 4096, kChunks = kWhole / kChunk;
  ExactSquares exact;
  Sample& sample = exact.sample;
  if (n <= kWhole) {
    sample.chunks = {{0, n}};
  } else {  // the first, the last, and others at equal distances
    for (std::size_t c = 0; c < kChunks; ++c)
      sample.chunks.push_back({(n - kChunk) / (kChunks - 1) * c, kChunk});
    sample.chunks.back().begin = n - kChunk;
  }
  sample.size = std::min(n, kWhole);
  double sum = 0;
  for (std::size_t s = 0; s < sample.size; ++s) {
    exact.p.push_back(random_numbers::integer(seed, 0, s));
    exact.t.push_back(random_numbers::integer(seed, 1, sample.position(s)));
    const float difference = exact.p[s] - exact.t[s];
    sum += static_cast<double>(difference * difference);
    exact.grad.push_back(static_cast<double>(squared_error_scale(n) * difference));
  }
  exact.loss = static_cast<double>(static_cast<float>(sum) / static_cast<float>(n));
  return exact;
}

// ---- Cross-entropy ----------------------------------------------------------------------------

float scale_of(Values values) { return values == Values::integers ? 200.0f : 8.0f; }

std::vector<int> random_labels(const Shape& shape, std::uint64_t seed) {
  std::vector<int> labels(shape.rows);
  const std::size_t labelled = std::min(shape.classes, std::size_t{1} << 31);  // a label is an int
  for (std::size_t row = 0; row < shape.rows; ++row)
    labels[row] = static_cast<int>(random_numbers::word(seed, 1, row) % labelled);
  return labels;
}

double Expected::row_loss(std::size_t i, bool from_probabilities) const {
  if (!from_probabilities || values != Values::integers) return want.row_losses[i];
  const float* x = rows.logits.data() + i * rows.classes;
  const bool is_largest = x[rows.labels[i]] == *std::max_element(x, x + rows.classes);
  return is_largest ? want.row_losses[i] : std::numeric_limits<double>::infinity();
}

// The gradient as float computes it from probabilities of 1 / K and 0.
static void round_gradient(CrossEntropy& want, const HostRows& rows) {
  const float weight = 1.0f / static_cast<float>(rows.count);
  for (std::size_t row = 0; row < rows.labels.size(); ++row) {
    const auto begin = rows.logits.begin() + static_cast<std::ptrdiff_t>(row * rows.classes);
    const auto end = begin + static_cast<std::ptrdiff_t>(rows.classes);
    const float largest = *std::max_element(begin, end);
    const float probability = 1.0f / static_cast<float>(std::count(begin, end, largest));
    for (std::size_t c = 0; c < rows.classes; ++c) {
      const std::size_t i = row * rows.classes + c;
      const float one_hot = static_cast<int>(c) == rows.labels[row] ? 1.0f : 0.0f;
      const float of_logit = rows.logits[i] == largest ? probability : 0.0f;
      want.grad[i] = static_cast<double>(weight * (of_logit - one_hot));
    }
  }
}

Expected expect(const Shape& shape, Values values, std::uint64_t seed, std::size_t at_most) {
  const auto number =
      values == Values::integers ? random_numbers::integer : random_numbers::uniform;
  Expected expected{choose_rows(shape.rows, shape.classes, at_most, seed), {}, {}, values, 0};
  HostRows& rows = expected.rows;
  rows.classes = shape.classes, rows.count = static_cast<double>(shape.rows);
  const std::vector<int> labels = random_labels(shape, seed);
  for (const std::size_t row : expected.sample.rows) {
    rows.labels.push_back(labels[row]);
    for (std::size_t i = row * shape.classes; i < (row + 1) * shape.classes; ++i)
      rows.logits.push_back(scale_of(values) * number(seed, 0, i));
  }
  HostTimer timer;
  expected.want = cross_entropy_cpu(rows);
  expected.reference_ms = timer.ms();
  if (values == Values::integers) round_gradient(expected.want, rows);
  return expected;
}

}  // namespace losses
