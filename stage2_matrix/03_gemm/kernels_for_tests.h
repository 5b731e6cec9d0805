// The launches that only the tests of step 2.3 need: gemm_test.hip defines them.
#pragma once

#include <cstddef>

#include "common/gpu_runtime.h"
#include "stage2_matrix/03_gemm/gemm.h"

namespace gemm_test {

using gemm::Product;

// best()'s tiles, its kernels for few results, and each tile that it chooses from.
void launch_large(const Product& p, hipStream_t stream);
void launch_medium(const Product& p, hipStream_t stream);
void launch_half(const Product& p, hipStream_t stream);
void launch_small(const Product& p, hipStream_t stream);
void launch_short_sums(const Product& p, hipStream_t stream);
void launch_long_sums(const Product& p, hipStream_t stream);
size_t count_candidates();
void launch_candidate(size_t index, const Product& p, hipStream_t stream);

// best() with an epilogue: max(0, C + bias of the column), of all layouts or of NT only.
void launch_bias_relu(const Product& p, const float* bias, hipStream_t stream);
void launch_long_sums_bias_relu(const Product& p, const float* bias, hipStream_t stream);
void launch_short_sums_bias_relu(const Product& p, const float* bias, hipStream_t stream);
void launch_nt_only(const Product& p, hipStream_t stream);

// The same, and sums[row] += the sum of op(A)'s row, by each tile that best() chooses from then.
void launch_row_sums(size_t index, const Product& p, float* sums, hipStream_t stream);

// Wrong kernels.
void launch_unchecked_column(float* c, const float* a, const float* b, size_t M, size_t N, size_t K,
                             hipStream_t stream);
void launch_without_barrier(bool first, bool second, float* c, const float* a, const float* b,
                            size_t M, size_t N, size_t K, hipStream_t stream);

}  // namespace gemm_test
