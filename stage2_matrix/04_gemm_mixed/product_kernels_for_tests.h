// What detail/wrong_pairs_for_tests.h has for product_test.cpp: products with epilogues, and
// mistakes.
#pragma once

#include <optional>

#include "stage2_matrix/04_gemm_mixed/product.h"

namespace gemm_mixed_test {

// C = relu(sum + bias + residual), where residual (M, N) has no gaps.
template <class T, class C>
void launch_residual(gemm_mixed::Kernel kernel, const gemm_mixed::Product<T, C>& p,
                     const float* bias, const float* residual);

// kept = sum + bias and C = -kept, where kept (M, N) has no gaps. Without a kernel: by best().
template <class C>
void launch_kept(std::optional<gemm_mixed::Kernel> kernel,
                 const gemm_mixed::Product<gpu::bfloat16, C>& p, const float* bias, C* kept);

// In the kernel of pairs.
enum class PairMistake {
  none,
  a_read_the_other_way,
  b_read_the_other_way,
  step_of_the_other_way,
  half_of_b_in_the_other_half,
  boxes_of_half_the_rows,
  first_box_of_a_twice,
  rows_of_the_other_consumer,
  batch_of_one_a,
  rows_of_c_without_gaps,
  epilogue_of_the_first_tile,
};
inline constexpr int kPairMistakes = static_cast<int>(PairMistake::epilogue_of_the_first_tile) + 1;

// C = A B + 1000 row + column by that kernel, with one mistake.
void launch_pairs(PairMistake mistake, const gemm_mixed::Product<gpu::bfloat16, float>& p);

}  // namespace gemm_mixed_test
