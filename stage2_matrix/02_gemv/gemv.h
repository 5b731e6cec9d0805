// 2.2  gemv: y = A x for a row-major matrix A (rows, cols), and with A transposed: y = A^T x.
//
// Every element of A is used once, so the time is that of reading A: two operations per 4 bytes.
// The versions ask who reads a row: a thread, a block, a wave. Then they keep many 16-byte loads in
// flight, and cut long rows into slices, so that a matrix of few rows keeps the whole device busy,
// too. A^T x sums down the columns of the same A.
//
// All arrays are on the device and aligned to 4 bytes; y does not overlap A or x. The work is
// queued on `stream`. No version uses float atomics: every run on one device gives the same bits.
// Errors: gpu::Error where a launch is refused.
#pragma once

#include <cstddef>

#include "common/version.h"

namespace gemv {

// y = A x    y (rows), a (rows, cols) without gaps between its rows, x (cols); any sizes. Without
// columns y is 0.
void launch_thread_per_row(float* y, const float* a, const float* x, size_t rows, size_t cols,
                           hipStream_t stream = nullptr);
void launch_block_per_row(float* y, const float* a, const float* x, size_t rows, size_t cols,
                          hipStream_t stream = nullptr);
void launch_wave_per_row(float* y, const float* a, const float* x, size_t rows, size_t cols,
                         hipStream_t stream = nullptr);

// y = alpha A x + beta y, and y = alpha A^T x + beta y: the routine gemv of BLAS level 2 (Dongarra,
// Du Croz, Hammarling, Hanson: An extended set of Fortran basic linear algebra subprograms. ACM
// TOMS 14, 1988). If alpha is 0, A and x are not read, and if beta is 0, y is not read: what they
// hold does not matter, not even a NaN. If nothing is summed (no columns; transposed: no rows), the
// result is beta y.
struct Product {
  size_t rows, cols;  // of A, any sizes; with no rows (transposed: no columns) nothing is done
  float alpha;
  const float* a;  // A[i, j] is a[i * lda + j]
  size_t lda;      // at least cols, else std::invalid_argument
  const float* x;  // (cols), transposed: (rows)
  float beta;
  float* y;  // (rows), transposed: (cols)
};

// Device memory for the sums over slices: workspace_bytes() of it, or kMaxPartials floats, which
// are enough for every product. No two streams use it at a time.
struct Workspace {
  float* partials;
};
inline constexpr size_t kMaxPartials = size_t{1} << 20;

// What the launchers below need for this product on the current device; 0 where none cuts it.
size_t workspace_bytes(bool transposed, const Product& product);

// y = alpha A x + beta y.
void launch_vectorized(const Product& product, const Workspace& workspace,
                       hipStream_t stream = nullptr);
void launch_split_rows(const Product& product, const Workspace& workspace,
                       hipStream_t stream = nullptr);
// y = alpha A^T x + beta y.
void launch_thread_per_column(const Product& product, const Workspace& workspace,
                              hipStream_t stream = nullptr);
void launch_split_columns(const Product& product, const Workspace& workspace,
                          hipStream_t stream = nullptr);

// y = alpha A x + beta y (transposed: alpha A^T x + beta y) by the version that suits the shape.
void best(bool transposed, const Product& product, const Workspace& workspace,
          hipStream_t stream = nullptr);

// Through how many roundings a product a * x goes at most, for the error bound.
double depth_thread_per_row(const Product& product);
double depth_block_per_row(const Product& product);
double depth_wave_per_row(const Product& product);
double depth_vectorized(const Product& product);
double depth_split_rows(const Product& product);
double depth_thread_per_column(const Product& product);
double depth_split_columns(const Product& product);

struct Launch {
  bool transposed;
  double (*depth)(const Product& product);
  // A version is one of the two: y = A x alone, or all of a Product.
  void (*simple)(float* y, const float* a, const float* x, size_t rows, size_t cols,
                 hipStream_t stream);
  void (*general)(const Product& product, const Workspace& workspace, hipStream_t stream);

  // Runs the version. A simple one throws std::invalid_argument unless alpha is 1, beta is 0 and
  // lda is cols.
  void operator()(const Product& product, const Workspace& workspace, hipStream_t stream) const;
};

inline constexpr Version<Launch> kVersions[] = {
    {"thread_per_row",
     {false, depth_thread_per_row, launch_thread_per_row, nullptr},
     "no thread needs another, but the lanes of a wave read a row apart"},
    {"block_per_row",
     {false, depth_block_per_row, launch_block_per_row, nullptr},
     "neighbours read neighbours; a tree in shared memory per row"},
    {"wave_per_row",
     {false, depth_wave_per_row, launch_wave_per_row, nullptr},
     "shuffles instead of barriers: for short rows, long ones keep too few waves busy"},
    {"vectorized",
     {false, depth_vectorized, nullptr, launch_vectorized},
     "several rows share x; many 16-byte loads in flight"},
    {"split_rows",
     {false, depth_split_rows, nullptr, launch_split_rows},
     "slices of few long rows keep every multiprocessor busy"},
    {"thread_per_column",
     {true, depth_thread_per_column, nullptr, launch_thread_per_column},
     "A^T x: neighbours read neighbours, but there are few threads"},
    {"split_columns",
     {true, depth_split_columns, nullptr, launch_split_columns},
     "A^T x: slices of rows, 16-byte loads of several rows in flight"},
};

}  // namespace gemv
