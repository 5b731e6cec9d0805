// best(): products of 16-bit matrices in any layout, with any epilogue.
#pragma once

#include <cstddef>
#include <stdexcept>

#include "common/gpu.h"
#include "stage2_matrix/04_gemm_mixed/detail/product_epilogue.h"
#include "stage2_matrix/04_gemm_mixed/detail/product_mma_sm80.h"
#include "stage2_matrix/04_gemm_mixed/detail/product_pairs_sm90.h"
#include "stage2_matrix/04_gemm_mixed/detail/product_units.h"
#include "stage2_matrix/04_gemm_mixed/gemm_mixed.h"
#include "stage2_matrix/04_gemm_mixed/product.h"

namespace gemm_mixed {

template <class T, class C>
bool takes(Kernel kernel, [[maybe_unused]] const Product<T, C>& p) {
  if (!has(kernel)) return false;
#if !defined(GPU_BACKEND_HIP)
  if (kernel == Kernel::pairs) return suits_pairs(p);
#endif
  return true;
}

// The same of a product with an epilogue.
template <class T, class C, class Epilogue>
bool takes(Kernel kernel, const Product<T, C>& p, [[maybe_unused]] const Epilogue& epilogue) {
#if !defined(GPU_BACKEND_HIP)
  if (kernel == Kernel::pairs && !matrix_first(p, epilogue).suit_tma()) return false;
#endif
  return takes(kernel, p);
}

template <Layout... kLayouts, class T, class C, class Epilogue>
void launch(Kernel kernel, gemm::Layouts<kLayouts...>, const Product<T, C>& p,
            const Epilogue& epilogue, hipStream_t stream) {
  check(p);
  if (((p.layout != kLayouts) && ...))
    throw std::invalid_argument("gemm_mixed: this epilogue was not compiled for the layout");
  if (p.M == 0 || p.N == 0 || p.batch == 0) return;
  if (!takes(kernel, p, epilogue))
    throw std::invalid_argument("gemm_mixed: not a product for this kernel");
#if !defined(GPU_BACKEND_HIP)
  if (kernel == Kernel::pairs)
    return ((p.layout == kLayouts ? launch_pairs<kLayouts>(p, epilogue, stream) : void()), ...);
  if (kernel == Kernel::mma)
    return ((p.layout == kLayouts ? launch_mma<kLayouts>(p, epilogue, stream) : void()), ...);
#endif
  launch_units(p, epilogue, stream);
}

// Whether `pairs` is the best kernel for a product that it takes. Its tiles are large: every
// multiprocessor shall have one. With few rows, which take as long as reading B, fewer will do:
// each has more of B under way than mma's.
template <class T, class C>
bool fills_device(const Product<T, C>& p) {
  const size_t tiles = gpu::ceil_div(p.M, size_t{128}) * gpu::ceil_div(p.N, size_t{256}) * p.batch;
  return tiles * (p.M <= kFewRows ? 4 : 1) >= gpu::multiprocessors();
}

template <class T, class C, class Epilogue>
Kernel choose_kernel(const Product<T, C>& p, const Epilogue& epilogue) {
  const bool has_mma = takes(Kernel::mma, p);
  if (takes(Kernel::pairs, p, epilogue) && (fills_device(p) || !has_mma)) return Kernel::pairs;
  return has_mma ? Kernel::mma : Kernel::units;
}

// C[row, col] = epilogue(sum over k of op(A)[row, k] op(B)[k, col], row, col, C + ...). Only the
// epilogue reads alpha and beta, but p.alpha = 0 makes every sum 0 and does not read A and B.
// best<gemm::Layouts<Layout::NT>>(p, epilogue) compiles the kernels of that layout only, and
// refuses others.
template <class Layouts = gemm::AllLayouts, class T, class C, class Epilogue>
void best(const Product<T, C>& p, const Epilogue& epilogue, hipStream_t stream = nullptr) {
  launch(choose_kernel(p, epilogue), Layouts{}, p, epilogue, stream);
}

}  // namespace gemm_mixed
