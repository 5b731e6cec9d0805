// The mistakes with fp8's tiles that the tests plant. gemm_mixed_test.hip has the kernels.
#pragma once

#include <cstddef>

#include "common/fp8.h"
#include "common/gpu_runtime.h"

namespace gemm_mixed_test {

enum class Fp8Mistake {
  none,
  stage_not_awaited,
  tiles_not_awaited,
  bytes_of_a_only_expected,
  half_for_own_block_only,
  same_half_by_both,
  tells_own_block_only,
  products_not_awaited,
  no_swizzle_described,
  b_taken_across_k,
  halves_of_b_exchanged,
  row_taken_for_k,
  depth_of_16_bit_numbers,
  step_of_16_numbers,
  rows_of_the_other_consumer,
  new_sums_in_each_stage,
};
inline constexpr int kFp8Mistakes = static_cast<int>(Fp8Mistake::new_sums_in_each_stage) + 1;

// c = a b^T for a pair of tiles of C, as fp8 computes it: M = 256, N = 256, K a multiple of 128.
void launch_fp8_pair(Fp8Mistake mistake, float* c, const gpu::fp8* a, const gpu::fp8* b, size_t M,
                     size_t N, size_t K, hipStream_t stream);

}  // namespace gemm_mixed_test
