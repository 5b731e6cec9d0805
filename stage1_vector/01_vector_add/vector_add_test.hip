// Two wrong kernels that vector_add_test.cpp must see fail.
#include "common/gpu.h"

namespace vector_add_test {

void launch_add_all_but_last(float* c, const float* a, const float* b, size_t n,
                             hipStream_t stream);
void launch_add_one_more(float* c, const float* a, const float* b, size_t n, hipStream_t stream);

// Forgets the last element.
static __global__ void add_all_but_last(float* c, const float* a, const float* b, size_t n) {
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i + 1 < n) c[i] = a[i] + b[i];
}

// Writes one element too many.
static __global__ void add_one_more(float* c, const float* a, const float* b, size_t n) {
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i <= n) c[i] = i < n ? a[i] + b[i] : 0.0f;
}

void launch_add_all_but_last(float* c, const float* a, const float* b, size_t n,
                             hipStream_t stream) {
  LAUNCH_ON(stream, add_all_but_last, 2, 256, 0, c, a, b, n);
}

void launch_add_one_more(float* c, const float* a, const float* b, size_t n, hipStream_t stream) {
  LAUNCH_ON(stream, add_one_more, 2, 256, 0, c, a, b, n);
}

}  // namespace vector_add_test
