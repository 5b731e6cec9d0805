#include "stage2_matrix/04_gemm_mixed/accurate.h"

#include "common/program.h"

namespace gemm_mixed {

namespace {

// Does three_products take it, and win? With all multiprocessors busy it is more than twice as fast
// as float units, so half of them are enough. Its blocks have 256 x 128 tiles, in pairs.
bool suits_three_products(const gemm::Product& p) {
  const bool takes_it = p.layout == gemm::Layout::NN && p.alpha == 1 && p.beta == 0 &&
                        p.batch == 1 && p.lda == p.K && p.ldb == p.N && p.ldc == p.N;
  return takes_it && missing(kNeedsOfSm90).empty() &&
         2 * gpu::ceil_div(p.M, size_t{256}) * gpu::ceil_div(p.N, size_t{256}) >=
             gpu::multiprocessors() / 2;
}

}  // namespace

void launch_float_units(float* c, const float* a, const float* b, size_t M, size_t N, size_t K,
                        void* /*workspace*/, hipStream_t stream) {
  gemm::best(gemm::contiguous(c, a, b, M, N, K), stream);
}

void accurate(const gemm::Product& p, void* workspace, hipStream_t stream) {
  gemm::check(p);
  if (!suits_three_products(p)) return gemm::best(p, stream);
  launch_three_products(p.c, p.a, p.b, p.M, p.N, p.K, workspace, stream);
}

}  // namespace gemm_mixed
