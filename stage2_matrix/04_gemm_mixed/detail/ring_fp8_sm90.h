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
#include "stage2_matrix/04_gemm_mixed/detail/cluster_sm90.h"
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
