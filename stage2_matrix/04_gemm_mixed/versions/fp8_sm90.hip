// fp8: clusters for 8-bit numbers, with K along the rows of both matrices.
#include <algorithm>
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
    using Tile = Fp8Tile;
    DYNAMIC_SHARED(unsigned char, dynamic);
    auto& shared = aligned_shared<Ring<Fp8Stage>>(dynamic);
    if (threadIdx.x == 0) shared.init(kClusterBlocks);
    sync_cluster();  // every thread of both blocks and the TMA know the barriers

    // A pair is two tiles of C, one below the other: one for each block.
    const unsigned block = block_of_cluster();
    const unsigned first_pair = blockIdx.x / kClusterBlocks, pairs = pair_rows * tile_columns;
    const unsigned clusters = gridDim.x / kClusterBlocks;
    const int group = static_cast<int>(threadIdx.x) / kWarpGroup;
    RingPlace place;
    if (group == 0) {
      give_registers<Tile::kProducerRegisters>();
      if (threadIdx.x == 0) {
        for (unsigned pair = first_pair; pair < pairs; pair += clusters) {
          const TilePlace at = tile_place(pair, pair_rows, tile_columns, kRasterPairs);
          const int row = static_cast<int>(at.row * kClusterBlocks + block) * Tile::kRows;
          const int column = static_cast<int>(at.column) * Tile::kColumns;
          for (int step = 0; step < steps; ++step, place.next()) {
            const int k = step * Tile::kDepth;
            const int half = static_cast<int>(block) * Tile::kHalf;  // this block's, of B
            Fp8Stage& stage = begin_stage(shared, place);
            PhaseBarrier& full = shared.full[place.stage];
            load_box(stage.a, map_a, row, k, full);
            load_box_for(kWholeCluster, stage.b[block], map_b, column + half, k, full);
          }
        }
      }
    } else {
      take_registers<Tile::kConsumerRegisters>();
      const int consumer = group - 1;
      const unsigned thread = threadIdx.x % kWarpGroup;
      const bool tells = thread < kClusterBlocks;
      float sums[128];
      for (unsigned pair = first_pair; pair < pairs; pair += clusters) {
        int multiplied = 0;  // the stage before this one
        for (int step = 0; step < steps; ++step, place.next()) {
          shared.full[place.stage].wait(place.parity);  // both tiles are complete
          multiply_stage(sums, shared.stages[place.stage], consumer, step > 0);
          wait_for_wgmma<1>();  // all but this stage's multiplications are complete
          if (tells && step > 0) arrive_at(shared.empty[multiplied], thread);
          multiplied = place.stage;
        }
        wait_for_wgmma<0>();
        if (tells) arrive_at(shared.empty[multiplied], thread);

        const TilePlace at = tile_place(pair, pair_rows, tile_columns, kRasterPairs);
        const int row =
            static_cast<int>(at.row * kClusterBlocks + block) * Tile::kRows + consumer * kStoreRows;
        store_64x256(map_c, row, static_cast<int>(at.column) * Tile::kColumns, sums,
                     shared.stores[consumer], group);
      }
      if (thread == 0) wait_for_stores();  // they read shared memory, which ends with the block
    }
    sync_cluster();  // the other block writes no more to this one's stages and barriers
  }
}

void launch_fp8(float* c, const gpu::fp8* a, const gpu::fp8* b, size_t M, size_t N, size_t K,
                hipStream_t stream) {
  if (!fp8_takes(c, a, b, M, N, K)) return launch_fp8_naive(c, a, b, M, N, K, stream);
  using Tile = Fp8Tile;
  const auto pair_rows = static_cast<unsigned>(gpu::ceil_div(M, Tile::kRows * kClusterBlocks));
  const auto tile_columns = static_cast<unsigned>(gpu::ceil_div(N, Tile::kColumns));
  const unsigned clusters =
      std::min(pair_rows * tile_columns, std::max(1u, gpu::multiprocessors() / kClusterBlocks));
  constexpr size_t kBytes = sizeof(Ring<Fp8Stage>) + kBoxAlignment;
  gpu::allow_shared_bytes(gemm_fp8, kBytes);
  LAUNCH_IN_CLUSTERS(stream, gemm_fp8, kClusterBlocks, clusters * kClusterBlocks,
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
