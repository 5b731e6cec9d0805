// wmma: one wave per tile of C, a matrix product in one instruction.
#include "common/gpu.h"
#include "stage2_matrix/04_gemm_mixed/detail/matrix_unit.h"
#include "stage2_matrix/04_gemm_mixed/detail/tiles.h"
#include "stage2_matrix/04_gemm_mixed/gemm_mixed.h"

namespace gemm_mixed {

constexpr int kWaveTiles = 4;  // of one block, next to each other
constexpr unsigned kWaveTilesBlock = 128;

// C = A·B    A (M,K)  B (K,N)  C (M,N), row-major, any sizes.
// Fixes : naive leaves the matrix units idle, and most of the device's arithmetic is in them.
// Idea  : a wave loads two tiles into its lanes' registers and multiplies them in one instruction.
// Thread: wave w of a block owns the tiles w, w + waves, ... of its kWaveTiles tiles of C, 16 x 16.
// Costs : each tile of A and B comes from global memory for every tile of C: 1/4 byte per
//         multiplication of 16-bit numbers.
template <class T>
static __global__ void gemm_wmma(float* c, const T* a, const T* b, size_t M, size_t N, size_t K,
                                 bool aligned_inputs, bool aligned_c) {
  using Unit = MatrixUnit<T>;
  constexpr int kTile = Unit::kTile, kDepth = Unit::kDepth;
  constexpr int kChunks = kTile * kDepth / kPerChunk<T>;
  __shared__ __align__(32) uint4 edge_a[kWaveTiles][kChunks];
  __shared__ __align__(32) uint4 edge_b[kWaveTiles][kChunks];
  __shared__ __align__(32) float edge_c[kWaveTiles][kTile * kTile];

  const size_t tiles_in_row = gpu::ceil_div(N, kTile);
  const int waves = static_cast<int>(blockDim.x) / gpu::wave_size();
  for (int t = gpu::wave_id(); t < kWaveTiles; t += waves) {
    const size_t tile = size_t{blockIdx.x} * kWaveTiles + static_cast<size_t>(t);
    const size_t row = tile / tiles_in_row * kTile, column = tile % tiles_in_row * kTile;
    if (row >= M) return;  // there is no barrier for the whole block
    typename Unit::C sums;
    Unit::clear(sums);
    // exercise: sum the products of the tiles along K, in fragments (about 9 lines)
    for (size_t k = 0; k < K; k += kDepth) {
      const View<T> tile_a = view_tile<kTile, kDepth>(a, M, K, row, k, aligned_inputs,
                                                      reinterpret_cast<T*>(edge_a[t]));
      const View<T> tile_b = view_tile<kDepth, kTile>(b, K, N, k, column, aligned_inputs,
                                                      reinterpret_cast<T*>(edge_b[t]));
      typename Unit::A fragment_a;
      typename Unit::B fragment_b;
      Unit::load(fragment_a, tile_a.data, tile_a.stride);
      Unit::load(fragment_b, tile_b.data, tile_b.stride);
      Unit::multiply_add(sums, fragment_a, fragment_b);
    }
    // end exercise
    store_tile<Unit>(c + row * N + column, N, clip(M - row, kTile), clip(N - column, kTile),
                     aligned_c, edge_c[t], sums);
  }
}

template <class T>
void launch_wmma(float* c, const T* a, const T* b, size_t M, size_t N, size_t K,
                 hipStream_t stream) {
  constexpr size_t kTile = MatrixUnit<T>::kTile, kFirst = 32;
  if (M == 0 || N == 0) return;
  const size_t tiles = gpu::ceil_div(M, kTile) * gpu::ceil_div(N, kTile);
  LAUNCH_ON(
      stream, (gemm_wmma<T>), static_cast<unsigned>(gpu::ceil_div(tiles, kWaveTiles)),
      kWaveTilesBlock, 0, c, a, b, M, N, K,
      rows_are_aligned(a, K * sizeof(T), kFirst) && rows_are_aligned(b, N * sizeof(T), kFirst),
      rows_are_aligned(c, N * sizeof(float), kFirst));
}

template void launch_wmma(float*, const gpu::half*, const gpu::half*, size_t, size_t, size_t,
                          hipStream_t);
template void launch_wmma(float*, const gpu::bfloat16*, const gpu::bfloat16*, size_t, size_t,
                          size_t, hipStream_t);
template void launch_wmma(float*, const float*, const float*, size_t, size_t, size_t, hipStream_t);

}  // namespace gemm_mixed
