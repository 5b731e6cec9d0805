// best: the loop of double_buffered with the tile that suits the shape of C, and slices of K where
// C is small. Its kernel is gemm_product in detail/product_loop.h, because later steps compile it
// with epilogues of their own; detail/choose_tile.h chooses the tile. Large results of long sums
// are large_thread_tile's.
#include "stage2_matrix/03_gemm/detail/choose_tile.h"
#include "stage2_matrix/03_gemm/detail/epilogue.h"
#include "stage2_matrix/03_gemm/gemm.h"

namespace gemm {

template void best<AllLayouts>(const Product&, const AlphaBeta&, hipStream_t);
template void launch_product<Large, AllLayouts>(const Product&, const AlphaBeta&, hipStream_t);
template void launch_product<Medium, AllLayouts>(const Product&, const AlphaBeta&, hipStream_t);
template void launch_product<Half, AllLayouts>(const Product&, const AlphaBeta&, hipStream_t);
template void launch_product<Small, AllLayouts>(const Product&, const AlphaBeta&, hipStream_t);
template void launch_product<Short, AllLayouts>(const Product&, const AlphaBeta&, hipStream_t);

// Its few waves hide little of what comes before and after a loop: it pays from this K on.
[[maybe_unused]] constexpr size_t kManyTerms = 1024;

void best(const Product& p, hipStream_t stream) {
#if !defined(GPU_BACKEND_CPU)  // which has tiles of its own
  if (p.K >= kManyTerms && !has_few_long_sums(p) && is_aligned(p) &&
      choose<AllLayouts, AlphaBeta>(p).tile_m == Large::kTileM)
    return launch_large_thread_tile(p, stream);
#endif
  best(p, alpha_beta(p), stream);
}

}  // namespace gemm
