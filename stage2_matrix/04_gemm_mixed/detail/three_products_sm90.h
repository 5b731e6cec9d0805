// The rings and the fragments of three_products: register_operand's, of floats in two tf32 parts.
//
// clang-format off
//                        A^T (32, 256), large and small, read by wgmma: two halves, 128 rows of A
//                        [ half 0 ][ half 1 ]
//
//      B^T (64, 32)      C^T (64, 256)
//      in registers,     [ sums   ][ sums   ]  128 of each thread
//      large and small        ^
//                        [ partial]            64 more, of 32 k, which are then added to the sums
// clang-format on
#pragma once

#include "stage2_matrix/04_gemm_mixed/detail/held_operand_sm90.h"
#include "stage2_matrix/04_gemm_mixed/detail/split.h"

#if !defined(GPU_BACKEND_HIP)

namespace gemm_mixed {

struct SplitTile : HeldTile {
  static constexpr int kHalves = kRows / kHalf, kSumsOfHalf = kHalf / 2;
  static constexpr int kStagesOfA = 5, kStagesOfB = 2;
  static constexpr int kRowsOfBlock =
      kHalf / int{kClusterBlocks};  // of a half: a block copies them
};

// Half of a tile of A. Each block of a pair copies half of the rows of both parts.
struct SplitA {
  float large[kClusterBlocks][SplitTile::kRowsOfBlock * SplitTile::kDepth];
  float small[kClusterBlocks][SplitTile::kRowsOfBlock * SplitTile::kDepth];
};
struct WholeB {
  float boxes[SplitTile::kColumns / SplitTile::kBox][SplitTile::kDepth * SplitTile::kBox];
};

// Two rings in 225 KiB: of halves of A, and of tiles of B, which are empty as soon as they are in
// registers. `full` and `empty` are as in Ring.
struct SplitRings {
  SplitA a[SplitTile::kStagesOfA];
  WholeB b[SplitTile::kStagesOfB];
  StoreBuffer stores[SpecializedTile::kConsumers];
  PhaseBarrier full_a[SplitTile::kStagesOfA], empty_a[SplitTile::kStagesOfA];
  PhaseBarrier full_b[SplitTile::kStagesOfB], empty_b[SplitTile::kStagesOfB];

  // One thread calls this before all use, then the cluster's sync_cluster().
  __device__ void init() {
    for (int stage = 0; stage < SplitTile::kStagesOfA; ++stage) {
      full_a[stage].init(1);
      empty_a[stage].init(SpecializedTile::kConsumers * int{kClusterBlocks});
    }
    for (int stage = 0; stage < SplitTile::kStagesOfB; ++stage) {
      full_b[stage].init(1);
      empty_b[stage].init(SpecializedTile::kConsumers);
    }
    publish_barriers();
  }
};

// The producer's part for one step along K: its own tile of B, and its share of A for both blocks.
// One thread calls this.
__device__ inline void fill_split_stage(SplitRings& rings, RingPlace& place_a, RingPlace& place_b,
                                        const CUtensorMap& map_large, const CUtensorMap& map_small,
                                        const CUtensorMap& map_b, int row, int column, int k) {
  using Tile = SplitTile;
  rings.empty_b[place_b.stage].wait(place_b.parity ^ 1);
  PhaseBarrier& full_b = rings.full_b[place_b.stage];
  WholeB& b = rings.b[place_b.stage];
  full_b.expect(sizeof b);
  GPU_UNROLL
  for (int box = 0; box < Tile::kColumns / Tile::kBox; ++box)
    load_box(b.boxes[box], map_b, k, column + box * Tile::kBox, full_b);
  place_b.next(Tile::kStagesOfB);

  const unsigned block = block_of_cluster();
  for (int half = 0; half < Tile::kHalves; ++half, place_a.next(Tile::kStagesOfA)) {
    rings.empty_a[place_a.stage].wait(place_a.parity ^ 1);
    PhaseBarrier& full_a = rings.full_a[place_a.stage];
    SplitA& a = rings.a[place_a.stage];
    full_a.expect(sizeof a);
    const int first = row + half * Tile::kHalf + static_cast<int>(block) * Tile::kRowsOfBlock;
    load_box_for(kWholeCluster, a.small[block], map_small, first, k, full_a);
    load_box_for(kWholeCluster, a.large[block], map_large, first, k, full_a);
  }
}

// The fragments of a stage.
struct SplitFragments {
  HeldFragments large, small;
};

// Loads and splits a consumer's 64 columns of B.
__device__ __forceinline__ void load_split(SplitFragments& held, const WholeB& b, int consumer,
                                           HeldColumns own) {
  const float* box = b.boxes[consumer * kStoreBoxes + own.box];
  GPU_UNROLL
  for (int step = 0; step < SplitTile::kSteps; ++step) GPU_UNROLL
  for (int row = 0; row < 2; ++row) {
    const float2 columns = *reinterpret_cast<const float2*>(box + own.of_b(step, row));
    const TwoParts first = split(columns.x), second = split(columns.y);
    held.large[step][row * 2] = first.large, held.small[step][row * 2] = first.small;
    held.large[step][row * 2 + 1] = second.large, held.small[step][row * 2 + 1] = second.small;
  }
}

}  // namespace gemm_mixed

#endif
