// One HIP source, three backends: what kernels need. This file and common/gpu_runtime.h are the
// only ones that know where a kernel runs.
//
//   hipcc  AMD GPU     <hip/hip_runtime.h> as it is
//   nvcc   NVIDIA GPU  common/cuda/hip_to_cuda.h maps each hipName in use to its cudaName
//   g++    any CPU     common/cpu/hip_cpu.h implements the same names on host threads
//
// Everything that the vendors do differently and that a kernel can notice is named once, below.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "common/gpu_runtime.h"

#if defined(GPU_BACKEND_HIP)
// After hip_runtime.h, which these need.
#include <hip/hip_cooperative_groups.h>
#include <hip/hip_fp16.h>
#elif defined(GPU_BACKEND_CUDA)
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#else
#include "common/cpu/hip_cpu.h"
#endif

namespace gpu {

// ---- Grids ------------------------------------------------------------------------------------

// LAUNCH((kernel<float, 4>), grid, block, dynamic_shared_bytes, arguments...) launches on the
// default stream and checks that the launch was accepted; LAUNCH_ON takes the stream first.
// What goes wrong while the kernel runs is reported by the next call that waits for it.
#define LAUNCH(kernel, grid, block, shared_bytes, ...) \
  LAUNCH_ON(nullptr, kernel, grid, block, shared_bytes, __VA_ARGS__)

// LAUNCH_COOPERATIVE launches all blocks at the same time, so that they can wait for one another in
// grid_sync(); a grid too large for that is refused.

#if defined(GPU_BACKEND_CPU)
#define LAUNCH_ON(stream, kernel, grid, block, shared_bytes, ...) \
  LAUNCH_ON_CPU(stream, 1, kernel, grid, block, shared_bytes, __VA_ARGS__)
#define LAUNCH_COOPERATIVE(kernel, grid, block, shared_bytes, ...) \
  LAUNCH_ON_CPU(nullptr, cpu::kWholeGrid, kernel, grid, block, shared_bytes, __VA_ARGS__)
// The lambda lets the compiler inline the kernel into the loop over the threads of a block.
// `manner`: a cpu::Manner, or how many blocks, neighbours along x, run at the same time.
#define LAUNCH_ON_CPU(stream, manner, kernel, grid, block, shared_bytes, ...)       \
  do {                                                                              \
    cpu::launcher(#kernel, grid, block, shared_bytes, stream, manner,               \
                  [=](auto... arguments) { (kernel)(arguments...); })(__VA_ARGS__); \
    ::gpu::check(hipGetLastError(), "launch of " #kernel, __FILE__, __LINE__);      \
  } while (0)
#else
#define LAUNCH_ON(stream, kernel, grid, block, shared_bytes, ...)              \
  do {                                                                         \
    kernel<<<grid, block, shared_bytes, stream>>>(__VA_ARGS__);                \
    ::gpu::check(hipGetLastError(), "launch of " #kernel, __FILE__, __LINE__); \
  } while (0)
#define LAUNCH_COOPERATIVE(kernel, grid, block, shared_bytes, ...) \
  ::gpu::launch_cooperative(kernel, grid, block, shared_bytes, __VA_ARGS__)

template <class... Parameters>
void launch_cooperative(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
                        std::common_type_t<Parameters>... arguments) {
  void* addresses[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
  HIP_CHECK(hipLaunchCooperativeKernel(reinterpret_cast<const void*>(kernel), grid, block,
                                       addresses, static_cast<unsigned>(shared_bytes), nullptr));
}
#endif

// Every thread of a cooperative launch waits here for all the others.
__device__ inline void grid_sync() {
#if defined(GPU_BACKEND_CPU)
  cpu::grid_sync();
#else
  cooperative_groups::this_grid().sync();
#endif
}

// __launch_bounds__'s second argument means resident blocks per multiprocessor to nvcc and waves
// per execution unit to hipcc; the promise is passed on only where it means blocks.
#if defined(GPU_BACKEND_CUDA)
#define GPU_LAUNCH_BOUNDS(threads, blocks_per_multiprocessor) \
  __launch_bounds__(threads, blocks_per_multiprocessor)
#else
#define GPU_LAUNCH_BOUNDS(threads, blocks_per_multiprocessor) __launch_bounds__(threads)
#endif

// Before a loop over an array that must lie in registers: it has no address there, so every index
// must be a constant. Compilers unroll short loops by themselves, long ones only when told to.
// GPU_UNROLL_INNER is for the innermost of such loops, over neighbours in the array: the CPU
// backend keeps it a loop, because g++ makes one vector instruction of it only if it has not
// unrolled it.
#if defined(GPU_BACKEND_CPU)
#define GPU_UNROLL
#define GPU_UNROLL_INNER _Pragma("GCC unroll 1")
#else
#define GPU_UNROLL _Pragma("unroll")
#define GPU_UNROLL_INNER GPU_UNROLL
#endif

// ---- Shared memory ----------------------------------------------------------------------------

// Inside a kernel: DYNAMIC_SHARED(float, tile) declares `float* tile`, as long as the launch's
// dynamic_shared_bytes says, aligned to 16 bytes.
#if defined(GPU_BACKEND_CPU)
#define DYNAMIC_SHARED(type, name) type* name = static_cast<type*>(cpu::dynamic_shared())
#else
#define DYNAMIC_SHARED(type, name)                                    \
  extern __shared__ __align__(16) unsigned char gpu_dynamic_shared[]; \
  type* name = reinterpret_cast<type*>(gpu_dynamic_shared)
#endif

// Call once before launching `kernel` with more than 48 KiB of dynamic shared memory: NVIDIA wants
// to be asked; AMD has 64 KiB, asked or not.
template <class... Arguments>
inline void allow_shared_bytes(void (*kernel)(Arguments...), size_t bytes) {
  HIP_CHECK(hipFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                hipFuncAttributeMaxDynamicSharedMemorySize,
                                static_cast<int>(bytes)));
}

// ---- Caches -----------------------------------------------------------------------------------

// *address, which will not be needed again soon: NVIDIA's caches are told to give it up first, so
// that they keep what is being written for whoever reads it next.
template <class T>
__device__ inline T load_once(const T* address) {
#if defined(GPU_BACKEND_CUDA)
  return __ldcs(address);
#else
  return *address;
#endif
}

// ---- Bytes ------------------------------------------------------------------------------------

// The four bytes of a word as floats, the lowest first. AMD has an instruction for it. NVIDIA's
// conversions are slow, but the bytes of a float can be put together: with 0x4B000000 above it, a
// byte is 2^23 more than its value.
__device__ inline float4 unpack_bytes(unsigned word) {
#if defined(GPU_BACKEND_CUDA)
  constexpr unsigned kAbove = 0x4B000000u;
  constexpr float kTooMuch = 8388608.0f;
  return make_float4(__uint_as_float(__byte_perm(word, kAbove, 0x7540)) - kTooMuch,
                     __uint_as_float(__byte_perm(word, kAbove, 0x7541)) - kTooMuch,
                     __uint_as_float(__byte_perm(word, kAbove, 0x7542)) - kTooMuch,
                     __uint_as_float(__byte_perm(word, kAbove, 0x7543)) - kTooMuch);
#else
  return make_float4(static_cast<float>(word & 255u), static_cast<float>(word >> 8 & 255u),
                     static_cast<float>(word >> 16 & 255u), static_cast<float>(word >> 24));
#endif
}

// ---- Exponentials -----------------------------------------------------------------------------

// 2^x, on NVIDIA in one instruction, off by a factor of at most 1 ± 2^-22; 0, or nearly, where it
// is below float's normal range. (exp2f spends three instructions more to be right there as well.)
__device__ inline float exp2_flushed(float x) {
#if defined(GPU_BACKEND_CUDA)
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#else
  return exp2f(x);
#endif
}

// ---- Waves ------------------------------------------------------------------------------------
// A wave (NVIDIA: warp) is the group of threads that run in step: 64 on AMD's gfx9, 32 on RDNA and
// on NVIDIA, and either on the CPU backend. Kernels ask wave_size(); no number stands in them.

inline constexpr int kMaxWaveSize = 64;
using WaveMask = unsigned long long;  // one bit per lane, whatever the wave's size

__device__ inline int wave_size() {
#if defined(GPU_BACKEND_CUDA)
  return 32;  // a compile-time constant lets nvcc unroll the loops over it
#else
  return warpSize;
#endif
}

// This thread's number in its block, x fastest: what splits a block into waves.
__device__ inline int thread_rank() {
  return static_cast<int>(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
}
__device__ inline int lane_id() { return thread_rank() % wave_size(); }
__device__ inline int wave_id() { return thread_rank() / wave_size(); }

// The wave operations take every lane of the wave: call them where no lane has branched away.
// CUDA 13 has only the _sync forms, HIP before 7 only the plain ones.
#if defined(GPU_BACKEND_CUDA)
inline constexpr unsigned kAllLanes = ~0u;
template <class T>
__device__ inline T wave_shfl(T value, int lane) {
  return __shfl_sync(kAllLanes, value, lane);
}
template <class T>
__device__ inline T wave_shfl_up(T value, int distance) {
  return __shfl_up_sync(kAllLanes, value, distance);
}
template <class T>
__device__ inline T wave_shfl_down(T value, int distance) {
  return __shfl_down_sync(kAllLanes, value, distance);
}
template <class T>
__device__ inline T wave_shfl_xor(T value, int mask) {
  return __shfl_xor_sync(kAllLanes, value, mask);
}
__device__ inline WaveMask wave_ballot(bool predicate) {
  return __ballot_sync(kAllLanes, predicate);
}
__device__ inline bool wave_any(bool predicate) { return __any_sync(kAllLanes, predicate) != 0; }
__device__ inline bool wave_all(bool predicate) { return __all_sync(kAllLanes, predicate) != 0; }
__device__ inline void wave_sync() { __syncwarp(); }
#elif defined(GPU_BACKEND_HIP)
template <class T>
__device__ inline T wave_shfl(T value, int lane) {
  return __shfl(value, lane);
}
template <class T>
__device__ inline T wave_shfl_up(T value, int distance) {
  return __shfl_up(value, distance);
}
template <class T>
__device__ inline T wave_shfl_down(T value, int distance) {
  return __shfl_down(value, distance);
}
template <class T>
__device__ inline T wave_shfl_xor(T value, int mask) {
  return __shfl_xor(value, mask);
}
__device__ inline WaveMask wave_ballot(bool predicate) { return __ballot(predicate); }
__device__ inline bool wave_any(bool predicate) { return __any(predicate) != 0; }
__device__ inline bool wave_all(bool predicate) { return __all(predicate) != 0; }
// A wave runs in lock step here: only the compiler and the LDS queue must be held back.
__device__ inline void wave_sync() {
  __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
  __builtin_amdgcn_wave_barrier();
}
#else
using cpu::wave_all;
using cpu::wave_any;
using cpu::wave_ballot;
using cpu::wave_shfl;
using cpu::wave_shfl_down;
using cpu::wave_shfl_up;
using cpu::wave_shfl_xor;
using cpu::wave_sync;
#endif

}  // namespace gpu
