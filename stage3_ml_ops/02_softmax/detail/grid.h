// How large the grids of the softmax are, what their threads hold, and which arrays are read 16
// bytes at a time. Host code: the error bounds count with these numbers, too.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "common/gpu_runtime.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage1_vector/03_dot/detail/grid.h"

namespace softmax {

inline constexpr unsigned kBlock = dot::kBlock;  // threads per block where nothing else is said
inline constexpr unsigned kMaxWaves = 32;        // in a block: of 1024 threads, by 32 or more

// Online: threads per row, float4s on their way in each of them.
inline constexpr unsigned kOnlineThreads = 512;
inline constexpr unsigned kOnlineBlocks = 2;  // resident per multiprocessor
inline constexpr unsigned kOnlineVectors = 4;

// Row in shared memory: threads per row, and what each of them holds in registers besides.
inline constexpr unsigned kSharedThreads = 256;
inline constexpr unsigned kSharedBlocks = 2;  // resident per multiprocessor
inline constexpr unsigned kSharedVectors = 22;

// Blocks for `rows`, of which each takes rows_per_block at a time; beyond what one launch may have
// they go round.
inline unsigned row_blocks(size_t rows, size_t rows_per_block, unsigned threads) {
  return static_cast<unsigned>(
      std::min(gpu::ceil_div(rows, rows_per_block), vector_add::largest_grid(threads)));
}

// Whether the rows of y are aligned like those of x.
inline bool aligned_alike(const float* y, const float* x) {
  return (reinterpret_cast<std::uintptr_t>(y) - reinterpret_cast<std::uintptr_t>(x)) %
             sizeof(float4) ==
         0;
}

}  // namespace softmax
