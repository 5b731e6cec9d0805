// A float as the sum of two tf32. Plain C++ and device code.
#pragma once

#include <cstdint>
#include <cstring>

#include "common/gpu_runtime.h"

namespace gemm_mixed {

// clang-format off
//   value     1.fffffffffffffffffffffff   23 bits of fraction
//   large     1.ffffffffff                10 bits: the tf32 nearest to the value
//   small               +-.fffffffffffff  what is left, exact in float; its first 11 bits
// clang-format on
//
// Of what is left only the last of its 12 bits can be lost, so large + small is off by one bit of
// the float at most: 2^-23 |value|. Below 2^-113 a small part has fewer bits: it is a multiple of
// 2^-136.
//
// Of an infinity, and of what would round up to one, the large part is ±1 and the small part all
// the rest: a finite one keeps 11 bits. In large * small' + small * large' + large * large' an
// infinity then meets a large part of the other number, which is 0 only if that number is (or is
// below 2^-137), and two infinities give one. A NaN is 1 + NaN.
struct TwoParts {
  std::uint32_t large, small;  // the bits of two floats whose last 13 bits are 0
};

__host__ __device__ inline TwoParts split(float value) {
  constexpr std::uint32_t kDropped = (1u << 13) - 1, kHalf = 1u << 12;
  constexpr std::uint32_t kSign = 1u << 31, kOne = 0x3F800000u, kInfinity = 0x7F800000u;
  std::uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  TwoParts result;
  result.large = (bits + kHalf) & ~kDropped;
  if ((bits & ~kSign) >= kInfinity - kHalf) result.large = (bits & kSign) | kOne;
  float large;
  memcpy(&large, &result.large, sizeof large);
  const float small = value - large;
  memcpy(&result.small, &small, sizeof small);
  result.small &= ~kDropped;
  return result;
}

}  // namespace gemm_mixed
