// large_thread_tile: 128 results per thread, and loads that compare nothing.
#include "common/gpu.h"
#include "stage2_matrix/03_gemm/detail/epilogue.h"
#include "stage2_matrix/03_gemm/detail/product.h"
#include "stage2_matrix/03_gemm/detail/thread_tile.h"
#include "stage2_matrix/03_gemm/detail/tile_loader.h"
#include "stage2_matrix/03_gemm/gemm.h"

namespace gemm {

// C = alpha op(A) op(B) + beta C    op(A) (M, K), op(B) (K, N), C (M, N).
// Fixes : 13 of 100 instructions in double_buffered's loop do not multiply. They read shared
//         memory, or compare a load's place with the edges and clear its registers.
// Idea  : 16 x 8 results per thread: 6 loads from shared memory for 128 products, not 4 for 64. And
//         a loop of its own for tiles that lie in the matrices as a whole.
// Thread: as in wave_tiled, but half as many threads own twice as many results each.
// Costs : about 230 registers per thread, so half as many waves to hide the waiting.
template <class Shape, bool kKMajorA, bool kKMajorB>
static __global__ void GPU_LAUNCH_BOUNDS(Shape::kThreads, Shape::kResidentBlocks)
    gemm_large_thread_tile(Product p, AlphaBeta epilogue) {
  static_assert(Shape::kTileK % 2 == 0, "k = 0 of every tile goes to the same registers");
  __shared__ Tiles<Shape> tiles[2];
  const size_t steps = gpu::ceil_div(p.K, Shape::kTileK);
  size_t left = p.K;  // of K, not loaded yet
  const TileOrigin origin = tile_origin(p, Shape::kTileM, Shape::kTileN);
  const int thread = static_cast<int>(threadIdx.x);
  const ThreadTile own = WaveTiles<Shape>::of(thread);
  TileLoader<kKMajorA, true, Shape::kTileK, Shape::kTileM, Shape::kThreads> a(operand_a(p), 0,
                                                                              origin.row, thread);
  TileLoader<kKMajorB, true, Shape::kTileK, Shape::kTileN, Shape::kThreads> b(operand_b(p), 0,
                                                                              origin.col, thread);
  const auto load_next = [&] {
    const int depth = depth_of_tile<Shape>(left);  // 0 behind the last tile: it loads nothing
    a.load(depth), b.load(depth);
    left -= depth;
  };
  float sums[Shape::kThreadM][Shape::kThreadN] = {};
  float a_k[2][Shape::kThreadM], b_k[2][Shape::kThreadN];
  const auto load_fragments = [&](int k, const Tiles<Shape>& from) {
    load_fragment(a_k[k % 2], &from.a[k][own.row], own.row_step);
    load_fragment(b_k[k % 2], &from.b[k][own.col], own.col_step);
  };
  int current = 0;
  // The body of double_buffered's loop, behind its load_next().
  const auto multiply_tiles = [&] {
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
  };

  load_next();
  a.store(tiles[0].a), b.store(tiles[0].b);
  __syncthreads();  // the first tiles are in shared memory
  load_fragments(0, tiles[0]);
  size_t step = 0;
  // exercise: two loops over the tiles, the first one without comparisons (about 10 lines)
  if (is_whole<Shape>(p, origin)) {
    for (; left >= Shape::kTileK; left -= Shape::kTileK, ++step) {
      a.load_whole(), b.load_whole();
      multiply_tiles();
    }
  }
  for (; step < steps; ++step) {
    load_next();
    multiply_tiles();
  }
  // end exercise
  store_tile<Shape>(p, epilogue, origin, own, sums);
}

// Single floats need comparisons at every load: without aligned rows it is double_buffered's work.
void launch_large_thread_tile(const Product& product, hipStream_t stream) {
  if (!is_aligned(product)) return launch_double_buffered(product, stream);
  using Tile = Shape</*tile*/ 128, 128, 8, /*thread*/ 16, 8, /*resident blocks*/ 2>;
  with_grid(product, Tile::kTileM, Tile::kTileN, [&](dim3 grid, const Product& p) {
    dispatch(p, AllLayouts{}, [&](auto k_major_a, auto k_major_b, auto) {
      LAUNCH_ON(stream, (gemm_large_thread_tile<Tile, k_major_a(), k_major_b()>), grid,
                Tile::kThreads, 0, p, alpha_beta(product));
    });
  });
}

}  // namespace gemm
