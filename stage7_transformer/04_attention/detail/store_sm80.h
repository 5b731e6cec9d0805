// Whole chunks of rows to and from global memory.
#pragma once

#include "stage7_transformer/04_attention/detail/products_sm80.h"

#if !defined(GPU_BACKEND_HIP)

namespace attention {

// The chunk at `from`, of which `count` elements are inside the matrix.
template <bool kAligned>
__device__ inline uint4 load_row_chunk(const bfloat16* from, int count) {
  if constexpr (kAligned)
    return *reinterpret_cast<const uint4*>(from);
  else
    return gemm_mixed::load_chunk(from, count);
}

// Stores `chunk` at `to`, of which `count` elements are inside the matrix.
template <bool kAligned>
__device__ inline void store_chunk(bfloat16* to, const uint4& chunk, int count) {
  if constexpr (kAligned) {
    if (count > 0) *reinterpret_cast<uint4*>(to) = chunk;
  } else {
    bfloat16 elements[kPerChunk];
    memcpy(static_cast<void*>(elements), &chunk, sizeof chunk);
    GPU_UNROLL
    for (int i = 0; i < kPerChunk; ++i)
      if (i < count) to[i] = elements[i];
  }
}

// Stores a warp's sums, each row times its factor, in the rows from `row` on of a block's output,
// of which `rows` are inside. In `tile`, from the same row on, the warp turns its lanes' pairs into
// whole chunks: nobody may need what is there.
template <bool kAligned, int kTiles, int kChunks>
__device__ inline void store_chunks(bfloat16* out, size_t stride, int D, int rows, uint4* tile,
                                    int row, const float (&sums)[kTiles][kChunks][4],
                                    const float (&factors)[kTiles][2]) {
  const int lane = warp_lane();
  GPU_UNROLL
  for (int i = 0; i < kTiles; ++i) {
    GPU_UNROLL
    for (int j = 0; j < kChunks; ++j) {
      GPU_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int to_row = row + 16 * i + 8 * half + lane / 4;
        unsigned* chunk = reinterpret_cast<unsigned*>(tile + chunk_place<kChunks>(to_row, j));
        chunk[lane % 4] = pack(sums[i][j][2 * half] * factors[i][half],
                               sums[i][j][2 * half + 1] * factors[i][half]);
      }
    }
  }
  gpu::wave_sync();  // the warp's rows are complete
  GPU_UNROLL
  for (int i = 0; i < kTiles * kChunks / 2; ++i) {
    const int index = i * kLanes + lane, chunk = index % kChunks;
    const int from_row = row + index / kChunks;
    if (from_row < rows)
      store_chunk<kAligned>(
          out + static_cast<size_t>(from_row) * stride + static_cast<size_t>(chunk * kPerChunk),
          tile[chunk_place<kChunks>(from_row, chunk)], D - chunk * kPerChunk);
  }
}

}  // namespace attention

#endif
