// The loop over two tiles, for kernels that make their operands themselves: step 6.1's windows and
// step 6.2's pixels. Their tiles may have an odd number of lines; product_loop.h has the loop whose
// next numbers are in registers already, for tiles of a matrix.
#pragma once

#include "common/gpu.h"
#include "stage2_matrix/03_gemm/detail/thread_tile.h"
#include "stage2_matrix/03_gemm/detail/tile_loader.h"

namespace gemm {

// sums += the products of `steps` tiles. The next one is on its way while one is multiplied: load()
// takes it into registers, store(tiles) puts it into shared memory. each(tiles) sees every tile.
template <class Shape, class Load, class Store, class Each>
__device__ inline void add_tiles(float (&sums)[Shape::kThreadM][Shape::kThreadN],
                                 Tiles<Shape> (&tiles)[2], int steps, const ThreadTile& own,
                                 Load&& load, Store&& store, Each&& each) {
  if (steps > 0) {
    load();
    store(tiles[0]);
  }
  __syncthreads();  // the first tiles are in shared memory
  for (int step = 0; step < steps; ++step) {
    const Tiles<Shape>& current = tiles[step % 2];
    const bool more = step + 1 < steps;
    if (more) load();
    GPU_UNROLL
    for (int k = 0; k < Shape::kTileK; ++k) {
      float held_a[Shape::kThreadM], held_b[Shape::kThreadN];
      load_fragment(held_a, &current.a[k][own.row], own.row_step);
      load_fragment(held_b, &current.b[k][own.col], own.col_step);
      add_outer_product(sums, held_a, held_b);
    }
    each(current);
    if (more) store(tiles[(step + 1) % 2]);
    __syncthreads();  // the next tiles are in shared memory, and all lines of these were read
  }
}

}  // namespace gemm
