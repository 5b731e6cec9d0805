// The product as later steps use it: the loop of versions/double_buffered.hip for any shape of tile
// and any epilogue, with teams of threads that share K.
#pragma once

#include <cstddef>

#include "common/gpu.h"
#include "stage2_matrix/03_gemm/detail/epilogue.h"
#include "stage2_matrix/03_gemm/detail/product.h"
#include "stage2_matrix/03_gemm/detail/row_sums.h"
#include "stage2_matrix/03_gemm/detail/thread_tile.h"
#include "stage2_matrix/03_gemm/detail/tile_loader.h"

namespace gemm {

// Row i of a thread's sums belongs to slice i % kSlices: there it becomes the sum of that row in
// all of the block's slices, added in their order. All rows are exchanged at a time, or half of
// them, or a quarter: what fits where the slices' tiles were.
template <class Shape>
__device__ inline void add_slices(float (&sums)[Shape::kThreadM][Shape::kThreadN],
                                  Tiles<Shape> (&tiles)[Shape::kSlices][2], int slice, int thread) {
  constexpr int kRow = Shape::kThreads * Shape::kThreadN;  // of all threads of a slice
  constexpr int kFit = static_cast<int>(2 * sizeof(Tiles<Shape>) / (sizeof(float) * kRow));
  constexpr int kAtOnce = kFit >= Shape::kThreadM       ? Shape::kThreadM
                          : kFit >= Shape::kThreadM / 2 ? Shape::kThreadM / 2
                                                        : Shape::kThreadM / 4;
  static_assert(kAtOnce > 0 && kAtOnce <= kFit && Shape::kThreadM % kAtOnce == 0,
                "all rows in exchanges of equal size");
  GPU_UNROLL
  for (int first = 0; first < Shape::kThreadM; first += kAtOnce) {
    __syncthreads();  // the slices' memory is free: tiles are multiplied, the rows before are added
    float* to = &tiles[slice][0].a[0][0] + thread;
    GPU_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      GPU_UNROLL
      for (int j = 0; j < Shape::kThreadN; ++j)
        to[i * kRow + j * Shape::kThreads] = sums[first + i][j];
    }
    __syncthreads();  // these rows of all slices are in shared memory
    GPU_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      if (slice != (first + i) % Shape::kSlices) continue;
      GPU_UNROLL
      for (int s = 0; s < Shape::kSlices; ++s) {
        const float* from = &tiles[s][0].a[0][0] + thread + i * kRow;
        GPU_UNROLL
        for (int j = 0; j < Shape::kThreadN; ++j) {
          const float sum = from[j * Shape::kThreads];
          sums[first + i][j] = s == 0 ? sum : sums[first + i][j] + sum;
        }
      }
    }
  }
}

// Gives the epilogue the sums of op(A)'s rows in the tile, which are those of all slices, added in
// their order. All threads of the block call it, when they have multiplied their last tiles.
template <class Shape, class Epilogue>
__device__ inline void give_row_sums(const Product& p, const Epilogue& epilogue, size_t first_row,
                                     const TileRowSums<Shape>& own,
                                     Tiles<Shape> (&tiles)[Shape::kSlices][2], int slice) {
  __syncthreads();  // the slices' memory is free
  own.give([&](int row, float sum) { tiles[slice][0].a[0][row] = sum; });
  __syncthreads();  // the sums of all slices are in shared memory
  if (slice > 0) return;
  own.give([&](int row, float sum) {
    for (int s = 1; s < Shape::kSlices; ++s) sum += tiles[s][0].a[0][row];
    if (first_row + row < p.M) epilogue.row_sum(first_row + row, sum);
  });
}

