// The kernel of fp8_test.cpp.
#include "common/fp8.h"
#include "common/gpu.h"

namespace fp8_test {

void launch_convert(gpu::fp8* to, float* back, const float* from, size_t n);

static __global__ void convert(gpu::fp8* to, float* back, const float* from, size_t n) {
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads) {
    to[i] = gpu::from_float<gpu::fp8>(from[i]);
    back[i] = gpu::to_float(to[i]);
  }
}

void launch_convert(gpu::fp8* to, float* back, const float* from, size_t n) {
  LAUNCH(convert, 16, 256, 0, to, back, from, n);
}

}  // namespace fp8_test
