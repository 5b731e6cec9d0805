// register_tile_2d: a thread owns 8 x 8 results, and uses each number that it loads 8 times.
#include "common/gpu.h"
#include "stage2_matrix/03_gemm/gemm.h"

namespace gemm {

// C = A B    A (M, K), B (K, N), C (M, N).
// Fixes : register_tile_1d still loads more than one number from shared memory per multiplication.
// Idea  : a thread computes kThreadM x kThreadN results. For each k it loads kThreadM numbers of A
//         and kThreadN of B to registers and adds all their products: an outer product.
// Thread: t owns kThreadM neighbouring rows of the tile of C, and in them every kAcross-th column
//         from t % kAcross on. So a wave reads neighbouring columns of tile_b, which lie in
//         different banks.
// Costs : 1 / kThreadM + 1 / kThreadN loads from shared memory per multiplication; kThreadM
//         kThreadN sums in registers. The compiler is held to 2 resident blocks, 128 registers per
//         thread: with one block the multiprocessor would idle at each barrier.
template <int kTileM, int kTileN, int kTileK, int kThreadM, int kThreadN>
static __global__ void GPU_LAUNCH_BOUNDS(kTileM / kThreadM * (kTileN / kThreadN), 2)
    gemm_register_tile_2d(float* c, const float* a, const float* b, size_t M, size_t N, size_t K) {
  constexpr int kAcross = kTileN / kThreadN, kThreads = kTileM / kThreadM * kAcross;
  // tile_a is stored transposed, so that a thread's rows are neighbours. The padding puts what a
  // wave stores at once into different banks.
  constexpr int kPad = 4;
  __shared__ float tile_a[kTileK][kTileM + kPad], tile_b[kTileK][kTileN];
  const size_t row0 = size_t{blockIdx.y} * kTileM, col0 = size_t{blockIdx.x} * kTileN;
  const int thread = static_cast<int>(threadIdx.x);
  const int row = thread / kAcross * kThreadM, col = thread % kAcross;
  float sums[kThreadM][kThreadN] = {};
  for (size_t k0 = 0; k0 < K; k0 += kTileK) {
    for (int e0 = 0; e0 < kTileM * kTileK; e0 += kThreads) {
      const int i = (e0 + thread) / kTileK, k = (e0 + thread) % kTileK;
      tile_a[k][i] = row0 + i < M && k0 + k < K ? a[(row0 + i) * K + (k0 + k)] : 0.0f;
    }
    for (int e0 = 0; e0 < kTileK * kTileN; e0 += kThreads) {
      const int k = (e0 + thread) / kTileN, j = (e0 + thread) % kTileN;
      tile_b[k][j] = k0 + k < K && col0 + j < N ? b[(k0 + k) * N + (col0 + j)] : 0.0f;
    }
    __syncthreads();  // both tiles are in shared memory
    for (int k = 0; k < kTileK; ++k) {
      // exercise: load this thread's numbers of column k of A and of row k of B to registers, and
      // add their products to the sums (about 5 lines)
      float a_k[kThreadM], b_k[kThreadN];
      for (int i = 0; i < kThreadM; ++i) a_k[i] = tile_a[k][row + i];
      for (int j = 0; j < kThreadN; ++j) b_k[j] = tile_b[k][col + j * kAcross];
      for (int i = 0; i < kThreadM; ++i)
        for (int j = 0; j < kThreadN; ++j) sums[i][j] += a_k[i] * b_k[j];
      // end exercise
    }
    __syncthreads();  // every thread has read both tiles: the next ones may replace them
  }
  for (int i = 0; i < kThreadM; ++i)
    for (int j = 0; j < kThreadN; ++j) {
      const size_t r = row0 + row + i, s = col0 + col + j * kAcross;
      if (r < M && s < N) c[r * N + s] = sums[i][j];
    }
}

void launch_register_tile_2d(float* c, const float* a, const float* b, size_t M, size_t N, size_t K,
                             hipStream_t stream) {
  check(contiguous(c, a, b, M, N, K));
  if (M == 0 || N == 0) return;
  constexpr int kTileM = 128, kTileN = 128, kTileK = 8, kThreadM = 8, kThreadN = 8;
  constexpr int kThreads = kTileM / kThreadM * (kTileN / kThreadN);
  LAUNCH_ON(stream, (gemm_register_tile_2d<kTileM, kTileN, kTileK, kThreadM, kThreadN>),
            tile_grid(N, kTileN, M, kTileM), kThreads, 0, c, a, b, M, N, K);
}

}  // namespace gemm
