// wmma_tiled: tiles in shared memory, several fragments per wave.
#include "common/gpu.h"
#include "stage2_matrix/04_gemm_mixed/detail/matrix_unit.h"
#include "stage2_matrix/04_gemm_mixed/detail/tiles.h"
#include "stage2_matrix/04_gemm_mixed/gemm_mixed.h"

namespace gemm_mixed {

// What a block computes of C, and what a wave of it.
constexpr int kBlockRows = 128, kBlockColumns = 128;
constexpr int kWaveRows = 64, kWaveColumns = 32;
constexpr int kWaves = kBlockRows / kWaveRows * (kBlockColumns / kWaveColumns);
constexpr int kUnitsDeep = 2;  // multiplications along K per tile in shared memory

// C = A·B    A (M,K)  B (K,N)  C (M,N), row-major, any sizes.
// Fixes : wmma fetches every tile from global memory and uses it for one multiplication.
// Idea  : the block stages a tile of A and one of B; a wave holds kWaveRows x kWaveColumns sums, so
//         that each fragment it loads is multiplied with several others.
// Thread: wave w owns kWaveRows x kWaveColumns of the block's kBlockRows x kBlockColumns of C.
// Costs : 2 barriers per tile, during which the units wait; rows are 16 bytes longer than needed in
//         shared memory, so that eight of them begin in different banks.
template <class T>
static __global__ void GPU_LAUNCH_BOUNDS(kWaves* gpu::kMaxWaveSize, 1)
    gemm_wmma_tiled(float* c, const T* a, const T* b, size_t M, size_t N, size_t K,
                    bool aligned_inputs, bool aligned_c) {
  using Unit = MatrixUnit<T>;
  constexpr int kTile = Unit::kTile, kDepth = kUnitsDeep * Unit::kDepth;
  constexpr int kStrideA = kDepth + kPerChunk<T>, kStrideB = kBlockColumns + kPerChunk<T>;
  constexpr int kUnitRows = kWaveRows / kTile, kUnitColumns = kWaveColumns / kTile;
  __shared__ __align__(32) uint4 chunks_a[kBlockRows * kStrideA / kPerChunk<T>];
  __shared__ __align__(32) uint4 chunks_b[kDepth * kStrideB / kPerChunk<T>];
  __shared__ __align__(32) float edge_c[kWaves][kTile * kTile];

  T* shared_a = reinterpret_cast<T*>(chunks_a);
  T* shared_b = reinterpret_cast<T*>(chunks_b);

  const size_t blocks_in_row = gpu::ceil_div(N, kBlockColumns);
  const size_t row = blockIdx.x / blocks_in_row * kBlockRows;
  const size_t column = blockIdx.x % blocks_in_row * kBlockColumns;
  constexpr int kWavesInRow = kBlockColumns / kWaveColumns;
  const int wave = gpu::wave_id();
  const int wave_row = wave / kWavesInRow * kWaveRows;
  const int wave_column = wave % kWavesInRow * kWaveColumns;

  typename Unit::C sums[kUnitRows][kUnitColumns];
  for (auto& row_of_sums : sums)
    for (auto& sum : row_of_sums) Unit::clear(sum);

  for (size_t k = 0; k < K; k += kDepth) {
    stage_tile<kBlockRows, kDepth, kStrideA>(shared_a, a, M, K, row, k, aligned_inputs);
    stage_tile<kDepth, kBlockColumns, kStrideB>(shared_b, b, K, N, k, column, aligned_inputs);
    __syncthreads();  // both tiles are complete
    // exercise: load the wave's fragments, multiply each of A with each of B (about 15 lines)
    for (int unit = 0; unit < kUnitsDeep; ++unit) {
      const int depth = unit * Unit::kDepth;
      typename Unit::A fragments_a[kUnitRows];
      typename Unit::B fragments_b[kUnitColumns];
      GPU_UNROLL
      for (int i = 0; i < kUnitRows; ++i)
        Unit::load(fragments_a[i], shared_a + (wave_row + i * kTile) * kStrideA + depth, kStrideA);
      GPU_UNROLL
      for (int j = 0; j < kUnitColumns; ++j)
        Unit::load(fragments_b[j], shared_b + depth * kStrideB + wave_column + j * kTile, kStrideB);
      GPU_UNROLL
      for (int i = 0; i < kUnitRows; ++i) {
        GPU_UNROLL
        for (int j = 0; j < kUnitColumns; ++j)
          Unit::multiply_add(sums[i][j], fragments_a[i], fragments_b[j]);
      }
    }
    // end exercise
    __syncthreads();  // no wave needs the tiles any more: the next ones may overwrite them
  }

  GPU_UNROLL
  for (int i = 0; i < kUnitRows; ++i) {
    GPU_UNROLL
    for (int j = 0; j < kUnitColumns; ++j) {
      const size_t tile_row = row + static_cast<size_t>(wave_row + i * kTile);
      const size_t tile_column = column + static_cast<size_t>(wave_column + j * kTile);
      if (tile_row >= M || tile_column >= N) continue;  // the same for all lanes of the wave
      store_tile<Unit>(c + tile_row * N + tile_column, N, clip(M - tile_row, kTile),
                       clip(N - tile_column, kTile), aligned_c, edge_c[wave], sums[i][j]);
    }
  }
}

template <class T>
void launch_wmma_tiled(float* c, const T* a, const T* b, size_t M, size_t N, size_t K,
                       hipStream_t stream) {
  if (M == 0 || N == 0) return;
  const size_t blocks = gpu::ceil_div(M, kBlockRows) * gpu::ceil_div(N, kBlockColumns);
  LAUNCH_ON(stream, (gemm_wmma_tiled<T>), static_cast<unsigned>(blocks),
            kWaves * gpu::device_wave_size(), 0, c, a, b, M, N, K,
            rows_are_aligned(a, K * sizeof(T)) && rows_are_aligned(b, N * sizeof(T)),
            rows_are_aligned(c, N * sizeof(float), 32));
}

template void launch_wmma_tiled(float*, const gpu::half*, const gpu::half*, size_t, size_t, size_t,
                                hipStream_t);
template void launch_wmma_tiled(float*, const gpu::bfloat16*, const gpu::bfloat16*, size_t, size_t,
                                size_t, hipStream_t);
template void launch_wmma_tiled(float*, const float*, const float*, size_t, size_t, size_t,
                                hipStream_t);

}  // namespace gemm_mixed
