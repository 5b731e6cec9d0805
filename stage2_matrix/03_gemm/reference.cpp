#include "stage2_matrix/03_gemm/reference.h"

#include <cmath>

#include "common/rounding.h"

namespace gemm {

Reference gemm_cpu(const Product& p, const std::vector<float>& a, const std::vector<float>& b,
                   const std::vector<float>& c, const std::vector<size_t>& rows) {
  const size_t size = rows.size() * p.N, K = p.alpha == 0 ? 0 : p.K;
  const std::vector<double> zeros(size);
  Reference reference{zeros, zeros, zeros, zeros};
  for (size_t r = 0; r < rows.size(); ++r) {
    double* const sum = reference.c.data() + r * p.N;
    double* const absolute = reference.absolute.data() + r * p.N;
    double* const squares = reference.squares.data() + r * p.N;
    const auto add = [&](size_t col, float x, float y) {
      const double product = static_cast<double>(x) * static_cast<double>(y);
      sum[col] += product, absolute[col] += std::fabs(product), squares[col] += product * product;
    };
    const size_t a_row = rows[r] * (p.layout == Layout::TN ? 1 : p.lda);
    const size_t a_step = p.layout == Layout::TN ? p.lda : 1;
    if (p.layout == Layout::NT) {  // in the order of b's memory, here and below
      for (size_t col = 0; col < p.N; ++col)
        for (size_t k = 0; k < K; ++k) add(col, a[a_row + k], b[col * p.ldb + k]);
    } else {
      for (size_t k = 0; k < K; ++k)
        for (size_t col = 0; col < p.N; ++col) add(col, a[a_row + k * a_step], b[k * p.ldb + col]);
    }
    for (size_t col = 0; col < p.N; ++col) {
      double& before = reference.before[r * p.N + col];
      if (p.beta != 0)
        before = static_cast<double>(p.beta) * static_cast<double>(c[rows[r] * p.ldc + col]);
      sum[col] = (K == 0 ? 0 : static_cast<double>(p.alpha) * sum[col]) + before;
    }
  }
  return reference;
}

namespace {

double alpha_of(const Product& p) { return p.K == 0 ? 0 : std::fabs(static_cast<double>(p.alpha)); }
double depth_of(const Product& p) { return static_cast<double>(p.K) + 2; }

}  // namespace

double bound(const Product& p, const Reference& reference, size_t i) {
  return rounding::random_bound(
      depth_of(p), alpha_of(p) * reference.absolute[i] + std::fabs(reference.before[i]));
}

double bound_of_mean_zero(const Product& p, const Reference& reference, size_t i) {
  const double alpha = alpha_of(p), before = reference.before[i];
  return rounding::mean_zero_bound(
      depth_of(p), alpha * alpha * reference.squares[i] + before * before, reference.c[i]);
}

}  // namespace gemm
