// The tiles that the backward pass for bf16 chooses from, and what is launched before them.
#pragma once

#include "common/gpu.h"
#include "stage7_transformer/04_attention/detail/forward_tiles_sm80.h"
#include "stage7_transformer/04_attention/detail/sizes_sm80.h"
#include "stage7_transformer/05_attention_backward/attention_backward.h"
#include "stage7_transformer/05_attention_backward/query_data.h"

#if !defined(GPU_BACKEND_HIP)

namespace attention_backward {

using namespace attention;  // its views, tiles and products

// versions/query_data_sm80.hip: data[b,h,i] = {lse / log 2, sum over d of grad_out out}.
template <bool kAligned>
void launch_prepare(QueryData* data, const float* lse, const ConstBf16View& grad_out,
                    const ConstBf16View& out, const Problem& problem, hipStream_t stream);

// What a block of the backward pass does: kRows rows, keys or queries, of one head against tiles of
// kColumns of the other; each warp kWarpRows of them. There is room for kStages such tiles.
template <int kDepth_, int kRows_, int kColumns_, int kWarpRows_, int kStages_, int kBlocks_>
struct BackwardTile {
  static constexpr int kDepth = kDepth_, kRows = kRows_, kColumns = kColumns_;
  static constexpr int kWarpRows = kWarpRows_, kStages = kStages_, kBlocks = kBlocks_;
  static constexpr int kThreads = kRows / kWarpRows * kLanes;
  static constexpr int kChunks = kDepth / kPerChunk;
  static constexpr int kDataChunks = kColumns * static_cast<int>(sizeof(QueryData)) / 16;
  static constexpr int kStageChunks = 2 * kColumns * kChunks + kDataChunks;
  static constexpr size_t kSharedBytes =
      size_t{2 * kRows * kChunks + kStages * kStageChunks} * sizeof(uint4);
  static_assert(kQueryPadding % kColumns == 0 && kDataChunks <= kThreads);
};

template <int kDepth>
struct Bf16GradientTiles {
  using Small = BackwardTile<kDepth, 64, 64, 16, 2, 2>;
  using LargeOfKeys = Small;
  using LargeOfQueries = Small;
};
template <>
struct Bf16GradientTiles<64> {
  using Small = BackwardTile<64, 64, 64, 16, 2, 2>;
  using LargeOfKeys = BackwardTile<64, 128, 32, 32, 3, 2>;
  using LargeOfQueries = BackwardTile<64, 128, 32, 32, 2, 2>;
};
template <>
struct Bf16GradientTiles<128> {
  using Small = BackwardTile<128, 64, 16, 16, 2, 2>;
  using LargeOfKeys = BackwardTile<128, 64, 64, 16, 2, 2>;
  using LargeOfQueries = LargeOfKeys;
};

// Whether some row of [row, row + rows) does not see, or is not seen by, some column of [column,
// column + columns); rows are queries and columns keys, or with kOfKeys the other way round.
template <bool kOfKeys>
__device__ inline bool has_hidden(const Sizes& shape, int row, int rows, int column, int columns) {
  if constexpr (kOfKeys) return visible_keys(column + 1, shape) < min(row + rows, shape.Tk);
  return visible_keys(row + 1, shape) < column + columns;
}

// What is known of the queries of a lane's rows, of 16 for each tile, from the data of the first.
template <int kTiles>
__device__ inline void load_rows_data(QueryData (&of_row)[kTiles][2], const QueryData* data) {
  GPU_UNROLL
  for (int i = 0; i < kTiles; ++i) {
    GPU_UNROLL
    for (int half = 0; half < 2; ++half)
      of_row[i][half] = data[16 * i + 8 * half + warp_lane() / 4];
  }
}

// Calls use(value, query) for each of a lane's values of a tile, with what is known of its query:
// of the value's row, or with kOfKeys of its column, whose data come in pairs.
template <bool kOfKeys, int kTiles, int kColumns, int kQueries, class Use>
__device__ inline void for_each_query(float (&values)[kTiles][kColumns][4],
                                      const uint4* column_data,
                                      const QueryData (&of_row)[kQueries][2], Use&& use) {
  GPU_UNROLL
  for (int j = 0; j < kColumns; ++j) {
    QueryData of_column[2];
    if constexpr (kOfKeys) memcpy(of_column, column_data + 4 * j, sizeof of_column);
    GPU_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      GPU_UNROLL
      for (int k = 0; k < 4; ++k)
        use(values[i][j][k], kOfKeys ? of_column[k % 2] : of_row[kOfKeys ? 0 : i][k / 2]);
    }
  }
}

// values *= factors, element by element.
template <int kTiles, int kColumns>
__device__ inline void multiply_each(float (&values)[kTiles][kColumns][4],
                                     const float (&factors)[kTiles][kColumns][4]) {
  GPU_UNROLL
  for (int i = 0; i < kTiles; ++i) {
    GPU_UNROLL
    for (int j = 0; j < kColumns; ++j) {
      GPU_UNROLL
      for (int k = 0; k < 4; ++k) values[i][j][k] *= factors[i][j][k];
    }
  }
}

}  // namespace attention_backward

#endif
