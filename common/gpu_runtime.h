// The host half of HIP on every backend: the runtime API without kernels, so that any C++ compiler
// takes it. CMake says which backend a file is built for; compiled by hand, the compiler does.
//
//   GPU_BACKEND_HIP   AMD      <hip/hip_runtime_api.h>
//   GPU_BACKEND_CUDA  NVIDIA   common/cuda/hip_to_cuda.h maps each hipName in use to its cudaName
//   GPU_BACKEND_CPU   any CPU  common/cpu/runtime_api.h implements the same names
//
// Files with kernels include common/gpu.h, which includes this one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#if !defined(GPU_BACKEND_HIP) && !defined(GPU_BACKEND_CUDA) && !defined(GPU_BACKEND_CPU)
#if defined(__HIPCC__) || defined(__HIP__)
#define GPU_BACKEND_HIP 1
#elif defined(__CUDACC__)
#define GPU_BACKEND_CUDA 1
#else
#define GPU_BACKEND_CPU 1
#endif
#endif

#if defined(GPU_BACKEND_HIP)
#if defined(__HIPCC__) || defined(__HIP__)
#include <hip/hip_runtime.h>
#else
#if !defined(__HIP_PLATFORM_AMD__)
#define __HIP_PLATFORM_AMD__ 1
#endif
#include <hip/hip_runtime_api.h>
#include <hip/hip_vector_types.h>
#endif
#elif defined(GPU_BACKEND_CUDA)
#include "common/cuda/hip_to_cuda.h"
#else
#include "common/cpu/runtime_api.h"
#endif

#include "common/check.h"

namespace gpu {

#if defined(GPU_BACKEND_HIP)
inline constexpr const char* kBackend = "hip";
#elif defined(GPU_BACKEND_CUDA)
inline constexpr const char* kBackend = "cuda";
#else
inline constexpr const char* kBackend = "cpu";
#endif

// How many blocks of `size` cover `n` things. Usable in kernels and on the host.
__host__ __device__ constexpr size_t ceil_div(size_t n, size_t size) {
  return n / size + (n % size != 0);
}

// The most blocks of a grid along y, and along z. Along x there may be 2^31 - 1.
inline constexpr size_t kMaxGridY = 65535;

// ---- The current device -----------------------------------------------------------------------

inline int device_attribute(hipDeviceAttribute_t attribute) {
  int device = 0, value = 0;
  HIP_CHECK(hipGetDevice(&device));
  HIP_CHECK(hipDeviceGetAttribute(&value, attribute, device));
  return value;
}

// How many multiprocessors (AMD: compute units) share the blocks of a grid.
inline unsigned multiprocessors() {
  return static_cast<unsigned>(device_attribute(hipDeviceAttributeMultiprocessorCount));
}

// The most blocks that a launcher gives a grid which may have fewer threads than there are items:
// these take several, or another launch takes the rest. Only the CPU backend has such a limit, by
// HIP_CPU_BLOCKS: there small problems then go round, too.
inline unsigned most_blocks() {
#if defined(GPU_BACKEND_HIP) || defined(GPU_BACKEND_CUDA)
  return std::numeric_limits<int>::max();
#else
  return cpu::most_blocks();
#endif
}

// The size of a wave, for the host; kernels ask wave_size().
inline unsigned device_wave_size() {
  return static_cast<unsigned>(device_attribute(hipDeviceAttributeWarpSize));
}

// The most shared memory, static and dynamic together, that a block of the current device can have.
inline size_t max_shared_bytes() {
#if defined(GPU_BACKEND_CUDA)
  return static_cast<size_t>(device_attribute(hipDeviceAttributeSharedMemPerBlockOptin));
#else
  return static_cast<size_t>(device_attribute(hipDeviceAttributeMaxSharedMemoryPerBlock));
#endif
}

}  // namespace gpu
