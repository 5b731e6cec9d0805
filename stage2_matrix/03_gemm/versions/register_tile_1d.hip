// register_tile_1d: a thread owns a piece of a column of C, and uses each number of B 8 times.
#include "common/gpu.h"
#include "stage2_matrix/03_gemm/gemm.h"

namespace gemm {

// C = A B    A (M, K), B (K, N), C (M, N).
// Fixes : tiled loads two numbers from shared memory for each multiplication.
// Idea  : a thread computes kThreadM results of a column. It loads a number of B once and
//         multiplies it with a number of each of its kThreadM rows of A.
// Thread: t owns column t % kTileN and kThreadM neighbouring rows of the tile of C.
// Costs : 1 + 1 / kThreadM loads from shared memory per multiplication; kThreadM sums in registers.
template <int kTileM, int kTileN, int kTileK, int kThreadM>
static __global__ void __launch_bounds__(kTileM / kThreadM * kTileN)
    gemm_register_tile_1d(float* c, const float* a, const float* b, size_t M, size_t N, size_t K) {
  constexpr int kThreads = kTileM / kThreadM * kTileN;
  __shared__ float tile_a[kTileM][kTileK], tile_b[kTileK][kTileN];
  const size_t row0 = size_t{blockIdx.y} * kTileM, col0 = size_t{blockIdx.x} * kTileN;
  const int thread = static_cast<int>(threadIdx.x);
  const int row = thread / kTileN * kThreadM, col = thread % kTileN;
  float sums[kThreadM] = {};
  for (size_t k0 = 0; k0 < K; k0 += kTileK) {
    // exercise: stage both tiles, then add to each sum the products of its row and this thread's
    // column (about 14 lines)
    for (int e0 = 0; e0 < kTileM * kTileK; e0 += kThreads) {
      const int i = (e0 + thread) / kTileK, k = (e0 + thread) % kTileK;
      tile_a[i][k] = row0 + i < M && k0 + k < K ? a[(row0 + i) * K + (k0 + k)] : 0.0f;
    }
    for (int e0 = 0; e0 < kTileK * kTileN; e0 += kThreads) {
      const int k = (e0 + thread) / kTileN, j = (e0 + thread) % kTileN;
      tile_b[k][j] = k0 + k < K && col0 + j < N ? b[(k0 + k) * N + (col0 + j)] : 0.0f;
    }
    __syncthreads();  // both tiles are in shared memory
    for (int k = 0; k < kTileK; ++k) {
      const float b_k = tile_b[k][col];
      for (int i = 0; i < kThreadM; ++i) sums[i] += tile_a[row + i][k] * b_k;
    }
    __syncthreads();  // every thread has read both tiles: the next ones may replace them
    // end exercise
  }
  for (int i = 0; i < kThreadM; ++i)
    if (row0 + row + i < M && col0 + col < N) c[(row0 + row + i) * N + (col0 + col)] = sums[i];
}

void launch_register_tile_1d(float* c, const float* a, const float* b, size_t M, size_t N, size_t K,
                             hipStream_t stream) {
  check(contiguous(c, a, b, M, N, K));
  if (M == 0 || N == 0) return;
  constexpr int kTileM = 64, kTileN = 64, kTileK = 8, kThreadM = 8;
  constexpr int kThreads = kTileM / kThreadM * kTileN;
  LAUNCH_ON(stream, (gemm_register_tile_1d<kTileM, kTileN, kTileK, kThreadM>),
            tile_grid(N, kTileN, M, kTileM), kThreads, 0, c, a, b, M, N, K);
}

}  // namespace gemm
