// One stage of mma_sync's ring in shared memory: a tile of A and one of B.
#pragma once

#include "stage2_matrix/04_gemm_mixed/detail/tile_sm80.h"

namespace gemm_mixed {

// Where chunk `chunk` of row `row` of B in tf32 stands, in rows of kChunks chunks. ldmatrix can
// transpose 16-bit numbers only, so lanes read B of tf32 word by word: two neighbouring chunks of
// four rows at a time. Pairs of chunks change places, so that these eight are in different banks.
template <int kChunks>
__host__ __device__ constexpr int swizzled_pairs(int row, int chunk) {
  return row * kChunks + (chunk ^ row % 4 * 2);
}

// One tile of A and one of B. Swizzle::place(row, chunk, chunks) says where a chunk stands in
// rows of `chunks` chunks that ldmatrix reads.
template <class T_, class Tile_, class Swizzle>
struct Stage {
  using T = T_;
  using Tile = Tile_;
  static constexpr int kChunksA = kChunksDeep, kChunksB = Tile::kColumns / kPerChunk<T>;

  static __host__ __device__ constexpr int place_a(int row, int chunk) {
    return Swizzle::place(row, chunk, kChunksA);
  }
  static __host__ __device__ constexpr int place_b(int row, int chunk) {
    return sizeof(T) == 2 ? Swizzle::place(row, chunk, kChunksB)
                          : swizzled_pairs<kChunksB>(row, chunk);
  }

  uint4 a[Tile::kRows * kChunksA];     // (kRows, kStageDepth)
  uint4 b[kStageDepth<T> * kChunksB];  // (kStageDepth, kColumns)
};

}  // namespace gemm_mixed
