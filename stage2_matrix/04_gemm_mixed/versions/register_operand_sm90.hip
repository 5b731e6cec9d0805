// register_operand: tf32. wgmma takes a B with N along its rows from registers.
#include <algorithm>
#include <stdexcept>
#include <type_traits>

#include "common/gpu.h"
#include "stage2_matrix/04_gemm_mixed/detail/held_operand_sm90.h"
#include "stage2_matrix/04_gemm_mixed/detail/tensor_map_sm90.h"
#include "stage2_matrix/04_gemm_mixed/detail/tile_sm80.h"
#include "stage2_matrix/04_gemm_mixed/gemm_mixed.h"

namespace gemm_mixed {

#if !defined(GPU_BACKEND_HIP)

// C^T = B^T·A^T    A (M,K)  B (K,N)  C (M,N), row-major tf32, as tma_takes() wants them.
// Fixes : clusters takes no tf32: wgmma reads tf32 from shared memory along K only, and B lies
//         across it.
// Idea  : C is turned over, and B^T comes from registers. The fragments of two steps are loaded
//         while the two steps before them are multiplied.
// Thread: as in clusters, with A and B in each other's place: a consumer owns 256 rows and 64
//         columns of a tile of C; the blocks of a pair share a tile of A.
// Costs : 16 registers for fragments; a thread loads 8 bytes twice for each multiplication.
static __global__ void GPU_LAUNCH_BOUNDS(SpecializedTile::kThreads, 1)
    gemm_register_operand(const __grid_constant__ CUtensorMap map_c,
                          const __grid_constant__ CUtensorMap map_a,
                          const __grid_constant__ CUtensorMap map_b, int stages, unsigned tile_rows,
                          unsigned pair_columns) {
  if constexpr (kHaveWgmma) {
    using Tile = HeldTile;
    DYNAMIC_SHARED(unsigned char, dynamic);
    auto& shared = aligned_shared<Ring<HeldStage>>(dynamic);
    if (threadIdx.x == 0) shared.init(kClusterBlocks);
    sync_cluster();  // every thread of both blocks and the TMA know the barriers

    // A pair is two tiles of C, side by side: one for each block.
    const unsigned block = block_of_cluster();
    const unsigned first_pair = blockIdx.x / kClusterBlocks, pairs = tile_rows * pair_columns;
    const unsigned clusters = gridDim.x / kClusterBlocks;
    const int group = static_cast<int>(threadIdx.x) / kWarpGroup;
    RingPlace place;
    if (group == 0) {
      give_registers<SpecializedTile::kProducerRegisters>();
      if (threadIdx.x == 0) {
        for (unsigned pair = first_pair; pair < pairs; pair += clusters) {
          const TilePlace at = tile_place(pair, tile_rows, pair_columns, kRasterPairs);
          const int row = static_cast<int>(at.row) * Tile::kRows;
          const int column = static_cast<int>(at.column * kClusterBlocks + block) * Tile::kColumns;
          for (int stage = 0; stage < stages; ++stage, place.next())
            fill_held_stage(shared, place, map_a, map_b, row, column, stage * Tile::kDepth);
        }
      }
    } else {
      take_registers<SpecializedTile::kConsumerRegisters>();
      const int consumer = group - 1;
      const unsigned thread = threadIdx.x % kWarpGroup;
      const bool tells = thread < kClusterBlocks;
      const HeldColumns own = HeldColumns::of(static_cast<int>(thread));
      float sums[128];
      HeldFragments held;
      for (unsigned pair = first_pair; pair < pairs; pair += clusters) {
        int multiplied = 0;                           // the stage before this one
        shared.full[place.stage].wait(place.parity);  // the first stage is complete
        load_held(held, shared.stages[place.stage], consumer, own, 0);
        for (int stage = 0; stage < stages; ++stage) {
          const HeldStage& now = shared.stages[place.stage];
          GPU_UNROLL
          for (int step = 0; step < Tile::kSteps; step += Tile::kAhead) {
            multiply_held_steps(sums, held, now, step, stage + step > 0);
            wait_for_wgmma<1>();  // all but these steps: other fragments may be overwritten
            if (tells && step == 0 && stage > 0) arrive_at(shared.empty[multiplied], thread);
            if (step + Tile::kAhead < Tile::kSteps)
              load_held(held, now, consumer, own, step + Tile::kAhead);
          }
          multiplied = place.stage;
          place.next();
          if (stage + 1 == stages) continue;
          shared.full[place.stage].wait(place.parity);  // the next stage is complete
          load_held(held, shared.stages[place.stage], consumer, own, 0);
        }
        wait_for_wgmma<0>();
        if (tells) arrive_at(shared.empty[multiplied], thread);

        const TilePlace at = tile_place(pair, tile_rows, pair_columns, kRasterPairs);
        const int column = static_cast<int>(at.column * kClusterBlocks + block) * Tile::kColumns;
        store_256x64(map_c, static_cast<int>(at.row) * Tile::kRows, column + consumer * 64, sums,
                     own, shared.stores[consumer], group);
      }
      if (thread == 0) wait_for_stores();  // they read shared memory, which ends with the block
    }
    sync_cluster();  // the other block writes no more to this one's stages and barriers
  }
}

template <class T>
void launch_register_operand(float* c, const T* a, const T* b, size_t M, size_t N, size_t K,
                             hipStream_t stream) {
  if constexpr (!std::is_same_v<T, float>) {
    throw std::runtime_error("register_operand takes tf32 only");
  } else {
    if (!tma_takes(c, a, b, M, N, K)) return launch_mma_sync(c, a, b, M, N, K, stream);
    using Tile = HeldTile;
    const auto tile_rows = static_cast<unsigned>(gpu::ceil_div(M, Tile::kRows));
    const auto pair_columns =
        static_cast<unsigned>(gpu::ceil_div(N, Tile::kColumns * int{kClusterBlocks}));
    const unsigned clusters =
        std::min(tile_rows * pair_columns, std::max(1u, gpu::multiprocessors() / kClusterBlocks));
    constexpr size_t kBytes = sizeof(Ring<HeldStage>) + kBoxAlignment;
    gpu::allow_shared_bytes(gemm_register_operand, kBytes);
    LAUNCH_IN_CLUSTERS(stream, gemm_register_operand, kClusterBlocks, clusters * kClusterBlocks,
                       unsigned{SpecializedTile::kThreads}, kBytes, tensor_map(c, M, N, kStoreRows),
                       tensor_map(a, M, K, Tile::kHalf), tensor_map(b, K, N, Tile::kDepth),
                       static_cast<int>(gpu::ceil_div(K, Tile::kDepth)), tile_rows, pair_columns);
  }
}

#else

template <class T>
void launch_register_operand(float*, const T*, const T*, size_t, size_t, size_t, hipStream_t) {
  throw std::runtime_error("register_operand needs sm_90");
}

#endif

template void launch_register_operand(float*, const gpu::half*, const gpu::half*, size_t, size_t,
                                      size_t, hipStream_t);
template void launch_register_operand(float*, const gpu::bfloat16*, const gpu::bfloat16*, size_t,
                                      size_t, size_t, hipStream_t);
template void launch_register_operand(float*, const float*, const float*, size_t, size_t, size_t,
                                      hipStream_t);

}  // namespace gemm_mixed
