// Tiles of rows of bf16 in shared memory, and how they come there.
#pragma once

#include <cstddef>

#include "common/gpu.h"
#include "stage2_matrix/04_gemm_mixed/detail/instructions_sm80.h"
#include "stage2_matrix/04_gemm_mixed/detail/tiles.h"
#include "stage7_transformer/04_attention/views.h"

#if !defined(GPU_BACKEND_HIP)

namespace attention {

using gemm_mixed::AsyncCopies;
using gemm_mixed::kLanes;
using gemm_mixed::warp_lane;
using gpu::bfloat16;

// A chunk is 16 bytes of a row, 8 elements.
inline constexpr int kPerChunk = gemm_mixed::kPerChunk<bfloat16>;

// Where chunk `chunk` of row `row` stands in a tile of rows of kChunks chunks: ldmatrix reads the
// same chunk of eight rows, and finds them in eight different groups of banks. Rows of 128 bytes
// and more are as 2.4's mma_sync has them; of shorter ones, several share 128 bytes, and swap
// together.
template <int kChunks>
__host__ __device__ constexpr int chunk_place(int row, int chunk) {
  if constexpr (kChunks >= 8)
    return row * kChunks + (chunk ^ row % 8);
  else
    return row * kChunks + (chunk ^ row / (8 / kChunks) % kChunks);
}

// Fills tiles of kRows rows of kDepth elements from the rows of one head. Rows behind the last and
// elements behind the D-th are zeros. With kAligned all rows begin at 16 bytes and D is a multiple
// of 8: the copies are asynchronous.
template <int kRows, int kDepth, int kThreads, bool kAligned>
class ChunkLoader {
  static constexpr int kChunks = kDepth / kPerChunk;
  static constexpr int kAtOnce = kThreads / kChunks;  // rows
  static_assert(kThreads % kChunks == 0 && kRows % kAtOnce == 0, "threads take whole rows");

 public:
  __device__ ChunkLoader(const bfloat16* head, size_t stride, int rows, int D)
      : row_(static_cast<int>(threadIdx.x) / kChunks),
        chunk_(static_cast<int>(threadIdx.x) % kChunks),
        rows_(rows - row_),
        inside_(D - chunk_ * kPerChunk),
        stride_(stride),
        from_(head + static_cast<size_t>(row_) * stride + static_cast<size_t>(chunk_ * kPerChunk)) {
  }

  // Begins to fill `tile` with the rows from `first` on.
  __device__ void begin(uint4* tile, int first, AsyncCopies& copies) const {
    const bfloat16* from = from_ + static_cast<size_t>(first) * stride_;
    GPU_UNROLL
    for (int i = 0; i < kRows / kAtOnce; ++i, from += kAtOnce * stride_) {
      // Rows swap their chunks as those eight rows further do.
      constexpr int kPeriod = 8;
      uint4* to = tile + i * kAtOnce / kPeriod * kPeriod * kChunks +
                  chunk_place<kChunks>(row_ + i * kAtOnce % kPeriod, chunk_);
      const int count = first + i * kAtOnce < rows_ ? inside_ : 0;
      if constexpr (kAligned)
        copies.begin(to, from, count > 0);  // all of it, or nothing
      else
        *to = gemm_mixed::load_chunk(from, count);
    }
  }

 private:
  int row_, chunk_;  // this thread's first chunk of a tile
  int rows_;         // of the head, from row_ on
  int inside_;       // elements from that chunk's first one to the end of the row
  size_t stride_;
  const bfloat16* from_;  // the chunk of the head's first tile
};

}  // namespace attention

#endif
