// The stages of fp8's ring: as many bytes as those of clusters, and twice as deep along K.
//
// clang-format off
//                      B (256, 128): two boxes of 128 rows, one from each block of the pair
//                      [ box 0          ][ box 1          ]   columns of C
//   A (128, 128)       [ 64 x 256 sums of consumer 0      ]
//   one box            [ 64 x 256 sums of consumer 1      ]
// clang-format on
#pragma once

#include <algorithm>

#include "common/fp8.h"
#include "stage2_matrix/04_gemm_mixed/detail/pair_loop_sm90.h"
#include "stage2_matrix/04_gemm_mixed/detail/tensor_map_sm90.h"

#if !defined(GPU_BACKEND_HIP)

namespace gemm_mixed {

#if !defined(GPU_BACKEND_CPU)
// The TMA copies bytes: it has no name for e4m3 and needs none.
template <>
inline constexpr CUtensorMapDataType kTensorType<gpu::fp8> = CU_TENSOR_MAP_DATA_TYPE_UINT8;
#endif

struct Fp8Tile : SpecializedTile {
  static constexpr int kDepth = kBoxColumns<gpu::fp8>, kSteps = kDepth / 32;
  static constexpr int kHalf = kColumns / int{kClusterBlocks};  // rows of B in a box
};

struct Fp8Stage {
  gpu::fp8 a[Fp8Tile::kRows * Fp8Tile::kDepth];
  gpu::fp8 b[kClusterBlocks][Fp8Tile::kHalf * Fp8Tile::kDepth];
};
static_assert(sizeof(Fp8Stage) == sizeof(SpecializedStage<gpu::half>));

// multiply_stage (detail/ring_sm90.h) for these. Rows go on from box to box: all 256 are one tile.
__device__ __forceinline__ void multiply_stage(float (&sums)[128], const Fp8Stage& stage,
                                               int consumer, bool add) {
  begin_wgmma();
  GPU_UNROLL
  for (int step = 0; step < Fp8Tile::kSteps; ++step)
    multiply_fp8_64x256(sums, describe_a(stage.a + consumer * 64 * Fp8Tile::kDepth, step),
                        describe_a(stage.b, step), add || step > 0);
  end_wgmma();
}

// What a thread does of the loop of pairs (detail/pair_loop_sm90.h).
struct Fp8Pair {
  using Tile = Fp8Tile;
  const CUtensorMap &map_c, &map_a, &map_b;
  unsigned pair_rows, tile_columns, block;

  __device__ TileOfPair tile(unsigned pair) const {
    return tile_of_pair(pair, block, pair_rows, tile_columns);
  }

  __device__ __forceinline__ void copy(Fp8Stage& stage, PhaseBarrier& full, const TileOfPair& at,
                                       int k) const {
    const int half = static_cast<int>(block) * Tile::kHalf;  // this block's, of B
    load_box(stage.a, map_a, at.row, k, full);
    load_box_for(kWholeCluster, stage.b[block], map_b, at.column + half, k, full);
  }

  __device__ __forceinline__ void multiply(float (&sums)[128], const Fp8Stage& stage, int consumer,
                                           bool add) const {
    multiply_stage(sums, stage, consumer, add);
  }

  __device__ __forceinline__ void tell(PhaseBarrier* empty, int step, int stage, int& multiplied,
                                       unsigned thread) const {
    tell_both(empty, step, stage, multiplied, thread);
  }

  __device__ __forceinline__ void store(const TileOfPair& at, int consumer,
                                        const float (&sums)[128], StoreBuffer& buffer,
                                        int group) const {
    store_64x256(map_c, at.row + consumer * kStoreRows, at.column, sums, buffer, group);
  }
};

// tma_takes (detail/tensor_map_sm90.h) for C = A B^T.
inline bool fp8_takes(const float* c, const gpu::fp8* a, const gpu::fp8* b, size_t M, size_t N,
                      size_t K) {
  constexpr size_t kLargest = size_t{1} << 30;
  return std::min({M, N, K}) > 0 && std::max({M, N, K}) <= kLargest &&
         chunks_are_aligned(c, N * sizeof(float)) && chunks_are_aligned(a, K) &&
         chunks_are_aligned(b, K);
}

}  // namespace gemm_mixed

#endif
