// wgmma with tf32 and a B whose rows do not lie along K: its fragments come from registers.
//
// wgmma wants K along the rows of what it reads from shared memory. A (M, K) lies so, B (K, N) does
// not. The first operand may come from registers, and ordinary loads reach every element. So the
// product is turned over: C^T = B^T A^T. Its 64-row operand is a part of B^T, and A is the other.
//
// clang-format off
//                       A^T  (32, 256)  read by wgmma
//                       [ step 0        ]  8 k
//                       [ step 1        ]
//      B^T (64, 32)
//      [0][1][2][3]     C^T  (64, 256)  128 sums of each thread
//      in registers
// clang-format on
#pragma once

#include "stage2_matrix/04_gemm_mixed/detail/cluster_sm90.h"

#if !defined(GPU_BACKEND_HIP)

namespace gemm_mixed {

// SpecializedTile with A and B in each other's place: a block's tile of C, and the depth of a
// stage. Each of the consumers owns 64 columns.
struct HeldTile {
  static constexpr int kRows = SpecializedTile::kColumns, kColumns = SpecializedTile::kRows;
  static constexpr int kBox = kBoxColumns<float>, kDepth = kBox, kSteps = kDepth / 8;
  static constexpr int kHalf = kRows / int{kClusterBlocks};  // rows of A that a block copies
  // Steps whose fragments are loaded while as many steps before them are multiplied.
  static constexpr int kAhead = 2;
  static_assert(kSteps % (2 * kAhead) == 0, "a fragment is not overwritten while it is multiplied");
};

struct HeldStage {
  float a[kClusterBlocks][HeldTile::kHalf * HeldTile::kDepth];
  float b[HeldTile::kColumns / HeldTile::kBox][HeldTile::kDepth * HeldTile::kBox];
};

// The producer's part for one step along K: its own tile of B, and its half of A for both blocks.
// The other half comes from the other block. One thread calls this.
__device__ inline void fill_held_stage(Ring<HeldStage>& ring, RingPlace place,
                                       const CUtensorMap& map_a, const CUtensorMap& map_b, int row,
                                       int column, int k) {
  const unsigned block = block_of_cluster();
  HeldStage& stage = begin_stage(ring, place);
  PhaseBarrier& full = ring.full[place.stage];
  load_box_for(kWholeCluster, stage.a[block], map_a,
               row + static_cast<int>(block) * HeldTile::kHalf, k, full);
  GPU_UNROLL
  for (int box = 0; box < HeldTile::kColumns / HeldTile::kBox; ++box)
    load_box(stage.b[box], map_b, k, column + box * HeldTile::kBox, full);
}

// Which two neighbouring columns of a consumer's 64 are a thread's: rows t%32/4 and 8 further of
// its warp's fragment. Which column is which row is free, as long as the sums are stored likewise.
// A thread loads both columns at once, 8 bytes of row t%4 of B, so half a warp loads from four
// rows. Those are in different banks if they come from chunks that differ in bit 2. It also stores
// to four rows of C, 0, 2, 4 and 6: for these the chunks must differ in bit 0. So they are c and
// c ^ 5: 128 bytes in each wavefront.
//
// clang-format off
//   place     0     1     2     3     4     5     6     7       place j ^ k % 8 of row k has chunk j
//   k 0      [0]                           [5]
//   k 1            [0]               [5]
//   k 2                  [0]                           [5]
//   k 3                        [0]               [5]
//
//   chunks of lanes   0..15: c, c ^ 5     16..31: c ^ 1, c ^ 4     c: 0 in even warps, 2 in odd
// clang-format on
struct HeldColumns {
  int box, chunk, first;  // columns `first` and the next of a chunk of four
  int quarter;            // t%4

  __host__ __device__ static constexpr HeldColumns of(int thread) {
    const int warp = thread / kLanes, pair = thread % kLanes / 4;
    const int chunk = (warp % 2 * 2) ^ (pair / 2 % 2 * 5) ^ (pair / 4);
    return {warp / 2, chunk, pair % 2 * 2, thread % 4};
  }
  // Where they are in a box, in floats: row `i` of the two of B of step `step`, and row `i` of the
  // 16 of C of a pass.
  __host__ __device__ constexpr int of_b(int step, int i) const {
    return in_row(step * 8 + i * 4 + quarter);
  }
  __host__ __device__ constexpr int of_c(int i) const {
    return in_row(i / 2 * 8 + quarter * 2 + i % 2);
  }
  __host__ __device__ constexpr int in_row(int row) const {
    return row * HeldTile::kBox + (chunk ^ row % 8) * 4 + first;
  }
};

// The fragments of a stage: four registers a step, two columns of row t%4 of the step's 8 of B,
// then of row t%4 + 4.
using HeldFragments = unsigned[HeldTile::kSteps][4];

// Loads those of kAhead steps, from step `first` on, of a complete stage.
__device__ __forceinline__ void load_held(HeldFragments& held, const HeldStage& stage, int consumer,
                                          HeldColumns own, int first) {
  const float* box = stage.b[consumer * kStoreBoxes + own.box];
  GPU_UNROLL
  for (int i = 0; i < 2 * HeldTile::kAhead; ++i) {
    const int step = first + i / 2, row = i % 2;
    const uint2 columns = *reinterpret_cast<const uint2*>(box + own.of_b(step, row));
    held[step][row * 2] = columns.x;
    held[step][row * 2 + 1] = columns.y;
  }
}

// Begins to multiply these steps; `add`: to the sums.
__device__ __forceinline__ void multiply_held_steps(float (&sums)[128], const HeldFragments& held,
                                                    const HeldStage& stage, int first, bool add) {
  begin_wgmma();
  GPU_UNROLL
  for (int step = first; step < first + HeldTile::kAhead; ++step)
    multiply_held_rows(sums, held[step], describe_a(stage.a, step), add || step > first);
  end_wgmma();
}

// Stores the 64 x 256 sums of C^T that a warp group holds, 256 rows and 64 columns of C, from (row,
// column) on. As store_64x256, but with 64 rows in a pass. A thread's neighbouring columns are
// sums[4 j + i] and sums[4 j + i + 2], i = 0, 1: of row 8 j + t%4*2 + i.
__device__ __forceinline__ void store_256x64(const CUtensorMap& map_c, int row, int column,
                                             const float (&sums)[128], HeldColumns own,
                                             StoreBuffer& buffer, int group) {
  const int thread = static_cast<int>(threadIdx.x) % kWarpGroup;
  GPU_UNROLL
  for (int pass = 0; pass < HeldTile::kRows / kStoreRows; ++pass) {
    begin_store_pass(thread, group);
    GPU_UNROLL
    for (int i = 0; i < 16; ++i) {
      const float* sum = sums + pass * 32 + i / 2 * 4 + i % 2;
      *reinterpret_cast<float2*>(buffer.boxes[own.box] + own.of_c(i)) = make_float2(sum[0], sum[2]);
    }
    end_store_pass(map_c, row + pass * kStoreRows, column, buffer, thread, group);
  }
}

}  // namespace gemm_mixed

#endif
