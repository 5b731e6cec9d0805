// How large the grids of a reduction are, and what its blocks leave behind in memory. Host code.
#pragma once

#include <algorithm>
#include <cstddef>

#include "stage1_vector/01_vector_add/detail/grid.h"

namespace dot {

using vector_add::kMaxThreads;
using vector_add::Split;
using vector_add::split_vectors;

inline constexpr unsigned kBlock = 256;                  // threads per block, a power of two
inline constexpr unsigned kBlocksPerMultiprocessor = 8;  // grid of the versions with scalar loads
inline constexpr unsigned kFixedBlocks = 512;            // largest grid of two_pass, everywhere
inline constexpr int kLoads = 4;  // float4s of x, and as many of y, in flight per thread
// How many blocks of kBlock threads fit a multiprocessor at a time: so few that each thread has the
// registers for its loads. Without this promise nvcc saves registers and waits after every second.
inline constexpr unsigned kResidentBlocks = 4;
inline constexpr unsigned kMaxBlocks = 16384;
inline constexpr unsigned kCpuRounds = 32;  // enough additions per thread to pay for its barriers

// What a workspace holds.
struct Workspace {
  unsigned* finished;  // (1) how many blocks have left their sum; 0 before and after each launch
  float* partials;     // (at most kMaxBlocks) one sum per block
};

inline Workspace workspace_at(void* memory) {
  return {static_cast<unsigned*>(memory), static_cast<float*>(memory) + 1};
}

// The grid of the versions that follow the device; one block where there is nothing to add.
inline unsigned dot_blocks(size_t items, unsigned per_multiprocessor = kBlocksPerMultiprocessor) {
  const unsigned blocks =
      vector_add::grid_stride_blocks(items, kBlock, per_multiprocessor, kCpuRounds);
  return std::clamp(blocks, 1u, kMaxBlocks);
}

// Blocks for float4s, or for single elements where there are more of them: as many as the device
// holds at a time, so that none has to wait for another to end.
inline unsigned dot_blocks(const Split& split) {
  return dot_blocks(std::max(split.vectors, split.head + split.tail), kResidentBlocks);
}

// The same grid on every device: one round of kLoads float4s per thread, up to kFixedBlocks blocks.
inline unsigned fixed_blocks(const Split& split) {
  const size_t items = std::max(split.vectors, split.head + split.tail);
  return static_cast<unsigned>(
      std::clamp(gpu::ceil_div(items, size_t{kBlock} * kLoads), size_t{1}, size_t{kFixedBlocks}));
}

}  // namespace dot
