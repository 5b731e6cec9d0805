// The operations that the program's third ladder computes, and what a correct result is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/options.h"
#include "common/report.h"
#include "common/sample.h"
#include "stage6_cnn/01_conv2d/conv2d.h"
#include "stage8_framework/02_backends/ops.h"

namespace backends {

// Of the images (N,C,H,H) that all three are made of, on a GPU, on the CPU backend and with
// --quick.
std::vector<Size> sizes();

enum class Which { matmul, softmax, conv2d };

// A convolution of the images with C filters of 3 x 3, the same as a product of matrices (6.1), or
// a softmax of its result.
struct Case {
  Which which;
  std::size_t N, C, H;

  const char* op() const;
  std::string name() const;
  Work work() const;
  std::vector<framework::Shape> inputs() const;
  framework::Shape output() const;
  std::vector<double> attributes() const;
  conv2d::Problem convolution() const;
  std::size_t rows() const { return N * H * H; }  // of matmul and softmax
};

// matmul first, the program's headline. Throws UsageError where the sizes are too large.
std::vector<Case> printed(const std::vector<std::size_t>& sizes);

// The memory that the largest of them takes on a device, and about as much on the host.
double most_bytes(const std::vector<Case>& cases);

// Inputs for a case, and the sampled rows (of conv2d: planes) of what comes out.
struct Values {
  std::vector<std::vector<float>> inputs;
  RowSample sample;
  std::vector<double> want, error;  // and how far a correct float result may be from it
  double reference_ms = 0;          // of the sample

  // Holds all elements of an output against them.
  Comparison compare(const std::vector<float>& output) const;
};

// Random numbers as the steps of these operations take them: in [-1, 1) or, for softmax, [-8, 8),
// or such that the result is exact in any order (`error` is 0 then).
Values values_of(const Case& c, bool with_integers, std::uint64_t seed);

}  // namespace backends
