// tiled: a block stages tiles of A and B in shared memory, where all of its threads use them.
#include "common/gpu.h"
#include "stage2_matrix/03_gemm/gemm.h"

namespace gemm {

// C = A B    A (M, K), B (K, N), C (M, N).
// Fixes : coalesced reads a row of A once for each column of C, and a column of B once for each
//         row.
// Idea  : a block computes a kTile x kTile tile of C. It walks along K, copies a tile of A and one
//         of B to shared memory, and uses each number kTile times. Outside the matrices it puts
//         zeros, which add nothing.
// Thread: (x, y) owns row y and column x of the tile of C, and copies that element of both tiles.
// Costs : 2 loads from shared memory per multiplication, 2 / kTile from global memory; 2 barriers
//         per tile. kTile = 32 halves the global loads of 16, but needs blocks of 1024 threads.
template <int kTile>
static __global__ void __launch_bounds__(kTile* kTile)
    gemm_tiled(float* c, const float* a, const float* b, size_t M, size_t N, size_t K) {
  __shared__ float tile_a[kTile][kTile], tile_b[kTile][kTile];
  const unsigned x = threadIdx.x, y = threadIdx.y;
  const size_t row = size_t{blockIdx.y} * kTile + y, col = size_t{blockIdx.x} * kTile + x;
  float sum = 0;
  for (size_t k0 = 0; k0 < K; k0 += kTile) {
    // exercise: stage both tiles, then add the products of row y and column x (about 5 lines)
    tile_a[y][x] = row < M && k0 + x < K ? a[row * K + (k0 + x)] : 0.0f;
    tile_b[y][x] = k0 + y < K && col < N ? b[(k0 + y) * N + col] : 0.0f;
    __syncthreads();  // both tiles are in shared memory
    for (int k = 0; k < kTile; ++k) sum += tile_a[y][k] * tile_b[k][x];
    __syncthreads();  // every thread has read both tiles: the next ones may replace them
    // end exercise
  }
  if (row < M && col < N) c[row * N + col] = sum;
}

template <int kTile>
static void launch_tiled(float* c, const float* a, const float* b, size_t M, size_t N, size_t K,
                         hipStream_t stream) {
  check(contiguous(c, a, b, M, N, K));
  if (M == 0 || N == 0) return;
  const dim3 block(kTile, kTile), grid = tile_grid(N, kTile, M, kTile);
  LAUNCH_ON(stream, gemm_tiled<kTile>, grid, block, 0, c, a, b, M, N, K);
}

void launch_tiled_16(float* c, const float* a, const float* b, size_t M, size_t N, size_t K,
                     hipStream_t stream) {
  launch_tiled<16>(c, a, b, M, N, K, stream);
}

void launch_tiled_32(float* c, const float* a, const float* b, size_t M, size_t N, size_t K,
                     hipStream_t stream) {
  launch_tiled<32>(c, a, b, M, N, K, stream);
}

}  // namespace gemm