// C = epilogue(op(A) op(B))    op(A) (M, K), op(B) (K, N), C (M, N).
// Fixes : double_buffered has too few threads to hide the waiting where C is small, and no other
//         epilogue.
// Idea  : the same loop in several teams of threads, the slices of a block. Each takes its part of
//         K. Then each adds up a part of the rows, in a fixed order, and stores it. The epilogue is
//         a parameter. One that takes the sums of op(A)'s rows gets them from the tiles.
// Thread: as in wave_tiled, in each slice.
// Costs : those of double_buffered; with slices 2 to 4 barriers more for a tile of C.
template <class Shape, bool kKMajorA, bool kKMajorB, bool kAligned, class Epilogue>
static __global__ void GPU_LAUNCH_BOUNDS(Shape::kThreads* Shape::kSlices, Shape::kResidentBlocks)
    gemm_product(Product p, Epilogue epilogue) {
  static_assert(Shape::kTileK % 2 == 0, "k = 0 of every tile goes to the same registers");
  __shared__ Tiles<Shape> all_tiles[Shape::kSlices][2];
  const int rank = static_cast<int>(threadIdx.x);
  const int slice = Shape::kSlices == 1 ? 0 : rank / Shape::kThreads;
  const int thread = Shape::kSlices == 1 ? rank : rank % Shape::kThreads;
  Tiles<Shape>(&tiles)[2] = all_tiles[slice];

  // All slices go through as many tiles, some of which may be empty: they share the barriers.
  const size_t steps = gpu::ceil_div(p.K, size_t{Shape::kTileK} * Shape::kSlices);
  const size_t share = steps * Shape::kTileK, first = static_cast<size_t>(slice) * share;
  size_t left = first < p.K ? p.K - first : 0;  // of K, not loaded yet

  const TileOrigin origin = tile_origin(p, Shape::kTileM, Shape::kTileN);
  const ThreadTile own = WaveTiles<Shape>::of(thread);
  TileLoader<kKMajorA, kAligned, Shape::kTileK, Shape::kTileM, Shape::kThreads> a(
      operand_a(p), first, origin.row, thread);
  TileLoader<kKMajorB, kAligned, Shape::kTileK, Shape::kTileN, Shape::kThreads> b(
      operand_b(p), first, origin.col, thread);
  const auto load_next = [&] {
    const int depth = depth_of_tile<Shape>(left);
    a.load(depth), b.load(depth);
    left -= depth;
  };
  float sums[Shape::kThreadM][Shape::kThreadN] = {};
  float a_k[2][Shape::kThreadM], b_k[2][Shape::kThreadN];
  const auto load_fragments = [&](int k, const Tiles<Shape>& from) {
    load_fragment(a_k[k % 2], &from.a[k][own.row], own.row_step);
    load_fragment(b_k[k % 2], &from.b[k][own.col], own.col_step);
  };

  TileRowSums<Shape> row_sums(thread);
  const bool sums_rows = kTakesRowSums<Epilogue> && origin.col == 0;

  load_next();
  a.store(tiles[0].a), b.store(tiles[0].b);
  __syncthreads();  // the first tiles are in shared memory
  load_fragments(0, tiles[0]);
  int current = 0;
  for (size_t step = 0; step < steps; ++step) {
    load_next();
    if (sums_rows) row_sums.add(tiles[current]);
    GPU_UNROLL
    for (int k = 0; k < Shape::kTileK; ++k) {
      if (k + 1 == Shape::kTileK) {
        current = 1 - current;
        a.store(tiles[current].a), b.store(tiles[current].b);
        __syncthreads();  // the next tiles are in shared memory, and every thread has read these
      }
      load_fragments((k + 1) % Shape::kTileK, tiles[current]);
      add_outer_product(sums, a_k[k % 2], b_k[k % 2]);
    }
  }
  if constexpr (kTakesRowSums<Epilogue>)
    if (sums_rows) give_row_sums(p, epilogue, origin.row, row_sums, all_tiles, slice);
  if constexpr (Shape::kSlices > 1) add_slices<Shape>(sums, all_tiles, slice, thread);
  store_tile<Shape>(p, epilogue, origin, own, sums, slice);
}

