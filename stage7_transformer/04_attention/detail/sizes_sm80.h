// What the kernels for bf16 know of a problem: sizes, the place of a block, and the mask.
#pragma once

#include <limits>

#include "stage7_transformer/04_attention/detail/tiles_sm80.h"

#if !defined(GPU_BACKEND_HIP)

namespace attention {

// Sizes and scale, as the kernels want them.
struct Sizes {
  int H, Tq, Tk, D;
  bool causal;
  float unit;      // scale / log 2: what a product of a query and a key counts in scores
  unsigned tiles;  // of one head, a block each
};

inline constexpr float kLogTwo = 0.693147180559945f;
inline constexpr float kNone = -std::numeric_limits<float>::infinity();  // the score of no key

inline Sizes sizes_of(const Problem& problem, size_t tiles) {
  return {static_cast<int>(problem.H),
          static_cast<int>(problem.Tq),
          static_cast<int>(problem.Tk),
          static_cast<int>(problem.D),
          problem.causal,
          problem.scale / kLogTwo,
          static_cast<unsigned>(tiles)};
}

// How many keys the first `queries` queries see, or the last of them alone: query i sees the keys
// up to i + Tk - Tq.
__host__ __device__ inline int visible_keys(int queries, const Sizes& shape) {
  if (!shape.causal) return shape.Tk;
  const int keys = queries + shape.Tk - shape.Tq;
  return keys < 0 ? 0 : keys < shape.Tk ? keys : shape.Tk;
}

// One block's head and tile, and where the head's rows begin in a view.
struct HeadRows {
  size_t batch, head;
  int tile;

  __device__ explicit HeadRows(const Sizes& shape)
      : HeadRows(shape, blockIdx.x / shape.tiles, blockIdx.x % shape.tiles) {}
  // Head `number` of all heads.
  __host__ __device__ HeadRows(const Sizes& shape, unsigned number, unsigned tile_of_head)
      : batch(number / static_cast<unsigned>(shape.H)),
        head(number % static_cast<unsigned>(shape.H)),
        tile(static_cast<int>(tile_of_head)) {}

  template <class AnyView>
  __device__ auto row(const AnyView& view, int number) const {
    return view.data + batch * view.stride_batch + head * view.stride_head +
           static_cast<size_t>(number) * view.stride_row;
  }
  // The number of this head's row `row` among all heads' rows.
  __device__ size_t flat(const Sizes& shape, int rows_of_head, int number) const {
    return (batch * static_cast<size_t>(shape.H) + head) * static_cast<size_t>(rows_of_head) +
           static_cast<size_t>(number);
  }
};

// Scores of keys that a query does not see become `unseen`. The scores are those of 16 kTiles rows
// from `row` on and of 8 kColumns columns from `column` on; rows are queries and columns keys, or
// with kKeysAreRows the other way round.
template <bool kKeysAreRows, int kTiles, int kColumns>
__device__ inline void mask(float (&scores)[kTiles][kColumns][4], int row, int column,
                            const Sizes& shape, float unseen) {
  row += warp_lane() / 4, column += warp_lane() % 4 * 2;
  GPU_UNROLL
  for (int i = 0; i < kTiles; ++i) {
    GPU_UNROLL
    for (int j = 0; j < kColumns; ++j) {
      GPU_UNROLL
      for (int k = 0; k < 4; ++k) {
        const int of_row = row + 16 * i + k / 2 * 8, of_column = column + 8 * j + k % 2;
        const int query = kKeysAreRows ? of_column : of_row;
        const int key = kKeysAreRows ? of_row : of_column;
        if (key >= visible_keys(query + 1, shape)) scores[i][j][k] = unseen;
      }
    }
  }
}

}  // namespace attention

#endif
