// How many blocks walk over an array together. Host code.
#pragma once

#include <algorithm>
#include <cstddef>

#include "common/gpu_runtime.h"

namespace timing {

inline constexpr int kBlock = 256;  // threads per block of most probes

// The number of blocks for `tiles` tiles if each multiprocessor gets `per_multiprocessor` blocks.
// The CPU backend runs the threads of a block one after the other. There each block has one tile,
// so that its threads share the cache lines.
inline unsigned resident_blocks(size_t tiles, unsigned per_multiprocessor) {
#if defined(GPU_BACKEND_CPU)
  static_cast<void>(per_multiprocessor);
  return static_cast<unsigned>(tiles);
#else
  return static_cast<unsigned>(
      std::min(tiles, size_t{gpu::multiprocessors()} * per_multiprocessor));
#endif
}

}  // namespace timing
