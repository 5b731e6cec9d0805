// What the tests of step 2.3 share: products between NaN and guards, held against the reference.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "common/guarded.h"
#include "common/testing.h"
#include "stage2_matrix/03_gemm/gemm.h"
#include "stage2_matrix/03_gemm/reference.h"

namespace gemm_test {

using gemm::Layout;
using gemm::Product;

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr Layout kLayouts[] = {Layout::NN, Layout::NT, Layout::TN};

struct Extents {
  size_t M, N, K;
};

// Small integers of both signs, whose products' sums are exact in float in every order, so that a
// product that is missed or added twice can't pass as rounding; or numbers in [-1, 1).
enum class Numbers { integers, floats };

inline std::vector<float> numbers(Numbers kind, size_t n, std::uint32_t stream) {
  return kind == Numbers::integers ? testing::random_integers(n, stream)
                                   : testing::random_floats(n, stream);
}

// Can this version multiply p? Those without a general launcher take C = A B on contiguous
// matrices.
inline bool takes(const gemm::Launch& launch, const Product& p) {
  return launch.general != nullptr ||
         (p.layout == Layout::NN && p.alpha == 1 && p.beta == 0 && p.batch == 1 && p.lda == p.K &&
          p.ldb == p.N && p.ldc == p.N);
}
inline void run(const gemm::Launch& launch, const Product& p) {
  if (launch.general != nullptr) return launch.general(p, nullptr);
  launch.contiguous(p.c, p.a, p.b, p.M, p.N, p.K, nullptr);
}

// A matrix with a gap behind each row and a margin before and behind it all, which hold `filler`:
// on the host, and on the device `offset` elements behind a 16-byte boundary.
class Matrix {
 public:
  Matrix(size_t rows, size_t cols, size_t gap, size_t offset, float filler)
      : rows_(rows), cols_(cols), ld_(cols + gap), offset_(offset), filler_(filler) {
    host_.assign(rows * ld_, filler);
  }
  float& at(size_t row, size_t col) { return host_[row * ld_ + col]; }
  void fill(Numbers kind, std::uint32_t stream) {
    const std::vector<float> values = numbers(kind, rows_ * cols_, stream);
    for (size_t i = 0; i < values.size(); ++i) at(i / cols_, i % cols_) = values[i];
  }
  void fill(float value) {
    for (size_t row = 0; row < rows_; ++row)
      for (size_t col = 0; col < cols_; ++col) at(row, col) = value;
  }
  const std::vector<float>& host() const { return host_; }
  size_t ld() const { return ld_; }

  // The device's copy, made anew.
  float* to_device() {
    std::vector<float> content(host_.size() + 2 * kMargin, filler_);
    std::copy(host_.begin(), host_.end(), content.begin() + kMargin);
    device_ = std::make_unique<Guarded<float>>(content, offset_);
    return device_->data() + kMargin;
  }
  // What the device has now; gaps and margins must still be what they were.
  std::vector<float> to_host(bool* untouched) const {
    const std::vector<float> content = device_->to_host();
    *untouched = device_->intact();
    for (size_t i = 0; i < content.size(); ++i) {
      const bool inside = i >= kMargin && i < kMargin + host_.size() && (i - kMargin) % ld_ < cols_;
      *untouched &= inside || testing::same_bits(content[i], filler_);
    }
    return {content.begin() + kMargin, content.end() - kMargin};
  }

 private:
  static constexpr size_t kMargin = 64;  // elements: alignment stays as it is
  size_t rows_, cols_, ld_, offset_;
  float filler_;
  std::vector<float> host_;
  std::unique_ptr<Guarded<float>> device_;
};

// One product, its inputs surrounded by NaN that must not come in, and C by numbers that must stay.
struct Problem {
  struct Options {
    Numbers numbers = Numbers::integers;
    float alpha = 1, beta = 0;
    size_t gap = 0;  // of all rows
    size_t offset_a = 0, offset_b = 0, offset_c = 0;
  };
  Problem(Layout layout, Extents size, const Options& options)
      : a(layout == Layout::TN ? size.K : size.M, layout == Layout::TN ? size.M : size.K,
          options.gap, options.offset_a, kNan),
        b(layout == Layout::NT ? size.N : size.K, layout == Layout::NT ? size.K : size.N,
          options.gap, options.offset_b, kNan),
        c(size.M, size.N, options.gap, options.offset_c, 1234.5f) {
    a.fill(options.numbers, 0), b.fill(options.numbers, 1);
    options.beta == 0 ? c.fill(kNan) : c.fill(options.numbers, 2);
    product.layout = layout, product.M = size.M, product.N = size.N, product.K = size.K;
    product.alpha = options.alpha, product.beta = options.beta;
    product.lda = a.ld(), product.ldb = b.ld(), product.ldc = c.ld();
    exact = options.numbers == Numbers::integers;
    compute_reference();
  }

  // Again, after a change to the numbers on the host.
  void compute_reference() {
    std::vector<size_t> rows(product.M);
    std::iota(rows.begin(), rows.end(), size_t{0});
    reference = gemm::gemm_cpu(product, a.host(), b.host(), c.host(), rows);
    product.a = a.to_device(), product.b = b.to_device();
  }

  template <class Launch>
  Comparison check(Launch&& launch) {
    return check(
        launch, [this](size_t i) { return reference.c[i]; },
        [this](size_t i) { return exact ? 0 : gemm::bound_of_mean_zero(product, reference, i); });
  }
  template <class Launch, class Want, class Bound>
  Comparison check(Launch&& launch, Want want, Bound bound) {
    product.c = c.to_device();
    launch(product);
    bool untouched = false;
    const std::vector<float> got = c.to_host(&untouched);
    const size_t N = product.N;
    Comparison result = compare(
        product.M * N, [&](size_t i) { return got[i / N * product.ldc + i % N]; }, want, bound);
    result.ok = result.ok && untouched;
    return result;
  }
  Comparison check(const Version<gemm::Launch>& version) {
    return check([&](const Product& p) { run(version.launch, p); });
  }
  // The same through the launcher for contiguous matrices, which every version has.
  Comparison check_contiguous(const Version<gemm::Launch>& version) {
    return check([&](const Product& p) { version.launch(p.c, p.a, p.b, p.M, p.N, p.K); });
  }

  Matrix a, b, c;
  Product product;
  gemm::Reference reference;
  bool exact;
};

// Requires of every version that takes the problem's product that it is right.
inline void require_all(Problem& problem) {
  for (const auto& version : testing::chosen(gemm::kVersions)) {
    if (!takes(version.launch, problem.product)) continue;
    const Product& p = problem.product;
    CAPTURE(version.name, static_cast<int>(p.layout), p.M, p.N, p.K, p.alpha, p.beta, p.lda);
    REQUIRE_OK(problem.check(version));
  }
}

}  // namespace gemm_test
