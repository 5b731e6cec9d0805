// Copies tiles of A and B from global memory to a stage in shared memory.
#pragma once

#include "stage2_matrix/04_gemm_mixed/detail/instructions_sm80.h"
#include "stage2_matrix/04_gemm_mixed/detail/stage_sm80.h"
#include "stage2_matrix/04_gemm_mixed/detail/tiles.h"

#if !defined(GPU_BACKEND_HIP)

namespace gemm_mixed {

// Fills one stage after the other with the tiles along K. With kAligned all rows of A and B are
// aligned to 16 bytes, and the copies are asynchronous. Each thread copies the same chunks of every
// tile.
template <class Stage, bool kAligned>
class StageLoader {
  using T = typename Stage::T;
  using Tile = typename Stage::Tile;
  // The threads take whole rows of chunks: so many rows at once.
  static constexpr int kRowsA = Tile::kThreads / Stage::kChunksA;
  static constexpr int kRowsB = Tile::kThreads / Stage::kChunksB;
  static_assert(kRowsA % 8 == 0 && kRowsB % (sizeof(T) == 2 ? 8 : 4) == 0,
                "a thread's chunks all have the same place in their rows");

 public:
  __device__ StageLoader(const T* a, const T* b, size_t M, size_t N, size_t K, size_t row,
                         size_t column)
      : N_(N), K_(K), left_(K) {
    const int thread = static_cast<int>(threadIdx.x);
    const int row_a = thread / Stage::kChunksA, chunk_a = thread % Stage::kChunksA;
    const int row_b = thread / Stage::kChunksB, chunk_b = thread % Stage::kChunksB;
    place_a_ = Stage::place_a(row_a, chunk_a);
    place_b_ = Stage::place_b(row_b, chunk_b);
    k_a_ = chunk_a * kPerChunk<T>;
    k_b_ = row_b;
    a_ = a + (row + static_cast<size_t>(row_a)) * K + k_a_;
    b_ = b + static_cast<size_t>(row_b) * N + column + chunk_b * kPerChunk<T>;
    rows_left_ = clip(M - row, Tile::kRows) - row_a;
    columns_left_ = clip(N - column, Tile::kColumns) - chunk_b * kPerChunk<T>;
  }

  // Begins to fill `stage` with the next tile of A and of B, with zeros beyond the edges. Beyond
  // the end of K all is zeros.
  __device__ void begin(Stage& stage, AsyncCopies& copies) {
    const int depth = clip(left_, kStageDepth<T>);
    GPU_UNROLL
    for (int i = 0; i < Tile::kRows / kRowsA; ++i)
      copy(stage.a + place_a_ + i * kRowsA * Stage::kChunksA, a_ + i * kRowsA * K_,
           i * kRowsA < rows_left_ ? depth - k_a_ : 0, copies);
    GPU_UNROLL
    for (int i = 0; i < kStageDepth<T> / kRowsB; ++i)
      copy(stage.b + place_b_ + i * kRowsB * Stage::kChunksB, b_ + i * kRowsB * N_,
           i * kRowsB + k_b_ < depth ? columns_left_ : 0, copies);
    a_ += kStageDepth<T>;
    b_ += kStageDepth<T> * N_;
    left_ -= static_cast<size_t>(depth);
  }

 private:
  // The chunk at `from`, of which `count` elements are inside the matrix.
  static __device__ void copy(uint4* to, const T* from, int count, AsyncCopies& copies) {
    if constexpr (kAligned)
      copies.begin(to, from, count > 0);  // all of it, or nothing
    else
      *to = load_chunk(from, count);
  }

  const T* a_;  // this thread's first chunk of the next tiles
  const T* b_;
  size_t N_, K_, left_;           // left_: what is left of K
  int place_a_, place_b_;         // where that chunk goes
  int k_a_, k_b_;                 // its place along K in the tile
  int rows_left_, columns_left_;  // from its row of A, or its column of B, to the edge
};

}  // namespace gemm_mixed

#endif
