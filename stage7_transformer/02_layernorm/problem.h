// The matrices that the programs of 7.2 and 7.3 print.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/options.h"
#include "common/sample.h"
#include "stage7_transformer/02_layernorm/layernorm.h"

namespace layernorm {

struct Shape {
  std::size_t rows, cols;
  double elements() const { return static_cast<double>(rows) * static_cast<double>(cols); }
};

// Rows and columns on a GPU, on the CPU backend and with --quick.
std::vector<Size> sizes();

// One table each: `usual` alone where the user has chosen it; else on a GPU long rows, a matrix
// hardly larger than the caches, and what a medium and a small transformer train with.
std::vector<Shape> printed(const Shape& usual, bool sizes_given, bool quick);

std::string text(const Shape& shape);  // "65536x4096"

// The rows that are compared: all, or 64 of them.
RowSample choose_matrix_rows(const Shape& shape, std::uint64_t seed);

// Rows of two values in turn, m - d, m + d, m - d, ... or m + d, m - d, ...: mean m and rstd 1 / d,
// where m is of the row alone and d is 2, 4 or 8. Every sum of a version is one of integers, and
// each thread of a team sees one of the two values only, so that nothing rounds. Only for an even
// number of columns. Row i is equal to row i + kDistinctRows.
inline constexpr std::size_t kDistinctRows = 61;
std::vector<float> exact_rows(std::size_t rows, std::size_t cols);

// versions/row_cached.hip and versions/welford.hip with a y of bf16.
void launch_row_cached_bf16(const PassOf<gpu::bfloat16>& pass, const float* x, hipStream_t stream);
void launch_welford_bf16(const PassOf<gpu::bfloat16>& pass, const float* x, hipStream_t stream);

}  // namespace layernorm
