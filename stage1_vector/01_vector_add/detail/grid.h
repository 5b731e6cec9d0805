// How large a grid is, and how an array of floats is read 16 bytes at a time. Host code: later
// steps launch their kernels with it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "common/gpu_runtime.h"

namespace vector_add {

inline constexpr unsigned kBlock = 256;                   // threads per block
inline constexpr unsigned kBlocksPerMultiprocessor = 32;  // grid of the grid-stride versions
// The most threads of one launch: AMD counts the threads of a grid in 32 bits.
inline constexpr size_t kMaxThreads = size_t{1} << 31;
// The most blocks of a grid that goes round over its items. A test lowers it (FewBlocks), so that
// small sizes go round, too.
inline size_t block_limit = kMaxThreads;

// The most blocks of `block` threads of a grid that goes round over its items.
inline size_t largest_grid(unsigned block) {
  return std::min({kMaxThreads / block, block_limit, size_t{gpu::most_blocks()}});
}

// Blocks of `block` threads for a grid-stride loop over `items`: at most `per_multiprocessor` for
// each multiprocessor of the device, and no more than there are items for. The CPU backend runs the
// threads of a block one after the other: there each thread takes `cpu_rounds` items only, so that
// the next thread finds the cache lines that it shares with this one.
inline unsigned grid_stride_blocks(size_t items, unsigned block = kBlock,
                                   unsigned per_multiprocessor = kBlocksPerMultiprocessor,
                                   unsigned cpu_rounds = 8) {
  const size_t needed = gpu::ceil_div(items, block), most = largest_grid(block);
#if defined(GPU_BACKEND_CPU)
  static_cast<void>(per_multiprocessor);
  // Where only few blocks are allowed, small problems have them all.
  const bool is_limited = most < kMaxThreads / block;
  const size_t wanted = is_limited ? needed : gpu::ceil_div(needed, cpu_rounds);
  return static_cast<unsigned>(std::min(wanted, most));
#else
  static_cast<void>(cpu_rounds);
  const size_t resident = size_t{gpu::multiprocessors()} * per_multiprocessor;
  return static_cast<unsigned>(std::min({needed, resident, most}));
#endif
}

// Blocks for a thread per item, as many as one launch may have: beyond that a thread takes several.
inline unsigned full_grid(size_t items) {
  return static_cast<unsigned>(std::min(gpu::ceil_div(items, kBlock), largest_grid(kBlock)));
}

// How arrays of n floats are read 16 bytes at a time. Here a starts 4 bytes behind a multiple of
// 16:
//
//   element  0 1 2 | 3 4 5 6 | 7 8 9 10 | ... | n-2 n-1
//            head  | float4  |  float4  | ... |  tail
//
// A float4 must lie at a multiple of 16 bytes. Arrays that are not aligned alike have no element
// where all of them could be read so: all their elements are then single ones.
struct Split {
  size_t head;     // single elements before the first float4
  size_t vectors;  // float4s
  size_t tail;     // single elements behind the last float4
};

// The split of arrays of n floats each.
inline Split split_vectors(size_t n, std::initializer_list<const float*> arrays) {
  const auto past_16 = [](const float* p) { return reinterpret_cast<std::uintptr_t>(p) % 16; };
  const size_t past = past_16(*arrays.begin());
  for (const float* array : arrays)
    if (past_16(array) != past) return {n, 0, 0};
  const size_t head = std::min(n, (16 - past) % 16 / sizeof(float));
  const size_t vectors = (n - head) / 4;
  return {head, vectors, n - head - 4 * vectors};
}

// Blocks for a thread per float4, or per single element where there are more of those.
inline unsigned full_grid(const Split& split) {
  return full_grid(std::max(split.vectors, split.head + split.tail));
}

}  // namespace vector_add
