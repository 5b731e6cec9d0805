// 16-bit floats under one name on every backend: gpu::half and gpu::bfloat16.
//
// The vendors agree on what the two types are, and on little else: bfloat16 has three names, and
// old HIP has next to no arithmetic for it. Kernels of the course store these types and compute in
// float, so two conversions are all they need:
//
//   float x = gpu::to_float(a[i]);
//   c[i] = gpu::from_float<T>(x);   // rounds to nearest, ties to even
//
// Both also take float, so that one kernel template serves all three types.
#pragma once

#include "common/gpu.h"

#if defined(GPU_BACKEND_HIP)
#include <hip/hip_bfloat16.h>
#elif defined(GPU_BACKEND_CPU)
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
#else
  return bfloat16(value);
#endif
}

}  // namespace gpu
