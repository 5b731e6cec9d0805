// Neighbours that are moved together: up to 16 bytes, where both sides of a copy allow it. Host
// code.
#pragma once

#include <cstdint>

#include "common/gpu.h"
#include "stage8_framework/01_tensor/detail/collapse.h"

namespace tensor {

inline constexpr size_t kPackBytes = 16;
inline constexpr unsigned kPacks = 4;  // on their way per thread

inline bool is_multiple(const void* address, std::int64_t bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % static_cast<std::uintptr_t>(bytes) == 0;
}

// Whether every row of one side begins at a multiple of `n` elements and has a multiple of them.
inline bool is_packed(const Problem& p, const std::int64_t (&strides)[kMaxRank], std::int64_t n) {
  const unsigned last = p.rank - 1;
  bool result = strides[last] == 1 && p.extent[last] % n == 0;
  for (unsigned axis = 0; axis < last; ++axis) result = result && strides[axis] % n == 0;
  return result;
}

// How many elements of `bytes` bytes are moved at once: 1, 2, 4, ... p has an axis at least.
inline std::int64_t elements_of_pack(const void* out, const void* a, size_t bytes,
                                     const Problem& p) {
  const auto size = static_cast<std::int64_t>(bytes);
  std::int64_t n = static_cast<std::int64_t>(kPackBytes) / size;
  while (n > 1 && !(is_packed(p, p.out_stride, n) && is_packed(p, p.a_stride, n) &&
                    is_multiple(out, n * size) && is_multiple(a, n * size)))
    n /= 2;
  return n;
}

// The same copy of elements that are n times as large, n neighbours each.
inline Problem in_packs(Problem p, std::int64_t n) {
  for (unsigned axis = 0; axis + 1 < p.rank; ++axis) p.out_stride[axis] /= n, p.a_stride[axis] /= n;
  p.extent[p.rank - 1] /= n;
  return p;
}

// Calls launch(Pack{}) with a type of `bytes` bytes: 1, 2, 4, 8 or 16.
template <class LaunchPacks>
void with_pack(size_t bytes, LaunchPacks&& launch) {
  if (bytes == kPackBytes)
    launch(uint4{});
  else
    with_word(bytes, launch);
}

}  // namespace tensor
