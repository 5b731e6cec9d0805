// naive: one thread per element of C, no matrix unit.
#include <algorithm>

#include "common/gpu.h"
#include "stage2_matrix/04_gemm_mixed/gemm_mixed.h"

namespace gemm_mixed {

// C = A·B    A (M,K)  B (K,N)  C (M,N), row-major, any sizes.
// Fixes : a CPU core computes the elements of C one after the other.
// Idea  : 16-bit inputs are widened to float and multiplied as in any matrix product.
// Thread: thread t of the grid owns element first + t of C.
// Costs : 2 K sizeof(T) bytes of loads per element of C; no matrix unit is used.
template <class T>
static __global__ void gemm_naive(float* c, const T* a, const T* b, size_t M, size_t N, size_t K,
                                  size_t first) {
  const size_t i = first + size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= M * N) return;
  const size_t row = i / N, column = i % N;
  float sum = 0;
  for (size_t k = 0; k < K; ++k)
    sum += gpu::to_float(a[row * K + k]) * gpu::to_float(b[k * N + column]);
  c[i] = sum;
}

template <class T>
void launch_naive(float* c, const T* a, const T* b, size_t M, size_t N, size_t K,
                  hipStream_t stream) {
  constexpr size_t kThreads = 256;  // of a block
  // Of a launch 2^31, since AMD counts them in 32 bits. C rarely has more elements.
  const size_t most = std::min(size_t{1} << 31, gpu::most_blocks() * kThreads);
  for (size_t first = 0; first < M * N; first += most) {
    const size_t blocks = gpu::ceil_div(std::min(M * N - first, most), kThreads);
    LAUNCH_ON(stream, (gemm_naive<T>), blocks, kThreads, 0, c, a, b, M, N, K, first);
  }
}

template void launch_naive(float*, const gpu::half*, const gpu::half*, size_t, size_t, size_t,
                           hipStream_t);
template void launch_naive(float*, const gpu::bfloat16*, const gpu::bfloat16*, size_t, size_t,
                           size_t, hipStream_t);
template void launch_naive(float*, const float*, const float*, size_t, size_t, size_t, hipStream_t);

}  // namespace gemm_mixed
