// A tile of rows in shared memory: the products by pieces of weights that a block's threads make of
// it, and which numbers of it are whose.
#pragma once

#include <cstddef>

#include "common/gpu.h"
#include "stage2_matrix/03_gemm/detail/thread_tile.h"
#include "stage2_matrix/03_gemm/detail/tile_loader.h"
#include "stage4_forward/01_dense/layer.h"

namespace transformer_block {

inline constexpr int kRowWidth = 64;  // columns of a tile, and rows and columns of a piece
inline constexpr int kTileRows = 32;  // rows of a tile
inline constexpr int kParts = 8;      // threads that share a row
inline constexpr int kRowThreads = kParts * kTileRows;   // of a block
inline constexpr int kPartColumns = kRowWidth / kParts;  // columns that a thread has of its row
inline constexpr int kRowStride = kTileRows + gemm::kPad;
inline constexpr int kPieceStride = kRowWidth + gemm::kPad;

// Both with k as the row, as a product reads them.
using Activations = float[kRowWidth][kRowStride];
using HeldPiece = float[kRowWidth][kPieceStride];

// All that a block has in shared memory: less than 64 KiB.
struct alignas(16) RowTiles {
  Activations a, b, c;
  HeldPiece w[2];  // the piece that is multiplied by, and the next one
  float sums[2][kParts][kTileRows];
};

// Up to kRowWidth x kRowWidth elements of a weight (out, in), `ld` apart from row to row.
struct WeightPiece {
  const float* w;
  size_t ld, height, width;
};

// The piece that begins with this row and column of a layer's weight; empty where there is none.
__device__ inline WeightPiece piece_of(const dense::Layer& layer, size_t row, size_t col) {
  const size_t height = layer.out > row ? layer.out - row : 0;
  const size_t width = layer.in > col ? layer.in - col : 0;
  return {layer.w + (row * layer.in + col), layer.in, min(height, size_t{kRowWidth}),
          min(width, size_t{kRowWidth})};
}

// Blocks for so many rows.
inline unsigned row_tiles(size_t rows) {
  return static_cast<unsigned>(gpu::ceil_div(rows, size_t{kTileRows}));
}

// Which numbers of a product are a thread's: 4 x 4 sums of half of the k, of which it has 2 x 4
// results when both halves are added. Lanes l and l + 16 of a group of kLanes have the same sums.
// The first multiplies k = 0 to 3, 8 to 11, ..., the second the others: the padding puts the two
// lines of each operand that a group reads at a time into different banks.
//
// clang-format off
//   lane   0  1  4  5     a group has 16 x 16 results,
//          2  3  6  7     the block 2 x 4 groups
//          8  9 12 13
//         10 11 14 15
// clang-format on
template <bool kAligned>
struct RowPlace {
  static constexpr int kHalf = gemm::kLanes / 2;  // lanes that multiply the same k
  static constexpr int kGroupSize = 16;           // rows and columns of a group
  static constexpr int kAcross = kRowWidth / kGroupSize;

  __device__ RowPlace(size_t first_row, size_t all_rows) : rows(all_rows) {
    const int thread = static_cast<int>(threadIdx.x), group = thread / gemm::kLanes;
    const int lane = thread % kHalf;
    half = thread % gemm::kLanes / kHalf;
    sum_row = group / kAcross * kGroupSize + 4 * (lane / 2 % 2 + lane / 8 * 2);
    row = sum_row + 2 * half;
    col = group % kAcross * kGroupSize + 4 * (lane % 2 + lane / 4 % 2 * 2);
    first = first_row;
  }

  // The thread's numbers of `matrix` (rows, cols) where the tile's column 0 is column `from`; 0
  // where there are none.
  __device__ void load(float (&values)[2][4], const float* matrix, size_t cols,
                       size_t from = 0) const {
    GPU_UNROLL
    for (int i = 0; i < 2; ++i) {
      const bool is_row = first + static_cast<size_t>(row + i) < rows;
      const size_t column = from + static_cast<size_t>(col);
      const float* at = matrix + ((first + static_cast<size_t>(row + i)) * cols + column);
      load_four(values[i], at, is_row && column < cols ? cols - column : 0);
    }
  }
  __device__ void store(float* matrix, const float (&values)[2][4], size_t cols,
                        size_t from = 0) const {
    GPU_UNROLL
    for (int i = 0; i < 2; ++i) {
      const size_t at_row = first + static_cast<size_t>(row + i);
      const size_t column = from + static_cast<size_t>(col);
      float* to = matrix + (at_row * cols + column);
      store_four(to, values[i], at_row < rows && column < cols ? cols - column : 0);
    }
  }
  // Of a vector (cols): the same for both rows.
  __device__ void load_vector(float (&values)[4], const float* vector, size_t cols,
                              size_t from = 0) const {
    const size_t column = from + static_cast<size_t>(col);
    load_four(values, vector + column, column < cols ? cols - column : 0);
  }

  __device__ void put(Activations& tile, const float (&values)[2][4]) const {
    GPU_UNROLL
    for (int j = 0; j < 4; ++j)
      *reinterpret_cast<float2*>(&tile[col + j][row]) = make_float2(values[0][j], values[1][j]);
  }
  __device__ void get(float (&values)[2][4], const Activations& tile) const {
    GPU_UNROLL
    for (int j = 0; j < 4; ++j) {
      const float2 two = *reinterpret_cast<const float2*>(&tile[col + j][row]);
      values[0][j] = two.x, values[1][j] = two.y;
    }
  }

