#include "stage2_matrix/04_gemm_mixed/fp8_reference.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "common/in_parallel.h"
#include "common/rounding.h"

namespace gemm_mixed {

namespace {

constexpr std::size_t kGroup = 16;            // products that are added at a time
constexpr double kCut = 0x1p-13;              // of the largest number present, whose fraction is 0
constexpr std::size_t kColumnsOfThread = 64;  // at least
constexpr std::size_t kTogether = 16;         // rows whose sums are computed at the same time

// The largest power of two that is not larger than x >= 0.
double without_fraction(double x) {
  std::uint64_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  bits &= 0x7FF0000000000000u;
  std::memcpy(&x, &bits, sizeof bits);
  return x;
}

// The sums of an element of C for each of kTogether rows of A.
struct Elements {
  double value[kTogether] = {}, largest[kTogether] = {};  // largest: of this group
  double sum_of_largest[kTogether] = {}, squares_of_largest[kTogether] = {};

  void begin_group() {
    for (std::size_t r = 0; r < kTogether; ++r) largest[r] = std::fabs(value[r]);
  }
  void add(const double* a, double b) {
    for (std::size_t r = 0; r < kTogether; ++r) {
      const double term = a[r] * b;
      value[r] += term;
      largest[r] = std::max(largest[r], std::max(std::fabs(term), std::fabs(value[r])));
    }
  }
  void end_group() {
    for (std::size_t r = 0; r < kTogether; ++r) {
      const double power = without_fraction(largest[r]);
      sum_of_largest[r] += power, squares_of_largest[r] += power * power;
    }
  }
};

}  // namespace

Fp8Reference gemm_fp8_cpu(const std::vector<gpu::fp8>& a, const std::vector<gpu::fp8>& b,
                          std::size_t rows, std::size_t N, std::size_t K) {
  double decoded[256];
  for (unsigned bits = 0; bits < 256; ++bits)
    decoded[bits] = static_cast<double>(gpu::to_float(gpu::fp8{static_cast<std::uint8_t>(bits)}));
  const double groups = std::ceil(static_cast<double>(K) / kGroup);
  const double grown = std::exp(2 * kCut * groups);

  Fp8Reference result{std::vector<double>(rows * N), std::vector<double>(rows * N)};
  std::vector<double> columns_of_a(K * kTogether);
  for (std::size_t first = 0; first < rows; first += kTogether) {
    const std::size_t count = std::min(kTogether, rows - first);
    for (std::size_t k = 0; k < K; ++k)
      for (std::size_t r = 0; r < kTogether; ++r)
        columns_of_a[k * kTogether + r] = r < count ? decoded[a[(first + r) * K + k].bits] : 0;
    in_parallel(N, kColumnsOfThread, [&](std::size_t first_column, std::size_t end_column) {
      for (std::size_t n = first_column; n < end_column; ++n) {
        Elements sums;
        for (std::size_t begin = 0; begin < K; begin += kGroup) {
          sums.begin_group();
          for (std::size_t k = begin; k < std::min(begin + kGroup, K); ++k)
            sums.add(&columns_of_a[k * kTogether], decoded[b[n * K + k].bits]);
          sums.end_group();
        }
        for (std::size_t r = 0; r < count; ++r) {
          const std::size_t i = (first + r) * N + n;
          const double of_products =
              rounding::kLambda * std::sqrt(kGroup * sums.squares_of_largest[r]);
          result.value[i] = sums.value[r];
          result.bound[i] = kCut * grown * (2 * sums.sum_of_largest[r] + of_products);
        }
      }
    });
  }
  return result;
}

}  // namespace gemm_mixed
