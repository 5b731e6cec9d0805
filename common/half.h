// 16-bit floats under one name on every backend: gpu::half and gpu::bfloat16. Plain C++ and kernels
// both include this; the conversions run on the host and on the device.
//
// The vendors agree on what the two types are, and on little else: bfloat16 has three names, and
// HIP shows a host compiler only its bits. Kernels of the course store these types and compute in
// float, so two conversions are all they need:
//
//   float x = gpu::to_float(a[i]);
//   c[i] = gpu::from_float<T>(x);   // rounds to nearest, ties to even
//
// Both also take float, so that one kernel template serves all three types.
#pragma once

#include <cstdint>
#include <cstring>

#include "common/gpu_runtime.h"

#if defined(GPU_BACKEND_HIP)
#include <hip/hip_bfloat16.h>
#include <hip/hip_fp16.h>
#elif defined(GPU_BACKEND_CUDA)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#else
#include "common/cpu/half.h"
#endif

namespace gpu {

using half = __half;
#if defined(GPU_BACKEND_CUDA)
using bfloat16 = __nv_bfloat16;
#else
using bfloat16 = hip_bfloat16;
#endif

// Unit roundoffs: a rounded value is off by a factor of at most 1 ± this (in the normal range).
inline constexpr double kHalfRoundoff = 0.00048828125;   // 2^-11
inline constexpr double kBfloat16Roundoff = 0.00390625;  // 2^-8

__host__ __device__ inline float to_float(float value) { return value; }
__host__ __device__ inline float to_float(half value) { return __half2float(value); }
__host__ __device__ inline float to_float(bfloat16 value) {
#if defined(GPU_BACKEND_CUDA)
  return __bfloat162float(value);
#elif defined(GPU_BACKEND_HIP)
  const std::uint32_t bits = std::uint32_t{value.data} << 16;
  float result;
  memcpy(&result, &bits, sizeof result);
  return result;
#else
  return static_cast<float>(value);
#endif
}

template <class T>
__host__ __device__ inline T from_float(float value);

template <>
__host__ __device__ inline float from_float<float>(float value) {
  return value;
}
template <>
__host__ __device__ inline half from_float<half>(float value) {
  return __float2half(value);
}
template <>
__host__ __device__ inline bfloat16 from_float<bfloat16>(float value) {
#if defined(GPU_BACKEND_CUDA)
  return __float2bfloat16(value);
#elif defined(GPU_BACKEND_HIP)
  std::uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
    bits |= 0x00400000u;  // a quiet NaN, by a bit that is kept
  else
    bits += 0x7FFFu + (bits >> 16 & 1);  // a carry into the exponent is right, too
  bfloat16 result;
  result.data = static_cast<std::uint16_t>(bits >> 16);
  return result;
#else
  return bfloat16(value);
#endif
}

}  // namespace gpu
