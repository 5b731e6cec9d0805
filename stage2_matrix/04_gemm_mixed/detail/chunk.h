// Rows in chunks of 16 bytes: what one load, store or asynchronous copy moves. Plain C++ and device
// code.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/gpu_runtime.h"

namespace gemm_mixed {

// The elements of a chunk.
template <class T>
inline constexpr int kPerChunk = static_cast<int>(16 / sizeof(T));

// Two neighbours, stored together.
template <class T>
struct alignas(2 * sizeof(T)) TwoOf {
  T first, second;
};

// Whether every row begins at a multiple of 16 bytes, and the first one at a multiple of `first`.
inline bool chunks_are_aligned(const void* matrix, size_t row_bytes, size_t first = 16) {
  return reinterpret_cast<std::uintptr_t>(matrix) % first == 0 && row_bytes % 16 == 0;
}

// The smaller of what is `left` of a dimension and what a tile `holds` of it.
__host__ __device__ inline int clip(size_t left, int holds) {
  return left < static_cast<size_t>(holds) ? static_cast<int>(left) : holds;
}

}  // namespace gemm_mixed
