// Sums of op(A)'s rows, from the tiles that a product brings to shared memory anyway: the gradient
// of a bias beside that of its weights (steps 5.1 and 6.2).
#pragma once

#include <cstddef>
#include <type_traits>

#include "common/gpu.h"
#include "stage2_matrix/03_gemm/detail/tile_loader.h"

namespace gemm {

// Does an epilogue take row_sum(row, sum), with the sum over k of op(A)[row, k]?
template <class Epilogue, class = void>
inline constexpr bool kTakesRowSums = false;
template <class Epilogue>
inline constexpr bool kTakesRowSums<Epilogue, std::void_t<decltype(&Epilogue::row_sum)>> = true;

// A thread's sums of rows of a tile: rows thread, thread + kThreads, ... Only the blocks of the
// first column of tiles need them: the others see the same rows.
template <class Shape>
class TileRowSums {
  static constexpr int kOwn = (Shape::kTileM + Shape::kThreads - 1) / Shape::kThreads;

 public:
  // `thread` counts the kThreads threads.
  __device__ explicit TileRowSums(int thread) : thread_(thread) {}

  // Of a tile with all of its rows in shared memory, and zeros where the matrix ends.
  __device__ void add(const Tiles<Shape>& tiles) {
    GPU_UNROLL
    for (int i = 0; i < kOwn; ++i)
      for (int k = 0; k < Shape::kTileK && row(i) < Shape::kTileM; ++k)
        sums_[i] += tiles.a[k][row(i)];
  }
  // Calls take(row of the tile, sum) for each of the thread's rows.
  template <class Take>
  __device__ void give(Take&& take) const {
    GPU_UNROLL
    for (int i = 0; i < kOwn; ++i)
      if (row(i) < Shape::kTileM) take(row(i), sums_[i]);
  }

 private:
  __device__ int row(int i) const { return thread_ + i * Shape::kThreads; }
  int thread_;
  float sums_[kOwn] = {};
};

}  // namespace gemm