  // The thread's results, of what it and its partner have added up. Clears the sums.
  __device__ void take(float (&results)[2][4], float (&sums)[4][4]) const {
    GPU_UNROLL
    for (int i = 0; i < 2; ++i) {
      GPU_UNROLL
      for (int j = 0; j < 4; ++j) {
        const float given = half == 0 ? sums[2 + i][j] : sums[i][j];
        results[i][j] =
            (half == 0 ? sums[i][j] : sums[2 + i][j]) + gpu::wave_shfl_xor(given, kHalf);
      }
    }
    GPU_UNROLL
    for (int i = 0; i < 4; ++i) {
      GPU_UNROLL
      for (int j = 0; j < 4; ++j) sums[i][j] = 0;
    }
  }

  // The first `count` of four neighbours, which are all of them or none where kAligned.
  __device__ static void load_four(float* values, const float* at, size_t count) {
    float4 four = make_float4(0, 0, 0, 0);
    if constexpr (kAligned) {
      if (count > 0) four = *reinterpret_cast<const float4*>(at);
    } else {
      four = make_float4(count > 0 ? at[0] : 0, count > 1 ? at[1] : 0, count > 2 ? at[2] : 0,
                         count > 3 ? at[3] : 0);
    }
    values[0] = four.x, values[1] = four.y, values[2] = four.z, values[3] = four.w;
  }
  __device__ static void store_four(float* at, const float* values, size_t count) {
    if constexpr (kAligned) {
      if (count > 0)
        *reinterpret_cast<float4*>(at) = make_float4(values[0], values[1], values[2], values[3]);
    } else {
      for (int j = 0; j < 4; ++j)
        if (static_cast<size_t>(j) < count) at[j] = values[j];
    }
  }

  size_t first, rows;  // the tile's first row, and how many rows there are
  int half, sum_row, row, col;
};

__device__ inline void add(float (&to)[2][4], const float (&values)[2][4]) {
  GPU_UNROLL
  for (int i = 0; i < 2; ++i) {
    GPU_UNROLL
    for (int j = 0; j < 4; ++j) to[i][j] += values[i][j];
  }
}
__device__ inline void add(float (&to)[2][4], const float (&of_columns)[4]) {
  GPU_UNROLL
  for (int i = 0; i < 2; ++i) {
    GPU_UNROLL
    for (int j = 0; j < 4; ++j) to[i][j] += of_columns[j];
  }
}

// tile = the columns from `from` on of the rows of `matrix` (rows, cols), 0 where there are none.
template <bool kAligned>
__device__ inline void load_tile(Activations& tile, const float* matrix, size_t first, size_t rows,
                                 size_t cols, size_t from = 0) {
  if (from >= cols) return;
  gemm::TileLoader<true, kAligned, kRowWidth, kTileRows, kRowThreads> loader(
      {matrix, 1, cols, cols, rows}, from, first, static_cast<int>(threadIdx.x));
  loader.load(static_cast<int>(cols - from));
  loader.store(tile);
}

// Brings pieces of weights to shared memory, each while the one before is multiplied. kKMajor:
// products run along the rows of the weights, as forwards; else down their columns, as backwards.
template <bool kKMajor, bool kAligned>
class Conveyor {
  using Loader = gemm::TileLoader<kKMajor, kAligned, kRowWidth, kRowWidth, kRowThreads>;

 public:
  __device__ Conveyor(RowTiles& tiles, const WeightPiece& first) : tiles_(tiles) {
    fetch(first).store(tiles.w[0]);
    depth_ = depth_of(first);
  }

  // sums += tile times the piece that was the next one.
  __device__ void multiply(float (&sums)[4][4], const Activations& tile,
                           const RowPlace<kAligned>& place, const WeightPiece& next) {
    __syncthreads();  // tile and piece are in shared memory; the piece before was multiplied
    const Loader loader = fetch(next);
    const float* a = &tile[4 * place.half][place.sum_row];
    const float* b = &tiles_.w[number_][4 * place.half][place.col];
    float held_a[2][4], held_b[2][4];
    gemm::load_fragment(held_a[0], a, 4), gemm::load_fragment(held_b[0], b, 4);
    for (int k = 0; k < depth_; k += 8) {
      GPU_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int ahead = i < 3 ? i + 1 : 8;  // lines
        if (i < 3 || k + 8 < depth_) {
          gemm::load_fragment(held_a[(i + 1) % 2], a + ahead * kRowStride, 4);
          gemm::load_fragment(held_b[(i + 1) % 2], b + ahead * kPieceStride, 4);
        }
        gemm::add_outer_product(sums, held_a[i % 2], held_b[i % 2]);
      }
      a += 8 * kRowStride, b += 8 * kPieceStride;
    }
    number_ = 1 - number_;
    loader.store(tiles_.w[number_]);
    depth_ = depth_of(next);
  }

 private:
  __device__ static int depth_of(const WeightPiece& piece) {
    return static_cast<int>(kKMajor ? piece.width : piece.height);
  }
  __device__ static Loader fetch(const WeightPiece& p) {
    const size_t depth = kKMajor ? p.width : p.height, extent = kKMajor ? p.height : p.width;
    Loader loader({p.w, kKMajor ? 1 : p.ld, kKMajor ? p.ld : 1, depth, extent}, 0, 0,
                  static_cast<int>(threadIdx.x));
    loader.load(depth_of(p));
    return loader;
  }

  RowTiles& tiles_;
  int number_ = 0, depth_;  // of the piece that comes next
};

}  // namespace transformer_block
