// fp8: clusters for 8-bit numbers, with K along the rows of both matrices.
#include <stdexcept>

#include "common/gpu.h"
#include "stage2_matrix/04_gemm_mixed/detail/ring_fp8_sm90.h"
#include "stage2_matrix/04_gemm_mixed/detail/tensor_map_sm90.h"
#include "stage2_matrix/04_gemm_mixed/detail/tile_sm80.h"
#include "stage2_matrix/04_gemm_mixed/fp8.h"

namespace gemm_mixed {

#if !defined(GPU_BACKEND_HIP)

// C = A·B^T    A (M,K)  B (N,K) e4m3  C (M,N), row-major, as fp8_takes() wants them; K in `steps`
// stages.
// Fixes : clusters is as fast as the units multiply 16-bit numbers. They multiply twice as many of
//         8 bits in the same time.
// Idea  : a stage has as many bytes as in clusters and is 128 deep. Copies, products and waiting
//         keep their pace. B lies like A, so its tile is described like A's.
// Thread: as in clusters.
// Costs : accuracy. Three bits of fraction, and sums of 14 bits: this is cuBLASLt's "fast
//         accumulation", which is off unless one asks for it. Ordinary additions could collect the
//         sums of each 128 k, as in three_products and in DeepSeek-V3. That takes 128 registers
//         more, which a thread has not, or a tile half as wide, which reads 4/3 as much.
static __global__ void GPU_LAUNCH_BOUNDS(SpecializedTile::kThreads, 1)
    gemm_fp8(const __grid_constant__ CUtensorMap map_c, const __grid_constant__ CUtensorMap map_a,
             const __grid_constant__ CUtensorMap map_b, int steps, unsigned pair_rows,
             unsigned tile_columns) {
  if constexpr (kHaveWgmma) {
    DYNAMIC_SHARED(unsigned char, dynamic);
    auto& shared = aligned_shared<Ring<Fp8Stage>>(dynamic);
    multiply_pairs(shared, pair_rows * tile_columns, steps,
                   Fp8Pair{map_c, map_a, map_b, pair_rows, tile_columns, block_of_cluster()});
  }
}

void launch_fp8(float* c, const gpu::fp8* a, const gpu::fp8* b, size_t M, size_t N, size_t K,
                hipStream_t stream) {
  if (!fp8_takes(c, a, b, M, N, K)) return launch_fp8_naive(c, a, b, M, N, K, stream);
  using Tile = Fp8Tile;
  const auto pair_rows = static_cast<unsigned>(gpu::ceil_div(M, Tile::kRows * kClusterBlocks));
  const auto tile_columns = static_cast<unsigned>(gpu::ceil_div(N, Tile::kColumns));
  constexpr size_t kBytes = kBytesOfRing<Fp8Stage>;
  gpu::allow_shared_bytes(gemm_fp8, kBytes);
  LAUNCH_IN_CLUSTERS(stream, gemm_fp8, kClusterBlocks,
                     clusters_of(pair_rows * tile_columns) * kClusterBlocks,
                     unsigned{Tile::kThreads}, kBytes, tensor_map(c, M, N, kStoreRows),
                     tensor_map(a, M, K, Tile::kRows), tensor_map(b, N, K, Tile::kHalf),
                     static_cast<int>(gpu::ceil_div(K, Tile::kDepth)), pair_rows, tile_columns);
}

#else

void launch_fp8(float*, const gpu::fp8*, const gpu::fp8*, size_t, size_t, size_t, hipStream_t) {
  throw std::runtime_error("fp8 needs sm_90");
}

#endif

}  // namespace gemm_mixed
