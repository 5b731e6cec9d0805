// wave_tiled: the results of a wave are a compact tile, too.
#include "common/gpu.h"
#include "stage2_matrix/03_gemm/detail/epilogue.h"
#include "stage2_matrix/03_gemm/detail/product.h"
#include "stage2_matrix/03_gemm/detail/thread_tile.h"
#include "stage2_matrix/03_gemm/detail/tile_loader.h"
#include "stage2_matrix/03_gemm/gemm.h"

namespace gemm {

// Which results of the block's tile are a thread's. 32 neighbouring threads own a compact tile.
template <class Shape>
__host__ __device__ static inline ThreadTile wave_tile_of(int thread) {
  // exercise: the thread's first group of 4 x 4, and how far apart its groups are (about 4 lines)
  return WaveTiles<Shape>::of(thread);
  // end exercise
}

// C = alpha op(A) op(B) + beta C    op(A) (M, K), op(B) (K, N), C (M, N).
// Fixes : a wave of vectorized owns 16 x 128 results, 2 threads high and 16 wide. For each k it
//         reads 144 numbers, and those of B meet two in a bank.
// Idea  : a wave owns a compact tile of 32 x 64, 4 threads high and 8 wide, and reads 96 numbers. A
//         thread's results are groups of 4 x 4, so far apart that the groups of a wave are
//         neighbours: their float4s lie in different banks.
// Thread: wave_tile_of() says which lane owns which groups. Only that differs from vectorized.
// Costs : the same loads, without bank conflicts.
template <class Shape, bool kKMajorA, bool kKMajorB, bool kAligned>
static __global__ void GPU_LAUNCH_BOUNDS(Shape::kThreads, Shape::kResidentBlocks)
    gemm_wave_tiled(Product p, AlphaBeta epilogue) {
  __shared__ Tiles<Shape> tiles;
  const TileOrigin origin = tile_origin(p, Shape::kTileM, Shape::kTileN);
  const int thread = static_cast<int>(threadIdx.x);
  const ThreadTile own = wave_tile_of<Shape>(thread);
  TileLoader<kKMajorA, kAligned, Shape::kTileK, Shape::kTileM, Shape::kThreads> a(
      operand_a(p), 0, origin.row, thread);
  TileLoader<kKMajorB, kAligned, Shape::kTileK, Shape::kTileN, Shape::kThreads> b(
      operand_b(p), 0, origin.col, thread);
  float sums[Shape::kThreadM][Shape::kThreadN] = {};
  for (size_t k0 = 0; k0 < p.K; k0 += Shape::kTileK) {
    const int depth = depth_of_tile<Shape>(p.K - k0);
    a.load(depth), b.load(depth);
    a.store(tiles.a), b.store(tiles.b);
    __syncthreads();  // both tiles are in shared memory
    for (int k = 0; k < Shape::kTileK; ++k) {
      float a_k[Shape::kThreadM], b_k[Shape::kThreadN];
      load_fragment(a_k, &tiles.a[k][own.row], own.row_step);
      load_fragment(b_k, &tiles.b[k][own.col], own.col_step);
      add_outer_product(sums, a_k, b_k);
    }
    __syncthreads();  // every thread has read both tiles: the next ones may replace them
  }
  store_tile<Shape>(p, epilogue, origin, own, sums);
}

using WaveTiledShape = Shape</*tile*/ 128, 128, 8, /*thread*/ 8, 8, /*resident blocks*/ 2>;

void launch_wave_tiled(const Product& product, hipStream_t stream) {
  using Tile = WaveTiledShape;
  with_grid(product, Tile::kTileM, Tile::kTileN, [&](dim3 grid, const Product& p) {
    dispatch(p, AllLayouts{}, [&](auto k_major_a, auto k_major_b, auto aligned) {
      LAUNCH_ON(stream, (gemm_wave_tiled<Tile, k_major_a(), k_major_b(), aligned()>), grid,
                Tile::kThreads, 0, p, alpha_beta(product));
    });
  });
}

Place place_in_wave_tiled(int thread, int i, int j) {
  const ThreadTile own = wave_tile_of<WaveTiledShape>(thread);
  return {own.row + i / 4 * own.row_step + i % 4, own.col + j / 4 * own.col_step + j % 4};
}

}  // namespace gemm
