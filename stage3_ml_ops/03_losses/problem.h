// The problems that the program prints, and what it expects of their results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/options.h"
#include "common/sample.h"
#include "stage3_ml_ops/03_losses/reference.h"

namespace losses {

struct Shape {
  std::size_t rows, classes;
  std::size_t elements() const { return rows * classes; }
  std::string squared_error_name() const;  // of the tables
  std::string cross_entropy_name() const;
};

// Rows and classes on a GPU, on the CPU backend and with --quick.
std::vector<Size> sizes();

// What cross-entropy is run on: the first shape, and unless that is all that the user wants also
// the logits of a language model with a vocabulary of 50257, no row of which is aligned as the
// last.
std::vector<Shape> printed(const Shape& first, bool only_first);

// ---- Squared error ----------------------------------------------------------------------------

// p and t whose loss float computes exactly in every order. Both hold integers in [-3, 3]:
// random_numbers::integer(seed, 1, i). Only in `sample`, at most 2^20 elements, p holds others, so
// that the sum of the squares is below 2^24.
struct ExactSquares {
  Sample sample;            // everything, or 256 chunks
  std::vector<float> p, t;  // (sample.size)
  double loss;              // rounded once, as the division of the sum by n is
  std::vector<double> grad;
};
ExactSquares exact_squares(std::size_t n, std::uint64_t seed);

// ---- Cross-entropy ----------------------------------------------------------------------------

// Logit i, row by row, is scale_of(values) times number i of sequence 0:
//   uniform   8 random_numbers::uniform
//   integers  200 random_numbers::integer: the exponential of each distance is 1 or 0, so that the
//             probabilities of a row's K largest logits are 1 / K, rounded once, and all others 0.
enum class Values { integers, uniform };
float scale_of(Values values);

// The labels of all rows, random classes.
std::vector<int> random_labels(const Shape& shape, std::uint64_t seed);

// Rows of the batch and what stands there.
struct Expected {
  RowSample sample;
  HostRows rows;
  CrossEntropy want;
  Values values;
  double reference_ms;  // what `want` took

  // Of the sample's row i. On integers the probability of a label is 0 in float unless its logit is
  // among the largest, and the loss is then infinite for a version that takes its logarithm.
  double row_loss(std::size_t i, bool from_probabilities) const;
};

// At most `at_most` rows. Of integers the gradient is what float computes, exactly.
Expected expect(const Shape& shape, Values values, std::uint64_t seed, std::size_t at_most = 64);

}  // namespace losses
