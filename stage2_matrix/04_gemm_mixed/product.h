// 2.4  Products of 16-bit matrices in any layout: C = alpha op(A) op(B) + beta C, with A and B in
// fp16 or bf16, and C in float or in their type. What a layer needs, as 2.3 has it for floats:
//
//   forward       y = x w^T               NT   x (batch, in)   w (out, in)
//   backward      grad_x = grad_y w       NN
//                 grad_w = grad_y^T x     TN
//
// Sums are kept in float. A C of 16 bits is rounded once, when it is stored.
#pragma once

#include <cstddef>

#include "common/half.h"
#include "stage2_matrix/03_gemm/gemm.h"

namespace gemm_mixed {

using gemm::Layout;

// As gemm::Product, which says what the layouts, the leading dimensions and the batch are: `batch`
// products, each of which begins the strides behind the one before. A stride of 0 repeats A or B.
// With beta = 0 C is not read; with alpha = 0 or K = 0 neither are A and B, and each sum is 0.
template <class T, class C = float>
struct Product {
  Layout layout = Layout::NN;
  size_t M = 0, N = 0, K = 0;
  float alpha = 1;
  const T* a = nullptr;
  size_t lda = 0;
  const T* b = nullptr;
  size_t ldb = 0;
  float beta = 0;
  C* c = nullptr;
  size_t ldc = 0;
  size_t batch = 1;
  size_t stride_a = 0, stride_b = 0, stride_c = 0;

  bool a_is_transposed() const { return layout == Layout::TN; }
  bool b_is_transposed() const { return layout == Layout::NT; }
};

// The product of matrices without gaps between rows.
template <class T, class C>
Product<T, C> contiguous(Layout layout, C* c, const T* a, const T* b, size_t M, size_t N,
                         size_t K) {
  Product<T, C> p;
  p.layout = layout, p.M = M, p.N = N, p.K = K;
  p.a = a, p.lda = p.a_is_transposed() ? M : K;
  p.b = b, p.ldb = p.b_is_transposed() ? K : N;
  p.c = c, p.ldc = N;
  return p;
}

// Throws std::invalid_argument, in one line, where an array that is needed is null or not aligned
// to an element, or where a leading dimension is less than a row.
template <class T, class C>
void check(const Product<T, C>& p);

// By the best kernel that this device has for the layout, the size and the alignment: every product
// that check() takes, on every backend. Rows of A, B and C that begin at multiples of 16 bytes are
// the fast case. C must not overlap A or B. The work is queued on `stream`; no workspace.
// detail/choose_product.h has best(p, epilogue) for those that do more to each sum.
// T is gpu::half or gpu::bfloat16, C is float or T.
// Errors: what check() throws; gpu::Error where a launch is refused.
template <class T, class C>
void best(const Product<T, C>& p, hipStream_t stream = nullptr);

// The kernels that best() chooses among.
//
//   Kernel::pairs    `clusters` in any layout: sm_90, rows at multiples of 16 bytes
//   Kernel::mma      mma_sync in any layout: sm_80 and newer, any rows
//   Kernel::units    wmma_tiled in any layout: every device, any rows
enum class Kernel { pairs, mma, units };

// Whether this device has the kernel.
bool has(Kernel kernel);
// Whether it does, and the kernel takes the product.
template <class T, class C>
bool takes(Kernel kernel, const Product<T, C>& p);

// The product by this kernel, for tests and for the program. Throws std::invalid_argument where
// takes() is false.
template <class T, class C>
void launch(Kernel kernel, const Product<T, C>& p, hipStream_t stream = nullptr);

}  // namespace gemm_mixed
