// 8-bit floats under one name on every backend: gpu::fp8, which is OCP's e4m3 ("e4m3fn"). Plain C++
// and kernels both include this; the conversions run on the host and on the device.
//
//   bits         7      6 .. 3     2 .. 0       largest 448, smallest normal 2^-6, smallest 2^-9
//                sign   exponent   fraction     bias 7; no infinities; NaN is S.1111.111
//
// A program scales its numbers to this range first. What still exceeds it becomes ±448, infinities
// too: from_float saturates, as cvt.rn.satfinite.e4m3x2.f32 does. PTX has these conversions from
// sm_89 on; elsewhere they are a few integer operations. (OCP 8-bit Floating Point Specification.)
#pragma once

#include <cstdint>
#include <cstring>

#include "common/half.h"

#if defined(GPU_BACKEND_CUDA)
#include "common/cuda/fp8_sm89.h"
#endif

namespace gpu {

struct fp8 {
  std::uint8_t bits;
};

// Unit roundoff: a rounded value is off by a factor of at most 1 ± this (in the normal range).
inline constexpr double kFp8Roundoff = 0.0625;  // 2^-4
inline constexpr float kFp8Largest = 448;

namespace detail {

// Exponents of a float are larger by 120, and it has 20 more bits of fraction.
__host__ __device__ inline float fp8_to_float_portable(fp8 value) {
  constexpr std::uint32_t kNan = 0x7F;
  const std::uint32_t magnitude = value.bits & 0x7Fu, sign = std::uint32_t{value.bits} >> 7 << 31;
  std::uint32_t bits;
  if (magnitude == kNan) {
    bits = 0x7FC00000u;
  } else if (magnitude < 8) {  // no leading 1: a multiple of 2^-9
    const float small = static_cast<float>(magnitude) * 0.001953125f;
    memcpy(&bits, &small, sizeof bits);
  } else {
    bits = (magnitude << 20) + (120u << 23);
  }
  bits |= sign;
  float result;
  memcpy(&result, &bits, sizeof result);
  return result;
}

__host__ __device__ inline fp8 float_to_fp8_portable(float value) {
  constexpr std::uint32_t kNan = 0x7F, kLargest = 0x7E;
  constexpr std::uint32_t kInfinity = 0x7F800000u, kSmallestNormal = 121u << 23;
  std::uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  const std::uint32_t sign = bits >> 31 << 7;
  bits &= 0x7FFFFFFFu;
  if (bits > kInfinity) return {static_cast<std::uint8_t>(kNan)};
  std::uint32_t rounded;
  if (bits < kSmallestNormal) {
    // Floats from 2^14 on are 2^-9 apart: this addition rounds.
    float magnitude;
    memcpy(&magnitude, &bits, sizeof magnitude);
    magnitude += 16384;
    memcpy(&rounded, &magnitude, sizeof rounded);
    rounded -= (127u + 14) << 23;
  } else {
    bits += (1u << 19) - 1 + (bits >> 20 & 1);  // a carry into the exponent is right, too
    rounded = (bits >> 20) - (120u << 3);
  }
  if (rounded > kLargest) rounded = kLargest;
  return {static_cast<std::uint8_t>(sign | rounded)};
}

}  // namespace detail

__host__ __device__ inline float to_float(fp8 value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  return detail::e4m3_to_float(value.bits);
#else
  return detail::fp8_to_float_portable(value);
#endif
}
template <>
__host__ __device__ inline fp8 from_float<fp8>(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  return {detail::float_to_e4m3(value)};
#else
  return detail::float_to_fp8_portable(value);
#endif
}

}  // namespace gpu
