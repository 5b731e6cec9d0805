// The layers that the program prints, and what of their gradients it compares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/options.h"
#include "common/sample.h"
#include "stage5_training/01_dense_backward/reference.h"

namespace dense_backward {

// Batch, in and out on a GPU, on the CPU backend and with --quick.
std::vector<Size> sizes();

// One table each: `usual` alone where the user has chosen it or wants little; else MNIST's layers,
// on a GPU one with a long batch, and `usual`.
std::vector<Shape> printed(const Shape& usual, bool only_usual);

std::string name(const Shape& shape);        // of its table
double multiplications(const Shape& shape);  // of one of the two products
double bytes(const Shape& shape);            // of what is read and written at least
double device_bytes(const Shape& shape);     // of that, and of the workspace

// The rows that are compared of each gradient: all of them of a small layer, else 8.
struct Samples {
  RowSample w, bias, x;
  std::string text;  // for Report::table; empty: the sample is everything
};
Samples samples_of(const Shape& shape, std::uint64_t seed);

// What is expected in these rows, without anything there before.
struct ExpectedGradients {
  Expected w, bias, x;
};
ExpectedGradients expect(const Shape& shape, const Samples& samples, const std::vector<float>& x,
                         const std::vector<float>& w, const std::vector<float>& grad_y);

}  // namespace dense_backward
