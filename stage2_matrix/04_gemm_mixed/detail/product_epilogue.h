// What the kernels of products in any layout share: the element that is stored of a sum.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "common/gpu.h"
#include "stage2_matrix/03_gemm/detail/epilogue.h"
#include "stage2_matrix/04_gemm_mixed/detail/chunk.h"
#include "stage2_matrix/04_gemm_mixed/product.h"

namespace gemm_mixed {

// Epilogues are those of 2.3: a functor (sum, row, col, c) that returns the float to store at
// [row, col], where c points to what is there now. Where C has 16 bits, c points to the same as a
// float.
using gemm::AlphaBeta;

// If K is 0 the result is beta C, even if alpha is infinite.
template <class T, class C>
AlphaBeta scaled_sum(const Product<T, C>& p) {
  return {p.K == 0 ? 0 : p.alpha, p.beta};
}

template <class C, class Epilogue>
__device__ __forceinline__ C finish(const Epilogue& epilogue, float sum, size_t row, size_t col,
                                    const C* c) {
  if constexpr (std::is_same_v<C, float>) {
    return epilogue(sum, row, col, c);
  } else {
    const float before = gpu::to_float(*c);  // not loaded where the epilogue does not use it
    return gpu::from_float<C>(epilogue(sum, row, col, &before));
  }
}

// An epilogue may also have a two(first, second, row, col), which returns a float2: what to store
// of two neighbours, of which `col` is even. Then what it reads and stores beside C can be two
// neighbours, too. Its fits_two() says whether two() may be called: whether its arrays begin at
// multiples of two elements.
template <class Epilogue, class = void>
inline constexpr bool kTakesTwo = false;
template <class Epilogue>
inline constexpr bool kTakesTwo<
    Epilogue, std::void_t<decltype(std::declval<const Epilogue&>().two(0.0f, 0.0f, 0, 0))>> = true;

template <class Epilogue>
__device__ __forceinline__ bool fits_two(const Epilogue& epilogue) {
  if constexpr (kTakesTwo<Epilogue>)
    return epilogue.fits_two();
  else
    return true;
}

template <class C, class Epilogue>
__device__ __forceinline__ TwoOf<C> finish_two(const Epilogue& epilogue, float first, float second,
                                               size_t row, size_t col, const C* c) {
  if constexpr (kTakesTwo<Epilogue>) {
    const float2 both = epilogue.two(first, second, row, col);
    return {gpu::from_float<C>(both.x), gpu::from_float<C>(both.y)};
  } else {
    return {finish(epilogue, first, row, col, c), finish(epilogue, second, row, col + 1, c + 1)};
  }
}

// An epilogue that stores another matrix, too, has first(), the epilogue of that matrix; second(),
// itself without that; and stored_first(), the matrix: as many rows and columns as C has, without
// gaps, in a batch of one. A kernel may store both by first() and second().
template <class Epilogue, class = void>
inline constexpr bool kStoresTwice = false;
template <class Epilogue>
inline constexpr bool
    kStoresTwice<Epilogue, std::void_t<decltype(std::declval<const Epilogue&>().first())>> = true;

// Where beta is 0. No branch asks for it at each sum.
struct TimesAlpha {
  float alpha;
  __device__ float operator()(float sum, size_t, size_t, const float*) const { return alpha * sum; }
};

// Calls run(rows, columns, product) for that many tiles of C, unless C has no element: once, or
// several times for a batch that is longer than a grid can be high. Throws std::invalid_argument
// where a grid is too small for C.
template <class T, class C, class Run>
void launch_grids(Product<T, C> p, size_t tile_rows, size_t tile_columns, Run&& run) {
  if (p.alpha == 0) p.K = 0;
  const size_t rows = gpu::ceil_div(p.M, tile_rows), columns = gpu::ceil_div(p.N, tile_columns);
  if (rows == 0 || columns == 0) return;
  if (rows > static_cast<size_t>(std::numeric_limits<std::int32_t>::max()) / columns)
    throw std::invalid_argument("gemm_mixed: C has too many tiles");
  for (size_t left = p.batch; left > 0; left -= p.batch) {
    p.batch = std::min(left, gpu::kMaxGridY);
    run(static_cast<unsigned>(rows), static_cast<unsigned>(columns), std::as_const(p));
    p.a += p.batch * p.stride_a, p.b += p.batch * p.stride_b, p.c += p.batch * p.stride_c;
  }
}

}  // namespace gemm_mixed
