// naive: one thread per element of C, no matrix unit.
#include "common/gpu.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage2_matrix/04_gemm_mixed/gemm_mixed.h"

namespace gemm_mixed {

// C = A·B    A (M,K)  B (K,N)  C (M,N), row-major, any sizes.
// Fixes : a CPU core computes the elements of C one after the other.
// Idea  : 16-bit inputs are widened to float and multiplied as in any matrix product.
// Thread: thread t of the grid owns the elements t, t + threads, ... of C.
// Costs : 2 K sizeof(T) bytes of loads per element of C; no matrix unit is used.
template <class T>
static __global__ void gemm_naive(float* c, const T* a, const T* b, size_t M, size_t N, size_t K) {
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < M * N; i += threads) {
    const size_t row = i / N, column = i % N;
    float sum = 0;
    for (size_t k = 0; k < K; ++k)
      sum += gpu::to_float(a[row * K + k]) * gpu::to_float(b[k * N + column]);
    c[i] = sum;
  }
}

template <class T>
void launch_naive(float* c, const T* a, const T* b, size_t M, size_t N, size_t K,
                  hipStream_t stream) {
  if (M == 0 || N == 0) return;
  LAUNCH_ON(stream, (gemm_naive<T>), vector_add::full_grid(M * N), vector_add::kBlock, 0, c, a, b,
            M, N, K);
}

template void launch_naive(float*, const gpu::half*, const gpu::half*, size_t, size_t, size_t,
                           hipStream_t);
template void launch_naive(float*, const gpu::bfloat16*, const gpu::bfloat16*, size_t, size_t,
                           size_t, hipStream_t);
template void launch_naive(float*, const float*, const float*, size_t, size_t, size_t, hipStream_t);

}  // namespace gemm_mixed
