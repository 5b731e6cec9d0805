// double_buffered: the next tile is on its way while this one is multiplied.
#include "common/gpu.h"
#include "stage2_matrix/03_gemm/detail/epilogue.h"
#include "stage2_matrix/03_gemm/detail/product.h"
#include "stage2_matrix/03_gemm/detail/thread_tile.h"
#include "stage2_matrix/03_gemm/detail/tile_loader.h"
#include "stage2_matrix/03_gemm/gemm.h"

namespace gemm {

// C = alpha op(A) op(B) + beta C    op(A) (M, K), op(B) (K, N), C (M, N).
// Fixes : wave_tiled waits for global memory, then at a barrier, then for shared memory, and does
//         not multiply meanwhile.
// Idea  : two of everything. While the numbers of k are multiplied, those of k + 1 are on their way
//         to the other registers, and the next tile to registers and to the other half of shared
//         memory.
// Thread: as in wave_tiled.
// Costs : 1 barrier per tile; twice the shared memory; kThreadM + kThreadN registers more for the
//         next numbers, and those of a tile on its way.
template <class Shape, bool kKMajorA, bool kKMajorB, bool kAligned>
static __global__ void GPU_LAUNCH_BOUNDS(Shape::kThreads, Shape::kResidentBlocks)
    gemm_double_buffered(Product p, AlphaBeta epilogue) {
  static_assert(Shape::kTileK % 2 == 0, "k = 0 of every tile goes to the same registers");
  __shared__ Tiles<Shape> tiles[2];
  const size_t steps = gpu::ceil_div(p.K, Shape::kTileK);
  size_t left = p.K;  // of K, not loaded yet
  const TileOrigin origin = tile_origin(p, Shape::kTileM, Shape::kTileN);
  const int thread = static_cast<int>(threadIdx.x);
  const ThreadTile own = WaveTiles<Shape>::of(thread);
  TileLoader<kKMajorA, kAligned, Shape::kTileK, Shape::kTileM, Shape::kThreads> a(
      operand_a(p), 0, origin.row, thread);
  TileLoader<kKMajorB, kAligned, Shape::kTileK, Shape::kTileN, Shape::kThreads> b(
      operand_b(p), 0, origin.col, thread);
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

  load_next();
  a.store(tiles[0].a), b.store(tiles[0].b);
  __syncthreads();  // the first tiles are in shared memory
  load_fragments(0, tiles[0]);
  int current = 0;
  for (size_t step = 0; step < steps; ++step) {
    // exercise: fetch the next tiles and multiply these ones, k by k (about 11 lines)
    load_next();
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
    // end exercise
  }
  store_tile<Shape>(p, epilogue, origin, own, sums);
}

void launch_double_buffered(const Product& product, hipStream_t stream) {
  using Tile = Shape</*tile*/ 128, 128, 8, /*thread*/ 8, 8, /*resident blocks*/ 2>;
  with_grid(product, Tile::kTileM, Tile::kTileN, [&](dim3 grid, const Product& p) {
    dispatch(p, AllLayouts{}, [&](auto k_major_a, auto k_major_b, auto aligned) {
      LAUNCH_ON(stream, (gemm_double_buffered<Tile, k_major_a(), k_major_b(), aligned()>), grid,
                Tile::kThreads, 0, p, alpha_beta(product));
    });
  });
}

}  // namespace gemm
