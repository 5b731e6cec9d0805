// best: the loops of large_thread_tile with the tile that suits the shape of C, and slices of K
// where C is small. Its kernel is gemm_product in detail/product_loop.h, because later steps
// compile it with epilogues of their own; detail/choose_tile.h chooses the tile.
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

void best(const Product& p, hipStream_t stream) { best(p, alpha_beta(p), stream); }

}  // namespace gemm
