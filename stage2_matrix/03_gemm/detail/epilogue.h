// Epilogues: what a kernel does to each sum before it is stored.
#pragma once

#include <cstddef>

#include "common/gpu.h"
#include "stage2_matrix/03_gemm/detail/product.h"
#include "stage2_matrix/03_gemm/detail/thread_tile.h"

namespace gemm {

// An epilogue is a functor (sum, row, col, c): the value to store at [row, col], where c points to
// what is there now. This one is the BLAS's, alpha sum + beta C; later steps add a bias, a residual
// or an activation. One with a row_sum(row, sum) is also given the sums of op(A)'s rows, once each
// (row_sums.h).
struct AlphaBeta {
  float alpha, beta;
  __device__ float operator()(float sum, size_t, size_t, const float* c) const {
    return beta == 0 ? alpha * sum : alpha * sum + beta * *c;  // 0 * NaN would be NaN
  }
};

// If K is 0 the result is beta C, even if alpha is infinite.
__host__ __device__ inline AlphaBeta alpha_beta(const Product& p) {
  return {p.K == 0 ? 0 : p.alpha, p.beta};
}

// Stores epilogue(sum) for each of a thread's sums that lies in C, 16 bytes at a time where four
// neighbours do. Where a block has slices, only the rows that belong to the thread's slice.
template <class Shape, class Epilogue>
__device__ inline void store_tile(const Product& p, const Epilogue& epilogue,
                                  const TileOrigin& origin, const ThreadTile& own,
                                  const float (&sums)[Shape::kThreadM][Shape::kThreadN],
                                  int slice = 0) {
  const bool aligned = rows_are_aligned(p.c, p.ldc, p.stride_c);
  GPU_UNROLL
  for (int j = 0; j < Shape::kThreadN; j += 4) {
    const size_t col = origin.col + own.col + j / 4 * own.col_step;
    GPU_UNROLL
    for (int i = 0; i < Shape::kThreadM; ++i) {
      const size_t row = origin.row + own.row + i / 4 * own.row_step + i % 4;
      if (row >= p.M || i % Shape::kSlices != slice) continue;
      float* c = element_of_c(p, row, col);
      if (aligned && col + 4 <= p.N) {
        *reinterpret_cast<float4*>(c) = make_float4(epilogue(sums[i][j], row, col, c),
                                                    epilogue(sums[i][j + 1], row, col + 1, c + 1),
                                                    epilogue(sums[i][j + 2], row, col + 2, c + 2),
                                                    epilogue(sums[i][j + 3], row, col + 3, c + 3));
      } else {
        for (int e = 0; e < 4; ++e)
          if (col + e < p.N) c[e] = epilogue(sums[i][j + e], row, col + e, c + e);
      }
    }
  }
}

}  // namespace gemm