template <class Shape, class Layouts, class Epilogue>
void launch_product(const Product& product, const Epilogue& epilogue, hipStream_t stream) {
  with_grid(product, Shape::kTileM, Shape::kTileN, [&](dim3 grid, const Product& p) {
    dispatch(p, Layouts{}, [&](auto k_major_a, auto k_major_b, auto aligned) {
      LAUNCH_ON(stream, (gemm_product<Shape, k_major_a(), k_major_b(), aligned(), Epilogue>), grid,
                Shape::kThreads * Shape::kSlices, 0, p, epilogue);
    });
  });
}

// ---- For the CPU backend ----------------------------------------------------------------------

// C = epilogue(op(A) op(B))    op(A) (M, K), op(B) (K, N), C (M, N).
// Fixes : on the CPU backend a thread never waits, so gemm_product gains nothing from its second
//         tile.
// Idea  : the loop of versions/vectorized.hip for any shape of tile and any epilogue.
// Thread: t owns kThreadM x kThreadN neighbouring elements of the tile of C.
// Costs : 2 barriers per tile; half the shared memory of gemm_product.
template <class Shape, bool kKMajorA, bool kKMajorB, bool kAligned, class Epilogue>
static __global__ void GPU_LAUNCH_BOUNDS(Shape::kThreads, Shape::kResidentBlocks)
    gemm_single_buffered(Product p, Epilogue epilogue) {
  __shared__ Tiles<Shape> tiles;
  const TileOrigin origin = tile_origin(p, Shape::kTileM, Shape::kTileN);
  const int thread = static_cast<int>(threadIdx.x);
  const ThreadTile own = BlockedTiles<Shape>::of(thread);
  TileLoader<kKMajorA, kAligned, Shape::kTileK, Shape::kTileM, Shape::kThreads> a(
      operand_a(p), 0, origin.row, thread);
  TileLoader<kKMajorB, kAligned, Shape::kTileK, Shape::kTileN, Shape::kThreads> b(
      operand_b(p), 0, origin.col, thread);
  TileRowSums<Shape> row_sums(thread);
  const bool sums_rows = kTakesRowSums<Epilogue> && origin.col == 0;
  float sums[Shape::kThreadM][Shape::kThreadN] = {};
  for (size_t k0 = 0; k0 < p.K; k0 += Shape::kTileK) {
    const int depth = depth_of_tile<Shape>(p.K - k0);
    a.load(depth), b.load(depth);
    a.store(tiles.a), b.store(tiles.b);
    __syncthreads();  // both tiles are in shared memory
    if (sums_rows) row_sums.add(tiles);
    for (int k = 0; k < Shape::kTileK; ++k) {
      float a_k[Shape::kThreadM], b_k[Shape::kThreadN];
      load_fragment(a_k, &tiles.a[k][own.row], own.row_step);
      load_fragment(b_k, &tiles.b[k][own.col], own.col_step);
      add_outer_product(sums, a_k, b_k);
    }
    __syncthreads();  // every thread has read both tiles: the next ones may replace them
  }
  if constexpr (kTakesRowSums<Epilogue>)
    if (sums_rows)
      row_sums.give([&](int row, float sum) {
        if (origin.row + row < p.M) epilogue.row_sum(origin.row + row, sum);
      });
  store_tile<Shape>(p, epilogue, origin, own, sums);
}

template <class Shape, class Layouts, class Epilogue>
void launch_single_buffered(const Product& product, const Epilogue& epilogue, hipStream_t stream) {
  with_grid(product, Shape::kTileM, Shape::kTileN, [&](dim3 grid, const Product& p) {
    dispatch(p, Layouts{}, [&](auto k_major_a, auto k_major_b, auto aligned) {
      LAUNCH_ON(stream,
                (gemm_single_buffered<Shape, k_major_a(), k_major_b(), aligned(), Epilogue>), grid,
                Shape::kThreads, 0, p, epilogue);
    });
  });
}

}  // namespace gemm
