// naive: one thread per element of C.
#include "common/gpu.h"
#include "stage2_matrix/03_gemm/gemm.h"

namespace gemm {

// C = A B    A (M, K), B (K, N), C (M, N).
// Fixes : a CPU core computes the elements of C one after the other.
// Idea  : each element is a dot product of a row of A and a column of B; one thread for each.
// Thread: (x, y) of the grid owns row x and column y of C.
// Costs : 2 loads per multiplication; neighbouring threads access A and C a whole row apart.
static __global__ void gemm_naive(float* c, const float* a, const float* b, size_t M, size_t N,
                                  size_t K) {
  // exercise: this thread's row and column, and the sum of their products (about 6 lines)
  const size_t row = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t col = size_t{blockIdx.y} * blockDim.y + threadIdx.y;
  if (row >= M || col >= N) return;
  float sum = 0;
  for (size_t k = 0; k < K; ++k) sum += a[row * K + k] * b[k * N + col];
  c[row * N + col] = sum;
  // end exercise
}

void launch_naive(float* c, const float* a, const float* b, size_t M, size_t N, size_t K,
                  hipStream_t stream) {
  check(contiguous(c, a, b, M, N, K));
  if (M == 0 || N == 0) return;
  const dim3 block(16, 16), grid = tile_grid(M, block.x, N, block.y);
  LAUNCH_ON(stream, gemm_naive, grid, block, 0, c, a, b, M, N, K);
}

}  // namespace gemm
