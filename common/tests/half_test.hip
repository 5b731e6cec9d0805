// The kernel of half_test.cpp.
#include "common/gpu.h"
#include "common/half.h"

namespace half_test {

template <class T>
void launch_convert(T* to, float* back, const float* from, size_t n);

template <class T>
static __global__ void convert(T* to, float* back, const float* from, size_t n) {
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads) {
    to[i] = gpu::from_float<T>(from[i]);
    back[i] = gpu::to_float(to[i]);
  }
}

template <class T>
void launch_convert(T* to, float* back, const float* from, size_t n) {
  LAUNCH(convert<T>, 16, 256, 0, to, back, from, n);
}

template void launch_convert(gpu::half*, float*, const float*, size_t);
template void launch_convert(gpu::bfloat16*, float*, const float*, size_t);

}  // namespace half_test
