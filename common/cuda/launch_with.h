// Launches with attributes, such as a shape of clusters, which <<<>>> can't give. CUDA Runtime
// API, section "Execution Control", cudaLaunchKernelEx.
#pragma once

#include <array>
#include <cstddef>
#include <type_traits>

#include "common/gpu_runtime.h"

namespace gpu {

// A launch of `grid` blocks on the default stream. `attributes` must be there as long as what is
// returned, which points to them.
template <std::size_t kCount>
cudaLaunchConfig_t launch_config(std::array<cudaLaunchAttribute, kCount>& attributes, dim3 grid,
                                 dim3 block, size_t shared_bytes) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.attrs = attributes.data();
  config.numAttrs = kCount;
  return config;
}

// LAUNCH_ON with attributes. Errors: gpu::Error where the launch is refused.
template <std::size_t kCount, class... Parameters>
void launch_with(std::array<cudaLaunchAttribute, kCount> attributes, hipStream_t stream,
                 void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
                 const std::common_type_t<Parameters>&... arguments) {
  cudaLaunchConfig_t config = launch_config(attributes, grid, block, shared_bytes);
  config.stream = stream;
  HIP_CHECK(cudaLaunchKernelEx(&config, kernel, arguments...));
}

}  // namespace gpu
