// Tiles of a matrix, also at its edges and where its rows are not aligned: loaded, staged, stored.
#pragma once

#include <cstring>

#include "common/gpu.h"
#include "common/half.h"
#include "stage2_matrix/04_gemm_mixed/detail/chunk.h"

namespace gemm_mixed {

// The chunk at `from`: the next `count` elements of the row and zeros behind them. count may be 0
// or less.
template <class T>
__device__ inline uint4 load_chunk(const T* from, int count) {
  T elements[kPerChunk<T>];
  GPU_UNROLL
  for (int i = 0; i < kPerChunk<T>; ++i) elements[i] = i < count ? from[i] : gpu::from_float<T>(0);
  uint4 chunk;
  memcpy(&chunk, elements, sizeof chunk);
  return chunk;
}

// The elements of a tile whose rows begin `stride` elements apart.
template <class T>
struct View {
  const T* data;
  size_t stride;
};

// The tile (kRows, kColumns) at (row, column) of `matrix` (rows, columns), where a matrix unit can
// load it. That is the matrix itself if the tile lies inside and the rows are aligned. Otherwise it
// is `copy`, which the lanes of the wave fill together, with zeros beyond the edge.
template <int kRows, int kColumns, class T>
__device__ inline View<T> view_tile(const T* matrix, size_t rows, size_t columns, size_t row,
                                    size_t column, bool aligned, T* copy) {
  const T* tile = matrix + row * columns + column;
  const int inside_rows = clip(rows - row, kRows),
            inside_columns = clip(columns - column, kColumns);
  if (aligned && inside_rows == kRows && inside_columns == kColumns) return {tile, columns};
  gpu::wave_sync();  // every lane has used the last copy
  for (int i = gpu::lane_id(); i < kRows * kColumns; i += gpu::wave_size()) {
    const int r = i / kColumns, j = i % kColumns;
    const bool inside = r < inside_rows && j < inside_columns;
    copy[i] = inside ? tile[static_cast<size_t>(r) * columns + j] : gpu::from_float<T>(0);
  }
  gpu::wave_sync();  // the copy is complete
  return {copy, kColumns};
}

// Stores the part of a tile of C that lies inside. `tile` is its upper left element, N the distance
// of C's rows. The unit stores through `copy` where it can't store to C itself.
template <class Unit>
__device__ inline void store_tile(float* tile, size_t N, int inside_rows, int inside_columns,
                                  bool aligned, float* copy, const typename Unit::C& sums) {
  constexpr int kTile = Unit::kTile;
  if (aligned && inside_rows >= kTile && inside_columns >= kTile) {
    Unit::store(tile, N, sums);
    return;
  }
  gpu::wave_sync();  // every lane has used the last copy
  Unit::store(copy, kTile, sums);
  gpu::wave_sync();  // the copy is complete
  for (int i = gpu::lane_id(); i < kTile * kTile; i += gpu::wave_size()) {
    const int r = i / kTile, j = i % kTile;
    if (r < inside_rows && j < inside_columns) tile[static_cast<size_t>(r) * N + j] = copy[i];
  }
}

// Copies the tile (kRows, kColumns) at (row, column) of `matrix` (rows, columns) to shared memory,
// where its rows begin kStride elements apart, with zeros beyond the edge. All threads of the block
// call it.
template <int kRows, int kColumns, int kStride, class T>
__device__ inline void stage_tile(T* shared, const T* matrix, size_t rows, size_t columns,
                                  size_t row, size_t column, bool aligned) {
  constexpr int kElements = kPerChunk<T>, kChunks = kColumns / kElements;
  const T* tile = matrix + row * columns + column;
  const int inside_rows = clip(rows - row, kRows),
            inside_columns = clip(columns - column, kColumns);
  for (int i = gpu::thread_rank(); i < kRows * kChunks; i += static_cast<int>(blockDim.x)) {
    const int r = i / kChunks, j = i % kChunks * kElements;
    const T* from = tile + static_cast<size_t>(r) * columns + j;
    const int count = r < inside_rows ? inside_columns - j : 0;
    *reinterpret_cast<uint4*>(shared + r * kStride + j) =
        aligned && count >= kElements ? *reinterpret_cast<const uint4*>(from)
                                      : load_chunk(from, count);
  }
}

}  // namespace gemm_mixed
