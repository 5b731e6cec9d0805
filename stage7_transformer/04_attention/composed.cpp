#include "stage7_transformer/04_attention/composed.h"

namespace attention {

void multiply(gemm::Layout layout, size_t M, size_t N, size_t K, float alpha, const ConstView& a,
              const ConstView& b, const View& c, const Problem& p, hipStream_t stream) {
  gemm::Product product;
  product.layout = layout, product.M = M, product.N = N, product.K = K, product.alpha = alpha;
  product.lda = a.stride_row, product.ldb = b.stride_row, product.ldc = c.stride_row;
  product.stride_a = a.stride_head, product.stride_b = b.stride_head;
  product.stride_c = c.stride_head;
  const auto even = [&](size_t batch, size_t head) { return batch == p.H * head; };
  const bool all = even(a.stride_batch, a.stride_head) && even(b.stride_batch, b.stride_head) &&
                   even(c.stride_batch, c.stride_head);
  product.batch = all ? p.heads() : p.H;
  for (size_t batch = 0; batch < (all ? 1 : p.B); ++batch) {
    product.a = a.head(batch, 0), product.b = b.head(batch, 0), product.c = c.head(batch, 0);
    gemm::best(product, stream);
  }
}

}  // namespace attention
