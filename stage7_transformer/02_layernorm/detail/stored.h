// Values of matrices whose elements are stored as floats or with 16 bits.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "common/gpu.h"
#include "common/half.h"

namespace layernorm {

// Whether matrices are so small, less than 32 MiB of floats, that a cache may keep what a kernel
// writes until the next one reads it. An H200 has a cache of 50 MB.
__device__ inline bool fits_cache(size_t rows, size_t cols) {
  return rows * cols < size_t{1} << 23;
}

// *address, which is not needed again soon. The caches are told so only where that can help: an
// H200 reads large matrices more slowly with the hint.
template <class T>
__device__ inline T load_stored(const T* address, bool is_cached) {
  return is_cached ? gpu::load_once(address) : *address;
}

// Value number i of a matrix: a float, or the four of a float4. Four numbers of 16 bits are 8 bytes
// at a multiple of 8.
template <class Value, class T>
__device__ inline Value load_value(const T* matrix, size_t i, bool is_cached) {
  if constexpr (std::is_same_v<T, float>) {
    return load_stored(reinterpret_cast<const Value*>(matrix) + i, is_cached);
  } else if constexpr (std::is_same_v<Value, float>) {
    return gpu::to_float(matrix[i]);
  } else {
    const uint2 words = load_stored(reinterpret_cast<const uint2*>(matrix) + i, is_cached);
    T four[4];
    memcpy(four, &words, sizeof words);
    return make_float4(gpu::to_float(four[0]), gpu::to_float(four[1]), gpu::to_float(four[2]),
                       gpu::to_float(four[3]));
  }
}

// Stores it, rounded where the matrix has 16 bits.
template <class Value, class T>
__device__ inline void store_value(T* matrix, size_t i, const Value& value) {
  if constexpr (std::is_same_v<T, float>) {
    reinterpret_cast<Value*>(matrix)[i] = value;
  } else if constexpr (std::is_same_v<Value, float>) {
    matrix[i] = gpu::from_float<T>(value);
  } else {
    const T four[4] = {gpu::from_float<T>(value.x), gpu::from_float<T>(value.y),
                       gpu::from_float<T>(value.z), gpu::from_float<T>(value.w)};
    uint2 words;
    memcpy(&words, four, sizeof words);
    reinterpret_cast<uint2*>(matrix)[i] = words;
  }
}

// Whether four numbers of 16 bits may be loaded as one, from the start of the matrix on.
inline bool is_aligned_for_four(const void* matrix) {
  return reinterpret_cast<std::uintptr_t>(matrix) % sizeof(uint2) == 0;
}

}  // namespace layernorm
