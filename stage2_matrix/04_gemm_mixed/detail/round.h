// Rounding a float to the types of 2.4. Plain C++ and device code.
#pragma once

#include <cstdint>
#include <cstring>

#include "common/half.h"

namespace gemm_mixed {

// The T nearest to `value`. Of two equally near ones it is the one whose last bit is 0.
template <class T>
__host__ __device__ inline T round_to(float value) {
  return gpu::from_float<T>(value);
}

// To tf32: a float whose last 13 bits are 0.
template <>
__host__ __device__ inline float round_to<float>(float value) {
  std::uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  constexpr std::uint32_t kDropped = (1u << 13) - 1, kInfinity = 0x7F800000u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > kInfinity)
    bits |= 0x00400000u;  // a quiet NaN, by a bit that is kept
  else if (magnitude < kInfinity)
    bits += kDropped / 2 + (bits >> 13 & 1);  // a carry into the exponent is right, too
  bits &= ~kDropped;
  memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace gemm_mixed
