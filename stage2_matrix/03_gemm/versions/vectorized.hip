// vectorized: 16 bytes per instruction, from global memory to shared memory, registers and C. From
// here on versions take every Product: any layout, leading dimensions, alpha and beta, a batch.
#include "common/gpu.h"
#include "stage2_matrix/03_gemm/detail/epilogue.h"
#include "stage2_matrix/03_gemm/detail/product.h"
#include "stage2_matrix/03_gemm/detail/thread_tile.h"
#include "stage2_matrix/03_gemm/detail/tile_loader.h"
#include "stage2_matrix/03_gemm/gemm.h"

namespace gemm {

// C = alpha op(A) op(B) + beta C    op(A) (M, K), op(B) (K, N), C (M, N).
// Fixes : register_tile_2d moves 4 bytes per instruction, and computes an address for each of them.
// Idea  : float4s. TileLoader brings tiles from either layout to shared memory, load_fragment()
//         from there to registers, and store_tile() writes C.
// Thread: t owns kThreadM x kThreadN neighbouring elements of the tile of C.
// Costs : a quarter of the loads and stores; the float4s of B meet two in a bank.
template <class Shape, bool kKMajorA, bool kKMajorB, bool kAligned>
static __global__ void GPU_LAUNCH_BOUNDS(Shape::kThreads, Shape::kResidentBlocks)
    gemm_vectorized(Product p, AlphaBeta epilogue) {
  __shared__ Tiles<Shape> tiles;
  const TileOrigin origin = tile_origin(p, Shape::kTileM, Shape::kTileN);
  const int thread = static_cast<int>(threadIdx.x);
  const ThreadTile own = BlockedTiles<Shape>::of(thread);
  TileLoader<kKMajorA, kAligned, Shape::kTileK, Shape::kTileM, Shape::kThreads> a(
      operand_a(p), 0, origin.row, thread);
  TileLoader<kKMajorB, kAligned, Shape::kTileK, Shape::kTileN, Shape::kThreads> b(
      operand_b(p), 0, origin.col, thread);
  float sums[Shape::kThreadM][Shape::kThreadN] = {};
  for (size_t k0 = 0; k0 < p.K; k0 += Shape::kTileK) {
    // exercise: stage both tiles, then add their products from registers, four numbers at a time
    // (about 11 lines)
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
    // end exercise
  }
  store_tile<Shape>(p, epilogue, origin, own, sums);
}

void launch_vectorized(const Product& product, hipStream_t stream) {
  using Tile = Shape</*tile*/ 128, 128, 8, /*thread*/ 8, 8, /*resident blocks*/ 2>;
  with_grid(product, Tile::kTileM, Tile::kTileN, [&](dim3 grid, const Product& p) {
    dispatch(p, AllLayouts{}, [&](auto k_major_a, auto k_major_b, auto aligned) {
      LAUNCH_ON(stream, (gemm_vectorized<Tile, k_major_a(), k_major_b(), aligned()>), grid,
                Tile::kThreads, 0, p, alpha_beta(product));
    });
  });
}

}  // namespace gemm
