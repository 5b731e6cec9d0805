// clusters: two blocks need the same tile of B; each copies half of it to both.
#include <algorithm>
#include <stdexcept>

#include "common/gpu.h"
#include "stage2_matrix/04_gemm_mixed/detail/cluster_sm90.h"
#include "stage2_matrix/04_gemm_mixed/detail/tensor_map_sm90.h"
#include "stage2_matrix/04_gemm_mixed/detail/tile_sm80.h"
#include "stage2_matrix/04_gemm_mixed/gemm_mixed.h"

namespace gemm_mixed {

#if !defined(GPU_BACKEND_HIP)

inline constexpr int kHalfOfB = SpecializedTile::kColumns / 64 / int{kClusterBlocks};  // boxes

// C = A·B    A (M,K)  B (K,N)  C (M,N), row-major, as tma_takes() wants them; K in `steps` stages.
// Fixes : each of warp_specialized's blocks copies both of its tiles itself, although its
//         neighbours copy the same ones: 48 KiB a stage from the L2 cache.
// Idea  : two blocks are a cluster. Each copies half of their tile of B, once, to both: 32 KiB.
// Thread: as in warp_specialized; thread i of a consumer tells block i that a stage is multiplied.
// Costs : a stage is filled again when the consumers of both blocks have left it. A block stays
//         until the other one is done, since that writes to its shared memory.
template <class T>
static __global__ void GPU_LAUNCH_BOUNDS(SpecializedTile::kThreads, 1)
    gemm_clusters(const __grid_constant__ CUtensorMap map_c,
                  const __grid_constant__ CUtensorMap map_a,
                  const __grid_constant__ CUtensorMap map_b, int steps, unsigned pair_rows,
                  unsigned tile_columns) {
  if constexpr (kHaveWgmma) {
    using Tile = SpecializedTile;
    DYNAMIC_SHARED(unsigned char, dynamic);
    auto& shared = aligned_shared<SpecializedShared<T>>(dynamic);
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
            const int first = static_cast<int>(block_of_cluster()) * kHalfOfB;  // boxes of B
            SpecializedStage<T>& stage = begin_stage(shared, place);
            PhaseBarrier& full = shared.full[place.stage];
            load_box(stage.a, map_a, row, k, full);
            // exercise: copy this block's half of the boxes of B to both blocks (about 3 lines)
            GPU_UNROLL
            for (int i = 0; i < kHalfOfB; ++i)
              load_box_for(kWholeCluster, stage.b[first + i], map_b, k, column + (first + i) * 64,
                           full);
            // end exercise
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
          // exercise: when the stage before is multiplied, tell both blocks (about 3 lines)
          wait_for_wgmma<1>();  // all but this stage's multiplications are complete
          if (tells && step > 0) arrive_at(shared.empty[multiplied], thread);
          multiplied = place.stage;
          // end exercise
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

template <class T>
void launch_clusters(float* c, const T* a, const T* b, size_t M, size_t N, size_t K,
                     hipStream_t stream) {
  if constexpr (sizeof(T) != 2) {
    throw std::runtime_error("wgmma takes B (K, N) of 16-bit numbers only");
  } else {
    if (!tma_takes(c, a, b, M, N, K)) return launch_mma_sync(c, a, b, M, N, K, stream);
    using Tile = SpecializedTile;
    const auto pair_rows = static_cast<unsigned>(gpu::ceil_div(M, Tile::kRows * kClusterBlocks));
    const auto tile_columns = static_cast<unsigned>(gpu::ceil_div(N, Tile::kColumns));
    const unsigned clusters =
        std::min(pair_rows * tile_columns, std::max(1u, gpu::multiprocessors() / kClusterBlocks));
    constexpr size_t kBytes = sizeof(SpecializedShared<T>) + kBoxAlignment;
    gpu::allow_shared_bytes(gemm_clusters<T>, kBytes);
    LAUNCH_IN_CLUSTERS(stream, gemm_clusters<T>, kClusterBlocks, clusters * kClusterBlocks,
                       unsigned{Tile::kThreads}, kBytes, tensor_map(c, M, N, kStoreRows),
                       tensor_map(a, M, K, Tile::kRows), tensor_map(b, K, N, Tile::kDepth),
                       static_cast<int>(gpu::ceil_div(K, Tile::kDepth)), pair_rows, tile_columns);
  }
}

#else

template <class T>
void launch_clusters(float*, const T*, const T*, size_t, size_t, size_t, hipStream_t) {
  throw std::runtime_error("clusters needs sm_90");
}

#endif

template void launch_clusters(float*, const gpu::half*, const gpu::half*, size_t, size_t, size_t,
                              hipStream_t);
template void launch_clusters(float*, const gpu::bfloat16*, const gpu::bfloat16*, size_t, size_t,
                              size_t, hipStream_t);
template void launch_clusters(float*, const float*, const float*, size_t, size_t, size_t,
                              hipStream_t);

}  // namespace gemm_mixed
