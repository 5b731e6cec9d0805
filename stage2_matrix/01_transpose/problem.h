// The matrices that the program prints, and what of their transposes it compares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/options.h"
#include "common/sample.h"

namespace transpose {

// Of a: rows and columns on a GPU, on the CPU backend and with --quick.
std::vector<Size> sizes();

struct Shape {
  std::size_t rows, cols;
};

// One table each. Beside the matrix itself, unless the user has chosen it (`sizes_given`), one
// whose rows begin at any multiple of 4 bytes and whose last tiles are cut off.
std::vector<Shape> printed(std::size_t rows, std::size_t cols, bool sizes_given);

// Rows of out (cols, rows) and what stands there, row behind row.
struct Expected {
  RowSample sample;
  std::vector<double> want;
};

// For an a whose element i, row by row, is random_numbers::uniform(seed, 0, i). Two elements are
// equal by chance once in 2^24.
Expected expect(const Shape& a, std::uint64_t seed);

}  // namespace transpose
