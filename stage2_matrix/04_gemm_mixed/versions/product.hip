// Products in any layout without an epilogue of another step. Their kernels are in
// detail/product_*.h, because later steps compile them with
// epilogues of their own; detail/choose_product.h chooses among them.
#include "stage2_matrix/04_gemm_mixed/detail/choose_product.h"
#include "stage2_matrix/04_gemm_mixed/detail/product_pairs_sm90.h"
#include "stage2_matrix/04_gemm_mixed/detail/product_units.h"
#include "stage2_matrix/04_gemm_mixed/gemm_mixed.h"

namespace gemm_mixed {

// Whether a version of the ladder can do it: C = A B in float, without gaps between rows.
template <class T, class C>
static bool is_plain(const Product<T, C>& p) {
  return std::is_same_v<C, float> && p.layout == Layout::NN && p.alpha == 1 && p.beta == 0 &&
         p.lda == p.K && p.ldb == p.N && p.ldc == p.N;
}

template <class T, class C>
void launch(Kernel kernel, const Product<T, C>& p, hipStream_t stream) {
  launch(kernel, gemm::AllLayouts{}, p, scaled_sum(p), stream);
}

template <class T, class C>
void best(const Product<T, C>& p, hipStream_t stream) {
  if constexpr (std::is_same_v<C, float>) {
    check(p);
    if (is_plain(p) && p.batch == 1) {
      if (takes(Kernel::pairs, p) && (p.M <= kFewRows || fills_device(p)))
        return launch_skinny(p.c, p.a, p.b, p.M, p.N, p.K, stream);  // or clusters, by itself
      if (has(Kernel::mma)) return launch_mma_sync(p.c, p.a, p.b, p.M, p.N, p.K, stream);
    }
  }
  best(p, scaled_sum(p), stream);
}

template bool takes(Kernel, const Product<gpu::half, float>&);
template bool takes(Kernel, const Product<gpu::half, gpu::half>&);
template bool takes(Kernel, const Product<gpu::bfloat16, float>&);
template bool takes(Kernel, const Product<gpu::bfloat16, gpu::bfloat16>&);
template void launch(Kernel, const Product<gpu::half, float>&, hipStream_t);
template void launch(Kernel, const Product<gpu::half, gpu::half>&, hipStream_t);
template void launch(Kernel, const Product<gpu::bfloat16, float>&, hipStream_t);
template void launch(Kernel, const Product<gpu::bfloat16, gpu::bfloat16>&, hipStream_t);
template void best(const Product<gpu::half, float>&, hipStream_t);
template void best(const Product<gpu::half, gpu::half>&, hipStream_t);
template void best(const Product<gpu::bfloat16, float>&, hipStream_t);
template void best(const Product<gpu::bfloat16, gpu::bfloat16>&, hipStream_t);

}  // namespace gemm_mixed
