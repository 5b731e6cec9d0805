// A launch that need not wait until the one before it in its stream has ended: its blocks start as
// the other's last ones leave multiprocessors free, and wait inside the kernel. What a launch
// costs, about 2 us of two short ones, passes meanwhile. It needs sm_90; elsewhere, and on AMD, it
// is a launch as any other. The CPU backend begins none early, but reports what would read too
// soon: a launch in which no thread waits, and a copy of the TMA in a block where none has waited
// yet.
//
// CUDA C++ Programming Guide, section "Programmatic Dependent Launch and Synchronization"; PTX ISA,
// section "griddepcontrol".
#pragma once

#include "common/gpu.h"

#if defined(GPU_BACKEND_CUDA)
#include <array>

#include "common/cuda/launch_with.h"
#endif

namespace gpu {

// A kernel that LAUNCH_EARLY launches calls this before it reads what the launch before it has
// written, or writes what that one reads.
__device__ inline void wait_for_launch_before() {
#if defined(GPU_BACKEND_CUDA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#elif defined(GPU_BACKEND_CPU)
  cpu::wait_for_launch_before();
#endif
}

// From here on the next launch may begin, if it is an early one: when every block of this one has
// called it or ended. A kernel that has all its blocks running at once calls it at its begin.
__device__ inline void let_next_launch_begin() {
#if defined(GPU_BACKEND_CUDA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// LAUNCH_EARLY takes what LAUNCH_ON takes. In a graph it is an edge of its own kind, which graphs
// have since CUDA 12.3.
#if defined(GPU_BACKEND_CUDA) && CUDART_VERSION >= 12030

#define LAUNCH_EARLY(stream, kernel, grid, block, shared_bytes, ...) \
  ::gpu::launch_early(stream, kernel, grid, block, shared_bytes, __VA_ARGS__)

inline cudaLaunchAttribute early_start() {
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  return early;
}

// Whether the device takes such launches and `kernel` waits in them. What was compiled for older
// devices, and is translated for this one as it is loaded, does not wait. A build compiles all
// kernels for the same devices, so one is asked for all.
inline bool waits_inside(const void* kernel) {
  if (device_attribute(hipDeviceAttributeComputeCapabilityMajor) < 9) return false;
  static const bool waits = [&] {
    cudaFuncAttributes attributes;
    HIP_CHECK(cudaFuncGetAttributes(&attributes, kernel));
    return attributes.ptxVersion >= 90;
  }();
  return waits;
}

template <class... Parameters>
void launch_early(hipStream_t stream, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                  size_t shared_bytes, const std::common_type_t<Parameters>&... arguments) {
  if (!waits_inside(reinterpret_cast<const void*>(kernel))) {
    LAUNCH_ON(stream, kernel, grid, block, shared_bytes, arguments...);
    return;
  }
  launch_with(std::array{early_start()}, stream, kernel, grid, block, shared_bytes, arguments...);
}

#elif defined(GPU_BACKEND_CPU)

#define LAUNCH_EARLY(stream, kernel, grid, block, shared_bytes, ...) \
  LAUNCH_ON_CPU(stream, cpu::Manner(1, true), kernel, grid, block, shared_bytes, __VA_ARGS__)

#else

#define LAUNCH_EARLY(stream, kernel, grid, block, shared_bytes, ...) \
  LAUNCH_ON(stream, kernel, grid, block, shared_bytes, __VA_ARGS__)

#endif

}  // namespace gpu
