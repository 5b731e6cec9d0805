// How the work of a product is shared out: threads per row or column, slices, sizes of grids. Host
// code; plan.cpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>

#include "common/gpu_runtime.h"
#include "stage2_matrix/01_transpose/detail/pieces.h"
#include "stage2_matrix/02_gemv/gemv.h"

namespace gemv {

inline constexpr unsigned kBlock = 256;  // threads per block, a power of two
inline constexpr unsigned kRows = 2;     // of A, that the vectorised versions read at a time
// float4s of each of these rows (transposed: of each column) that a thread has in flight; where the
// matrix does not allow float4s, twice as many floats.
inline constexpr unsigned kRowLoads = 4;
inline constexpr unsigned kColumnLoads = 8;
inline constexpr unsigned kResidentBlocks = 4;  // of kBlock threads that shall fit a multiprocessor
inline constexpr unsigned kMaxWidth = 128;      // threads side by side in split_columns
inline constexpr size_t kShortRow = 32;  // columns up to which a thread per row is the best choice

__host__ __device__ constexpr unsigned loads_in_flight(unsigned width, unsigned float4s) {
  return width == 4 ? float4s : 2 * float4s;
}

// What every general launcher begins with: the sums of alpha = 0 are empty. Throws
// std::invalid_argument where lda is too small.
Product checked(Product product, bool transposed);

// As many blocks of kBlock threads as are needed, or as one launch may have.
unsigned grid_size(size_t blocks);

using transpose::is_float4_aligned;

// True where every row of all the arrays begins at a multiple of 16 bytes.
inline bool rows_are_aligned(size_t cols, std::initializer_list<const float*> arrays) {
  return cols % 4 == 0 && std::all_of(arrays.begin(), arrays.end(), is_float4_aligned);
}

// ---- Rows -------------------------------------------------------------------------------------

struct RowPlan {
  unsigned width;   // elements per load: 4 where every row of A, and x, begin at a multiple of 16
  unsigned team;    // threads per row
  unsigned slices;  // of the columns
};

// split: cut the columns of few long rows into slices.
RowPlan plan_rows(const Product& product, bool split);

// versions/vectorized.hip: y of this product, or with several slices partials[s, i] = row i of A
// times x in slice s.
void launch_rows(const Product& product, float* partials, const RowPlan& plan, hipStream_t stream);

// versions/split_rows.hip: y[i] = alpha (sum over s of partials[s, i]) + beta y[i], for y and
// partials (slices, count). Does nothing for one slice.
void launch_add_slices(const Product& product, const float* partials, size_t count, unsigned slices,
                       hipStream_t stream);

// ---- Columns ----------------------------------------------------------------------------------

struct ColumnPlan {
  unsigned width;        // columns per load: 4, or 1
  unsigned block_width;  // threads side by side in a block, each with `width` columns
  unsigned slices;       // of the rows
};

ColumnPlan plan_columns(const Product& product, unsigned width);

// versions/split_columns.hip: y of this transposed product, all of whose columns are read as the
// plan says.
void launch_columns(const Product& product, const Workspace& workspace, const ColumnPlan& plan,
                    hipStream_t stream);

// How many columns, from the first on, can be read as float4s. What is left are at most three, or
// all.
size_t float4_columns(const Product& product);

// The columns [first, first + count) of A as a transposed product of their own.
Product some_columns(Product product, size_t first, size_t count);

}  // namespace gemv
