// The products that the program prints, and what of their results it compares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/options.h"
#include "common/rounding.h"
#include "common/sample.h"

namespace gemv {

// Of A: rows and columns on a GPU, on the CPU backend and with --quick.
std::vector<Size> sizes();

// y = A x, or y = A^T x.
struct Shape {
  bool transposed;
  std::size_t rows, cols;  // of A
  std::size_t terms() const { return transposed ? rows : cols; }
  std::size_t outputs() const { return transposed ? cols : rows; }
  double bytes() const;      // what is read and written at least
  std::string name() const;  // of its table
};

// One table each: A x, unless the user has chosen the size also with fewer and longer rows, and
// A^T x.
std::vector<Shape> printed(std::size_t rows, std::size_t cols, bool sizes_given);

// Element i, row by row, of A is number i of sequence 0, and element i of x that of sequence 1.
enum class Values { integers, uniform };  // random_numbers::integer and random_numbers::uniform

// Elements of y, and what stands there.
struct Expected {
  RowSample sample;  // of y as a matrix with one column
  std::vector<rounding::Sum> sums;
  double reference_ms;  // what the sums took
  std::vector<double> values() const;
};

// At most `at_most` elements of y. The sums of products of integers are exact in float.
Expected expect(const Shape& shape, Values values, std::uint64_t seed, std::size_t at_most = 256);

}  // namespace gemv
