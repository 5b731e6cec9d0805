// fp8_naive: one thread per element of C, no matrix unit.
#include <algorithm>

#include "common/gpu.h"
#include "stage2_matrix/04_gemm_mixed/fp8.h"

namespace gemm_mixed {

// C = A·B^T    A (M,K)  B (N,K) e4m3  C (M,N), row-major, any sizes.
// Fixes : a CPU core computes the elements of C one after the other.
// Idea  : naive, with B turned over: each element is a row of A times a row of B.
// Thread: thread t of the grid owns element first + t of C.
// Costs : 2 K bytes of loads per element of C; neighbouring threads read different rows of B.
static __global__ void gemm_fp8_naive(float* c, const gpu::fp8* a, const gpu::fp8* b, size_t M,
                                      size_t N, size_t K, size_t first) {
  const size_t i = first + size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= M * N) return;
  const size_t row = i / N, column = i % N;
  float sum = 0;
  for (size_t k = 0; k < K; ++k)
    sum += gpu::to_float(a[row * K + k]) * gpu::to_float(b[column * K + k]);
  c[i] = sum;
}

void launch_fp8_naive(float* c, const gpu::fp8* a, const gpu::fp8* b, size_t M, size_t N, size_t K,
                      hipStream_t stream) {
  constexpr size_t kThreads = 256;                                               // of a block
  const size_t most = std::min(size_t{1} << 31, gpu::most_blocks() * kThreads);  // as in naive
  for (size_t first = 0; first < M * N; first += most) {
    const size_t blocks = gpu::ceil_div(std::min(M * N - first, most), kThreads);
    LAUNCH_ON(stream, gemm_fp8_naive, blocks, kThreads, 0, c, a, b, M, N, K, first);
  }
}

}  // namespace gemm_mixed
