// coalesced: neighbouring threads own neighbouring elements of a row.
#include "common/gpu.h"
#include "stage2_matrix/03_gemm/gemm.h"

namespace gemm {

// C = A B    A (M, K), B (K, N), C (M, N).
// Fixes : neighbouring threads of naive access A and C a whole row apart, so each address costs a
//         memory transaction of its own.
// Idea  : x runs along the rows of B and C. For each k a wave then reads neighbouring numbers of B,
//         and of A one number for all threads of a row: a few transactions serve the whole wave.
// Thread: (x, y) of the grid owns row y and column x of C.
// Costs : 2 loads per multiplication.
static __global__ void gemm_coalesced(float* c, const float* a, const float* b, size_t M, size_t N,
                                      size_t K) {
  // exercise: this thread's row and column, and the sum of their products (about 6 lines)
  const size_t row = size_t{blockIdx.y} * blockDim.y + threadIdx.y;
  const size_t col = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row >= M || col >= N) return;
  float sum = 0;
  for (size_t k = 0; k < K; ++k) sum += a[row * K + k] * b[k * N + col];
  c[row * N + col] = sum;
  // end exercise
}

void launch_coalesced(float* c, const float* a, const float* b, size_t M, size_t N, size_t K,
                      hipStream_t stream) {
  check(contiguous(c, a, b, M, N, K));
  if (M == 0 || N == 0) return;
  const dim3 block(16, 16), grid = tile_grid(N, block.x, M, block.y);
  LAUNCH_ON(stream, gemm_coalesced, grid, block, 0, c, a, b, M, N, K);
}

}  // namespace gemm
