// Launches with an attribute, such as a shape of clusters, which <<<>>> can't give. CUDA Runtime
// API, section "Execution Control", cudaLaunchKernelEx.
#pragma once

#include <type_traits>

#include "common/gpu_runtime.h"

namespace gpu {

// A launch of `grid` blocks on the default stream. `attribute` must be there as long as what is
// returned, which points to it.
inline cudaLaunchConfig_t launch_config(cudaLaunchAttribute& attribute, dim3 grid, dim3 block,
                                        size_t shared_bytes) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return config;
}

// LAUNCH_ON with an attribute. Errors: gpu::Error where the launch is refused.
template <class... Parameters>
void launch_with(cudaLaunchAttribute attribute, hipStream_t stream, void (*kernel)(Parameters...),
                 dim3 grid, dim3 block, size_t shared_bytes,
                 const std::common_type_t<Parameters>&... arguments) {
  cudaLaunchConfig_t config = launch_config(attribute, grid, block, shared_bytes);
  config.stream = stream;
  HIP_CHECK(cudaLaunchKernelEx(&config, kernel, arguments...));
}

}  // namespace gpu
