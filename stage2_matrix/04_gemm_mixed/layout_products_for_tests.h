// Products in any layout, in guarded memory: gaps between rows and between matrices are NaN, and
// nobody may write those of C.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "common/guarded.h"
#include "common/testing.h"
#include "stage2_matrix/04_gemm_mixed/product.h"

namespace gemm_mixed_test {

using gemm_mixed::Kernel;
using gemm_mixed::Layout;

inline constexpr Layout kLayouts[] = {Layout::NN, Layout::NT, Layout::TN};

// What a product has beside its layout and its sizes. The gaps are elements between rows, and
// between the matrices of a batch.
struct Extras {
  size_t gap_a = 0, gap_b = 0, gap_c = 0;
  size_t offset_a = 0, offset_b = 0, offset_c = 0;
  size_t batch = 1, gap_matrices = 0;
  bool same_b = false;
  float alpha = 1, beta = 0;
};
// Rows of so many elements begin at multiples of 16 bytes.
inline size_t gap_to_16_bytes(size_t columns, size_t bytes) {
  const size_t per_chunk = 16 / bytes;
  return (per_chunk - columns % per_chunk) % per_chunk;
}
inline Extras aligned(Layout layout, size_t M, size_t N, size_t K, size_t bytes_of_c) {
  Extras e;
  e.gap_a = gap_to_16_bytes(layout == Layout::TN ? M : K, 2);
  e.gap_b = gap_to_16_bytes(layout == Layout::NT ? K : N, 2);
  e.gap_c = gap_to_16_bytes(N, bytes_of_c);
  return e;
}

// What is stored of a sum in [row, col], where `before` was.
template <class Number>
Number blas(Number sum, float alpha, float beta, Number before) {
  return beta == 0 ? alpha * sum : alpha * sum + beta * before;
}

template <class T, class C>
struct LayoutProblem {
  using Product = gemm_mixed::Product<T, C>;

  LayoutProblem(Layout layout, size_t M, size_t N, size_t K, const Extras& e = {})
      : p(sized(layout, M, N, K, e)),
        a(p.batch * p.stride_a, e.offset_a),
        b((e.same_b ? 1 : p.batch) * (rows_of_b() * p.ldb + e.gap_matrices), e.offset_b),
        c(p.batch * p.stride_c, e.offset_c),
        on_a(fill(a, rows_of_a(), p.lda - e.gap_a, p.lda, p.stride_a, p.batch, 0)),
        on_b(fill(b, rows_of_b(), p.ldb - e.gap_b, p.ldb, p.stride_b, e.same_b ? 1 : p.batch, 1)),
        on_c(e.beta == 0 ? c.to_host() : fill(c, M, N, p.ldc, p.stride_c, p.batch, 2)) {
    p.a = a.data(), p.b = b.data(), p.c = c.data();
  }

  size_t rows_of_a() const { return p.layout == Layout::TN ? p.K : p.M; }
  size_t rows_of_b() const { return p.layout == Layout::NT ? p.N : p.K; }

  float sum(size_t z, size_t row, size_t col) const {
    float result = 0;  // of integers: exact
    const T* const left = on_a.data() + z * p.stride_a;
    const T* const right = on_b.data() + z * p.stride_b;
    for (size_t k = 0; k < p.K && p.alpha != 0; ++k)
      result += gpu::to_float(left[p.layout == Layout::TN ? k * p.lda + row : row * p.lda + k]) *
                gpu::to_float(right[p.layout == Layout::NT ? col * p.ldb + k : k * p.ldb + col]);
    return result;
  }

  // Whether launch(p) leaves finish(sum, row, col, before) in all of C, and all else as it was.
  template <class Launch, class Finish>
  bool is_right(Launch&& launch, Finish&& finish) {
    std::vector<C> want = on_c;
    for (size_t z = 0; z < p.batch; ++z)
      for (size_t row = 0; row < p.M; ++row)
        for (size_t col = 0; col < p.N; ++col) {
          C& element = want[z * p.stride_c + row * p.ldc + col];
          const float before = gpu::to_float(element);
          element = gpu::from_float<C>(finish(sum(z, row, col), row, col, before));
        }
    if (!on_c.empty())
      HIP_CHECK(hipMemcpy(c.data(), on_c.data(), on_c.size() * sizeof(C), hipMemcpyHostToDevice));
    launch(p);
    const std::vector<C> got = c.to_host();
    bool right = a.intact() && b.intact() && c.intact();
    for (size_t i = 0; i < got.size(); ++i)  // the same bits, or 0 and -0
      right = right && (std::memcmp(&got[i], &want[i], sizeof(C)) == 0 ||
                        gpu::to_float(got[i]) == gpu::to_float(want[i]));
    return right;
  }
  template <class Launch>
  bool is_right(Launch&& launch) {
    return is_right(launch, [this](float sum, size_t, size_t, float before) {
      return blas(sum, p.K == 0 ? 0 : p.alpha, p.beta, before);
    });
  }

  Product p;
  Guarded<T> a, b;
  Guarded<C> c;
  std::vector<T> on_a, on_b;
  std::vector<C> on_c;

 private:
  static Product sized(Layout layout, size_t M, size_t N, size_t K, const Extras& e) {
    Product p = gemm_mixed::contiguous<T, C>(layout, nullptr, nullptr, nullptr, M, N, K);
    p.lda += e.gap_a, p.ldb += e.gap_b, p.ldc += e.gap_c;
    p.batch = e.batch, p.alpha = e.alpha, p.beta = e.beta;
    p.stride_a = (layout == Layout::TN ? K : M) * p.lda + e.gap_matrices;
    p.stride_b = e.same_b ? 0 : (layout == Layout::NT ? N : K) * p.ldb + e.gap_matrices;
    p.stride_c = M * p.ldc + e.gap_matrices;
    return p;
  }
  // Integers in the matrices; what lies between their rows stays NaN.
  template <class E>
  static std::vector<E> fill(Guarded<E>& memory, size_t rows, size_t columns, size_t ld,
                             size_t stride, size_t count, unsigned seed) {
    std::vector<E> values = memory.to_host();
    const std::vector<float> numbers = testing::random_integers(count * rows * columns, seed);
    for (size_t i = 0; i < numbers.size(); ++i)
      values[i / (rows * columns) * stride + i / columns % rows * ld + i % columns] =
          gpu::from_float<E>(numbers[i]);
    if (!values.empty())
      HIP_CHECK(hipMemcpy(memory.data(), values.data(), values.size() * sizeof(E),
                          hipMemcpyHostToDevice));
    return values;
  }
};

}  // namespace gemm_mixed_test
