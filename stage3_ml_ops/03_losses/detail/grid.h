// How large this step's grids are. A grid follows from the number of elements alone, and with it
// the order of all additions. Host code, but for the last function.
#pragma once

#include <algorithm>
#include <cstddef>

#include "common/gpu_runtime.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage1_vector/03_dot/detail/grid.h"

namespace losses {

using dot::kBlock;  // threads per block
using vector_add::Split;
using vector_add::split_vectors;

inline constexpr unsigned kMaxBlocks = 16384;  // largest grid of a squared error or a mean
inline constexpr size_t kVectors = 4;          // float4s of p and as many of t in flight per thread
inline constexpr size_t kElements = 4 * kVectors;  // per thread where they come one at a time
inline constexpr int kLoads = 8;                   // values in flight per thread of a mean
// The values that one block adds to a mean; more of them are added by several blocks first.
inline constexpr size_t kOneBlock = 8192;

// Blocks for so many threads of a squared error.
inline unsigned squared_error_blocks(size_t threads) {
  const size_t most = std::min(size_t{kMaxBlocks}, vector_add::largest_grid(kBlock));
  return static_cast<unsigned>(std::clamp(gpu::ceil_div(threads, kBlock), size_t{1}, most));
}

// For n elements that come one at a time.
inline unsigned scalar_blocks(size_t n) {
  return squared_error_blocks(gpu::ceil_div(n, kElements));
}

// For tiles of kBlock * kVectors float4s, or for single elements where there are more of them.
inline unsigned tile_blocks(const Split& split) {
  return squared_error_blocks(
      std::max(gpu::ceil_div(split.vectors, kVectors), split.head + split.tail));
}

// A block for each row of a cross-entropy, as many as one launch may have: beyond that a block
// takes several.
inline unsigned row_blocks(size_t rows) {
  return static_cast<unsigned>(std::min(rows, vector_add::largest_grid(kBlock)));
}

// For the mean of n values: 1, or those that leave a sum each.
inline unsigned mean_blocks(size_t n) {
  const size_t blocks = gpu::ceil_div(n, size_t{kBlock} * kLoads);
  return n <= kOneBlock ? 1 : static_cast<unsigned>(std::min(blocks, size_t{kMaxBlocks}));
}

// What the squared error's gradient is p - t times of.
__host__ __device__ inline float squared_error_scale(size_t n) {
  return 2.0f / static_cast<float>(n);
}

}  // namespace losses
