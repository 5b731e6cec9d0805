// 2.1  transpose: out[col, row] = a[row, col], a (rows, cols) and out (cols, rows), row-major.
//
// A transpose computes nothing. It moves 8 bytes per element, one float read and one written, so
// its limit is a plain copy. But a row of one matrix is a column of the other: a wave that reads
// neighbours in `a` writes elements that lie a whole row of `out` apart. The versions turn small
// tiles in shared memory, then remove the conflicts there, then move more bytes per thread.
//
// Every launcher takes device arrays of rows * cols floats: any sizes (0 too), aligned to 4 bytes.
// out must not overlap a: there is no transposing in place. The work is queued on `stream`. Errors:
// gpu::Error where the launch is refused.
#pragma once

#include <cstddef>

#include "common/version.h"

namespace transpose {

// versions/naive.hip: one element per thread.
void launch_naive(float* out, const float* a, size_t rows, size_t cols,
                  hipStream_t stream = nullptr);

// versions/tiled.hip: a tile in shared memory, read along its rows and written along its columns.
void launch_tiled(float* out, const float* a, size_t rows, size_t cols,
                  hipStream_t stream = nullptr);

// versions/padded.hip: an unused float per row of the tile.
void launch_padded(float* out, const float* a, size_t rows, size_t cols,
                   hipStream_t stream = nullptr);

// versions/swizzled.hip: each row of the tile in another order.
void launch_swizzled(float* out, const float* a, size_t rows, size_t cols,
                     hipStream_t stream = nullptr);

// versions/several_elements.hip: larger tiles, 16 elements per thread.
void launch_several_elements(float* out, const float* a, size_t rows, size_t cols,
                             hipStream_t stream = nullptr);

// versions/whole_sectors.hip: rows of any length, and no sector of memory in parts.
void launch_whole_sectors(float* out, const float* a, size_t rows, size_t cols,
                          hipStream_t stream = nullptr);

// versions/vectorized.hip: 4 x 4 elements per thread, 16 bytes per load and store. Matrices that
// float4s do not fit go through whole_sectors.
void launch_vectorized(float* out, const float* a, size_t rows, size_t cols,
                       hipStream_t stream = nullptr);

using Launch = void (*)(float* out, const float* a, size_t rows, size_t cols, hipStream_t stream);

inline constexpr Version<Launch> kVersions[] = {
    {"naive", launch_naive, "reads along the rows, writes along the columns"},
    {"tiled", launch_tiled, "a tile in shared memory: rows on both sides"},
    {"padded", launch_padded, "a float per row keeps columns in different banks"},
    {"swizzled", launch_swizzled, "the same by permuting each row: as fast, and no waste"},
    {"several_elements", launch_several_elements, "larger tiles, and independent loads in flight"},
    {"whole_sectors", launch_whole_sectors, "each row of out is written from a sector's begin on"},
    {"vectorized", launch_vectorized, "4 x 4 elements per thread, 16 bytes per load and store"},
};

// Where a tile keeps what: the functions that the kernels use, for the test that counts bank
// conflicts. In which column of row `row` of swizzled's tile element (row, col) lies, and where in
// vectorized's tile float4 number `quad` of row `row`.
unsigned column_of_swizzled(unsigned row, unsigned col);
unsigned quad_of_vectorized(unsigned row, unsigned quad);

}  // namespace transpose
