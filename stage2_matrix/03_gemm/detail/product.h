// A Product as kernels see it: operands, the order of the blocks, and the constants that a kernel
// is compiled for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <type_traits>

#include "common/gpu.h"
#include "stage2_matrix/03_gemm/gemm.h"

namespace gemm {

// ---- Operands ---------------------------------------------------------------------------------

// One operand, A or B, with its layout as two strides. C is the sum over k of outer products:
// column k of op(A) times row k of op(B). Index i counts the rows of op(A), or the columns of
// op(B).
//
//                k = 0 1 2 ...              i = 0 1 2 ...
//        i = 0   . . . . .          k = 0   . . . . . . .
//            1   . . . . .              1   . . . . . . .       C[i, j] = sum over k of
//            2   . . . . .              2   . . . . . . .                 a(k, i) * b(k, j)
//                  op(A)                        op(B)
//
// One of the strides is 1. Where it is stride_k, the operand is K-major: its neighbours in memory
// are neighbours along k (A in NN and NT, B in NT). Otherwise they are neighbours along i.
struct Operand {
  const float* data;
  size_t stride_k, stride_i;
  size_t depth;   // K
  size_t extent;  // M or N

  __device__ const float* at(size_t k, size_t i) const {
    return data + (k * stride_k + i * stride_i);
  }
};

// blockIdx.z counts the batch.
__device__ inline Operand operand_a(const Product& p) {
  const bool transposed = p.layout == Layout::TN;
  return {p.a + blockIdx.z * p.stride_a, transposed ? p.lda : 1, transposed ? 1 : p.lda, p.K, p.M};
}
__device__ inline Operand operand_b(const Product& p) {
  const bool transposed = p.layout == Layout::NT;
  return {p.b + blockIdx.z * p.stride_b, transposed ? 1 : p.ldb, transposed ? p.ldb : 1, p.K, p.N};
}
__device__ inline float* element_of_c(const Product& p, size_t row, size_t col) {
  return p.c + (blockIdx.z * p.stride_c + row * p.ldc + col);
}

// ---- The order of the blocks ------------------------------------------------------------------

inline constexpr unsigned kGroupRows = 16;  // rows of tiles in a group

// The first row and column of a block's tile of C.
struct TileOrigin {
  size_t row, col;
};

// The tile of this block. Blocks go down groups of kGroupRows rows of tiles (a swizzle of the
// blocks, also called grouped rasterisation), and not along the rows of C. The blocks that run at
// the same time then need few rows of A and few columns of B, which stay in the L2 cache.
//
//   0 2 4 6 ..      here with groups of 2 rows, and a last group of 1
//   1 3 5 7 ..
//   n n+1 n+2 ..
__device__ inline TileOrigin tile_origin(const Product& p, unsigned tile_m, unsigned tile_n) {
  const unsigned rows = static_cast<unsigned>(gpu::ceil_div(p.M, tile_m));
  const unsigned cols = static_cast<unsigned>(gpu::ceil_div(p.N, tile_n));
  const unsigned group_blocks = min(kGroupRows, rows) * cols;
  const unsigned first_row = blockIdx.x / group_blocks * kGroupRows;
  const unsigned in_group = blockIdx.x % group_blocks;
  const unsigned height = min(kGroupRows, rows - first_row);
  return {size_t{first_row + in_group % height} * tile_m, size_t{in_group / height} * tile_n};
}

// Calls run(grid, product) for tiles of tile_m x tile_n, unless C has no element: once, or several
// times for a batch that is longer than a grid can be high. Throws what check() throws.
template <class Run>
void with_grid(Product p, size_t tile_m, size_t tile_n, Run&& run) {
  check(p);
  if (p.alpha == 0) p.K = 0;
  const size_t rows = gpu::ceil_div(p.M, tile_m), cols = gpu::ceil_div(p.N, tile_n);
  constexpr size_t kMostBlocks = std::numeric_limits<std::int32_t>::max();
  if (rows == 0 || cols == 0) return;
  if (rows > kMostBlocks / cols) throw std::invalid_argument("gemm: C has too many tiles");
  for (; p.batch > 0; p.batch -= std::min(p.batch, gpu::kMaxGridY)) {
    const size_t products = std::min(p.batch, gpu::kMaxGridY);
    run(dim3(static_cast<unsigned>(rows * cols), 1, static_cast<unsigned>(products)), p);
    p.a += products * p.stride_a, p.b += products * p.stride_b, p.c += products * p.stride_c;
  }
}

// ---- What a kernel is compiled for ------------------------------------------------------------

// Do all rows of all matrices of a batch begin at multiples of 16 bytes?
__host__ __device__ inline bool rows_are_aligned(const float* data, size_t ld, size_t stride) {
  return reinterpret_cast<std::uintptr_t>(data) % sizeof(float4) == 0 && (ld | stride) % 4 == 0;
}

// Can each group of four neighbours in A and B be read as one float4, or left out as one?
inline bool is_aligned(const Product& p) {
  const size_t row_a = p.layout == Layout::TN ? p.M : p.K;
  const size_t row_b = p.layout == Layout::NT ? p.K : p.N;
  return (row_a | row_b) % 4 == 0 && rows_are_aligned(p.a, p.lda, p.stride_a) &&
         rows_are_aligned(p.b, p.ldb, p.stride_b);
}

// The layouts that a kernel is compiled for. A later step with an epilogue of its own names the
// layout that it needs, so that the others are not compiled.
template <Layout... kLayouts>
struct Layouts {};
using AllLayouts = Layouts<Layout::NN, Layout::NT, Layout::TN>;

// Throws std::invalid_argument for a layout that is not among kLayouts.
template <Layout... kLayouts>
void check_layout(const Product& p, Layouts<kLayouts...>) {
  if (((p.layout != kLayouts) && ...))
    throw std::invalid_argument("gemm: this epilogue was not compiled for the product's layout");
}

// Calls run(k_major_a, k_major_b, aligned) with three constants: are A and B K-major,
// is_aligned(p)? Throws what check_layout() throws.
template <class Run, Layout... kLayouts>
void dispatch(const Product& p, Layouts<kLayouts...> layouts, Run&& run) {
  check_layout(p, layouts);
  const bool aligned = is_aligned(p);
  const auto with_layout = [&](auto layout) {
    if (p.layout != layout()) return;
    using KMajorA = std::bool_constant<layout() != Layout::TN>;
    using KMajorB = std::bool_constant<layout() == Layout::NT>;
    aligned ? run(KMajorA{}, KMajorB{}, std::true_type{})
            : run(KMajorA{}, KMajorB{}, std::false_type{});
  };
  (with_layout(std::integral_constant<Layout, kLayouts>{}), ...);
}

}  // namespace gemm
