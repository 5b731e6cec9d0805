#include "stage2_matrix/04_gemm_mixed/reference.h"

#include <algorithm>
#include <cmath>

#include "common/half.h"
#include "common/in_parallel.h"

namespace gemm_mixed {

template <class T>
rounding::Sums gemm_mixed_cpu(const std::vector<T>& a, const std::vector<T>& b, std::size_t rows,
                              std::size_t N, std::size_t K) {
  rounding::Sums sums(rows * N);
  constexpr std::size_t kColumns = 512;  // few enough for the sums to stay in the cache
  in_parallel(N, kColumns, [&](std::size_t first, std::size_t last) {
    double b_row[kColumns];
    for (std::size_t begin = first; begin < last; begin += kColumns) {
      const std::size_t columns = std::min(kColumns, last - begin);
      for (std::size_t k = 0; k < K; ++k) {
        for (std::size_t j = 0; j < columns; ++j)
          b_row[j] = static_cast<double>(gpu::to_float(b[k * N + begin + j]));
        for (std::size_t row = 0; row < rows; ++row) {
          const double a_value = static_cast<double>(gpu::to_float(a[row * K + k]));
          double* value = sums.value.data() + row * N + begin;
          double* absolute = sums.absolute.data() + row * N + begin;
          double* squares = sums.squares.data() + row * N + begin;
          for (std::size_t j = 0; j < columns; ++j) {
            const double term = a_value * b_row[j];
            value[j] += term, absolute[j] += std::fabs(term), squares[j] += term * term;
          }
        }
      }
    }
  });
  return sums;
}

template rounding::Sums gemm_mixed_cpu(const std::vector<gpu::half>&, const std::vector<gpu::half>&,
                                       std::size_t, std::size_t, std::size_t);
template rounding::Sums gemm_mixed_cpu(const std::vector<gpu::bfloat16>&,
                                       const std::vector<gpu::bfloat16>&, std::size_t, std::size_t,
                                       std::size_t);
template rounding::Sums gemm_mixed_cpu(const std::vector<float>&, const std::vector<float>&,
                                       std::size_t, std::size_t, std::size_t);

double bound(double K, double absolute) {
  const double ku = 3 * K * kFloatRoundoff;
  return (ku < 0.5 ? ku / (1 - ku) : 1) * absolute;
}

double mean_zero_bound(double K, double squares) {
  const double largest = rounding::kLambda * std::sqrt(squares);
  const double cuts = K / 2 + 2 + rounding::kLambda * std::sqrt(K);
  return 2 * kFloatRoundoff * cuts * largest;
}

}  // namespace gemm_mixed
