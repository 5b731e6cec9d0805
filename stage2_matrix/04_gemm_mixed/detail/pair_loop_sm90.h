// The loop of `clusters`: pairs of blocks go through C, each pair from two tiles to the next two.
#pragma once

#include <algorithm>

#include "common/gpu.h"
#include "stage2_matrix/04_gemm_mixed/detail/cluster_sm90.h"

#if !defined(GPU_BACKEND_HIP)

namespace gemm_mixed {

inline constexpr int kBoxesOfB = SpecializedTile::kColumns / 64;
inline constexpr int kHalfOfB = kBoxesOfB / int{kClusterBlocks};  // boxes

// A block's tile of C: where it begins, in which product of a batch.
struct TileOfPair {
  int row, column, product;
};

// Block `block`'s tile of pair `pair`. A pair is two tiles, one below the other: one for each block
// of the cluster. C has pair_rows x tile_columns of them.
__device__ inline TileOfPair tile_of_pair(unsigned pair, unsigned block, unsigned pair_rows,
                                          unsigned tile_columns, int product = 0) {
  const TilePlace at = tile_place(pair, pair_rows, tile_columns, kRasterPairs);
  return {static_cast<int>(at.row * kClusterBlocks + block) * SpecializedTile::kRows,
          static_cast<int>(at.column) * SpecializedTile::kColumns, product};
}

// Thread i of a consumer tells block i that the stage before `stage` is multiplied.
__device__ __forceinline__ void tell_both(PhaseBarrier* empty, int step, int stage, int& multiplied,
                                          unsigned thread) {
  wait_for_wgmma<1>();  // all but this stage's multiplications are complete
  if (thread < kClusterBlocks && step > 0) arrive_at(empty[multiplied], thread);
  multiplied = stage;
}

// Every pair of tiles, K in `steps` stages; at least one. A kernel says in `part` what it does:
//
//   Part::Tile                                          SpecializedTile, or one that is as large
//   part.tile(pair)                                     where this block's tile is
//   part.copy(stage, full, tile, k)                     begins to fill a stage: one thread
//   part.multiply(sums, stage, consumer, add)           begins to multiply a stage
//   part.tell(empty, step, stage, multiplied, thread)   the stage before is multiplied
//   part.store(tile, consumer, sums, buffer, group)     stores a consumer's 64 rows of a tile
template <class Stage, class Part>
__device__ __forceinline__ void multiply_pairs(Ring<Stage>& shared, unsigned pairs, int steps,
                                               const Part& part) {
  using Tile = typename Part::Tile;
  if (threadIdx.x == 0) shared.init(kClusterBlocks);
  sync_cluster();  // every thread of both blocks and the TMA know the barriers
  gpu::let_next_launch_begin();

  const unsigned first_pair = blockIdx.x / kClusterBlocks, clusters = gridDim.x / kClusterBlocks;
  const int group = static_cast<int>(threadIdx.x) / kWarpGroup;
  RingPlace place;
  if (group == 0) {
    give_registers<Tile::kProducerRegisters>();
    if (threadIdx.x == 0) {
      gpu::wait_for_launch_before();  // the stores wait for this thread's copies
      for (unsigned pair = first_pair; pair < pairs; pair += clusters) {
        const TileOfPair tile = part.tile(pair);
        for (int step = 0; step < steps; ++step, place.next()) {
          Stage& stage = begin_stage(shared, place);
          part.copy(stage, shared.full[place.stage], tile, step * Tile::kDepth);
        }
      }
    }
  } else {
    take_registers<Tile::kConsumerRegisters>();
    const int consumer = group - 1;
    const unsigned thread = threadIdx.x % kWarpGroup;
    float sums[128];
    for (unsigned pair = first_pair; pair < pairs; pair += clusters) {
      int multiplied = 0;  // the stage before this one
      for (int step = 0; step < steps; ++step, place.next()) {
        shared.full[place.stage].wait(place.parity);  // both tiles are complete
        part.multiply(sums, shared.stages[place.stage], consumer, step > 0);
        part.tell(shared.empty, step, place.stage, multiplied, thread);
      }
      wait_for_wgmma<0>();
      if (thread < kClusterBlocks) arrive_at(shared.empty[multiplied], thread);
      part.store(part.tile(pair), consumer, sums, shared.stores[consumer], group);
    }
    if (thread == 0) wait_for_stores();  // they read shared memory, which ends with the block
  }
  sync_cluster();  // the other block writes no more to this one's stages and barriers
}

// A launch has so many clusters, and so many bytes of shared memory.
inline unsigned clusters_of(unsigned pairs) {
  return std::min(pairs, std::max(1u, gpu::multiprocessors() / kClusterBlocks));
}
template <class Stage>
inline constexpr size_t kBytesOfRing = sizeof(Ring<Stage>) + kBoxAlignment;

}  // namespace gemm_mixed

#endif
