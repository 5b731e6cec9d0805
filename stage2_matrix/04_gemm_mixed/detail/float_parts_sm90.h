// How float_ring's blocks leave the sums of a part of a tile in memory, and how they are added.
#pragma once

#include "stage2_matrix/04_gemm_mixed/detail/float_ring_sm90.h"

#if !defined(GPU_BACKEND_HIP)

namespace gemm_mixed {

// Neighbouring threads have neighbouring places. Stores of four sums at a time would want these in
// neighbouring registers, where the products would wait.
inline constexpr size_t kFloatsOfPart = size_t{FloatTile::kTileM} * FloatTile::kTileN;
__device__ inline size_t place_in_part(int i, int j, int thread) {
  return static_cast<size_t>((i * FloatTile::kThreadN + j) * FloatTile::kThreads + thread);
}
__device__ inline void store_part(float* part, const FloatSums& sums, int thread) {
  GPU_UNROLL
  for (int i = 0; i < FloatTile::kThreadM; ++i) {
    GPU_UNROLL
    for (int j = 0; j < FloatTile::kThreadN; ++j) part[place_in_part(i, j, thread)] = sums[i][j];
  }
}
__device__ inline void add_part(FloatSums& sums, const float* part, int thread) {
  GPU_UNROLL
  for (int i = 0; i < FloatTile::kThreadM; ++i) {
    GPU_UNROLL
    for (int j = 0; j < FloatTile::kThreadN; ++j) sums[i][j] += part[place_in_part(i, j, thread)];
  }
}

}  // namespace gemm_mixed

#endif
