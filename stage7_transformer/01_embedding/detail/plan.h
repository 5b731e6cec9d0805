// How blocks are shaped, how the positions are shared out, and how many numbers a first pass
// leaves. Host code: the workspace counts with these numbers, too.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "common/gpu_runtime.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage2_matrix/02_gemv/detail/plan.h"
#include "stage7_transformer/01_embedding/workspace.h"

namespace embedding {

inline constexpr unsigned kBlock =
    vector_add::kBlock;                    // threads per block, if nothing else is said
inline constexpr unsigned kMaxWidth = 64;  // threads beside each other that share a row's columns
inline constexpr unsigned kSortThreads = 1024;
inline constexpr unsigned kDigitBits = 8;  // of a token, that one round of the sort looks at
inline constexpr unsigned kSortLoads = 4;  // positions on their way per thread of the sort
inline constexpr unsigned kChunk = 16;     // sorted positions that a thread adds up
inline constexpr unsigned kLoads = 8;      // rows on their way per thread, of all other sums
// Tables in shared memory: columns of one, rows of all that a block has, positions on their way per
// thread, blocks per multiprocessor.
inline constexpr unsigned kTableWidth = 32;
inline constexpr size_t kTableRows = 384;
inline constexpr size_t kTableLoads = 16;
inline constexpr size_t kTableBlocks = 4;
inline constexpr size_t kFewTokens = 4096;  // up to which all threads of a block share a token

// A Value is a float4 where every row of all arrays begins at a multiple of 16 bytes, else a float.
template <class Value>
inline constexpr size_t kWidth = sizeof(Value) / sizeof(float);

using gemv::rows_are_aligned;

// Blocks as wide as a row of `values` Values, or as an equal part of it, so that hardly a thread is
// idle; beside each other as many rows, or groups of rows, as there is room for.
struct BlockPlan {
  dim3 blocks, threads;
};
inline BlockPlan plan(size_t rows, size_t values) {
  const size_t tiles = gpu::ceil_div(values, size_t{kMaxWidth});
  const size_t width = gpu::ceil_div(values, tiles), height = kBlock / width;
  return {dim3(static_cast<unsigned>(
                   std::min(gpu::ceil_div(rows, height), vector_add::largest_grid(kBlock))),
               static_cast<unsigned>(tiles)),
          dim3(static_cast<unsigned>(width), static_cast<unsigned>(height))};
}

// The first position of a token that no position has.
inline constexpr std::uint32_t kNowhere = ~0u;

// So many digits tell V + 1 tokens apart, one of them the bad ones'.
inline unsigned sort_rounds(size_t V) {
  unsigned rounds = 1;
  while (V >> kDigitBits * rounds > 0) ++rounds;
  return rounds;
}

// How few tokens must be for a table of kTableWidth columns to fit a block's shared memory, and how
// the positions are shared out then.
struct TablePlan {
  unsigned groups;  // of threads in a block, each with a table of its own
  size_t slice;     // positions of a block
  size_t slices;    // of them
  size_t most;      // slices of this or of fewer positions
};
inline bool table_fits(size_t V) { return V > 0 && V <= kTableRows; }
TablePlan plan_table(const Shape& shape);

// What the first pass leaves for the second: two rows for each chunk of sorted positions, or a
// table for each slice of the positions. And what is enough for both, and for fewer positions.
size_t partials_of(const Shape& shape, bool is_sorted);
size_t partials_of(const Shape& largest);

}  // namespace embedding
