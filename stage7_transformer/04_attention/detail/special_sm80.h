// NaN and infinity in a tile that not all rows of a block see.
#pragma once

#include "stage7_transformer/04_attention/detail/sizes_sm80.h"

#if !defined(GPU_BACKEND_HIP)

namespace attention {

// The elements of two that are not finite: ones in their bits.
__device__ inline unsigned special_bits(unsigned pair) {
  // Their exponents are all ones: one more, and each carries into its sign's place.
  const unsigned carries = ((pair & 0x7f807f80u) + 0x00800080u) & 0x80008000u;
  return (carries >> 15) * 0xffffu;
}
__device__ inline uint4 special_bits(const uint4& chunk) {
  return {special_bits(chunk.x), special_bits(chunk.y), special_bits(chunk.z),
          special_bits(chunk.w)};
}

// The threads of a block, who work on a tile together.
template <int kThreads>
struct BlockThreads {
  static constexpr int kCount = kThreads;
  static __device__ int rank() { return static_cast<int>(threadIdx.x); }
  static __device__ void sync() { __syncthreads(); }  // all of them have come here
  static __device__ bool any(bool value) { return __syncthreads_or(value) != 0; }  // and all say so
};

// A matrix unit multiplies all of a tile by all weights, and 0 times NaN or an infinity is NaN: a
// tile that not all rows of a block see must have no such elements. This replaces them by 0 in
// `tile`, the rows of the columns from `column` on, and adds them to `sums`, the warp's rows from
// `row` on, where a row sees the column: there the weight is above 0. For all of `Threads`: one
// barrier, and two more where there are such elements. Returns whether there were.
template <bool kKeysAreRows, int kColumns, class Threads, int kTiles, int kChunks>
__device__ inline bool take_out_special(float (&sums)[kTiles][kChunks][4], uint4* tile, int row,
                                        int column, const Sizes& shape) {
  unsigned found = 0;
  for (int i = Threads::rank(); i < kColumns * kChunks; i += Threads::kCount) {
    const uint4 special = special_bits(tile[i]);
    found |= special.x | special.y | special.z | special.w;
  }
  if (!Threads::any(found != 0)) return false;
  row += warp_lane() / 4;
  for (int k = 0; k < kColumns; ++k) {
    GPU_UNROLL
    for (int j = 0; j < kChunks; ++j) {
      const unsigned* chunk = reinterpret_cast<const unsigned*>(tile + chunk_place<kChunks>(k, j));
      const unsigned pair = chunk[warp_lane() % 4], special = pair & special_bits(pair);
      if (special == 0) continue;
      const unsigned words[2] = {special << 16, special & 0xffff0000u};
      float values[2];
      memcpy(values, words, sizeof values);
      GPU_UNROLL
      for (int i = 0; i < kTiles; ++i) {
        GPU_UNROLL
        for (int half = 0; half < 2; ++half) {
          const int of_row = row + 16 * i + 8 * half, of_column = column + k;
          const int query = kKeysAreRows ? of_column : of_row;
          const int key = kKeysAreRows ? of_row : of_column;
          if (key >= visible_keys(query + 1, shape)) continue;
          sums[i][j][2 * half] += values[0];
          sums[i][j][2 * half + 1] += values[1];
        }
      }
    }
  }
  Threads::sync();  // every warp has added what it sees
  for (int i = Threads::rank(); i < kColumns * kChunks; i += Threads::kCount) {
    const uint4 chunk = tile[i], special = special_bits(chunk);
    tile[i] = {chunk.x & ~special.x, chunk.y & ~special.y, chunk.z & ~special.z,
               chunk.w & ~special.w};
  }
  Threads::sync();  // the tile is finite
  return true;
}

}  // namespace attention

#endif
