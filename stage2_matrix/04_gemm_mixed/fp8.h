// 2.4  C = A B^T of 8-bit floats on matrix units: A (M, K) and B (N, K) in e4m3 (common/fp8.h), C
// (M, N) in float, row-major without gaps between rows. A third ladder of this step.
//
// B has K along its rows: wgmma takes 8-bit numbers in no other way. A layer's weights (outputs,
// inputs) lie so. launch_round<gpu::fp8> makes A and B from floats: numbers are scaled to ±448
// before, and C is scaled back by whoever uses it.
//
// Every launcher takes any M, N, K. If K is 0 the result is 0. c must not overlap a or b. The work
// is queued on `stream`. Errors: gpu::Error where the launch is refused.
#pragma once

#include <cstddef>

#include "common/fp8.h"
#include "common/version.h"
#include "stage2_matrix/04_gemm_mixed/gemm_mixed.h"

namespace gemm_mixed {

// versions/fp8_naive.hip: one thread per element of C. Its sums are kept in float.
void launch_fp8_naive(float* c, const gpu::fp8* a, const gpu::fp8* b, size_t M, size_t N, size_t K,
                      hipStream_t stream = nullptr);

// versions/fp8_sm90.hip: clusters for 8-bit numbers. Its sums are kept in 14 bits while the matrix
// unit adds to them. It wants rows that begin at multiples of 16 bytes (M, N, K <= 2^30): K a
// multiple of 16 and N of 4. Else it launches fp8_naive. Throws std::runtime_error on AMD.
void launch_fp8(float* c, const gpu::fp8* a, const gpu::fp8* b, size_t M, size_t N, size_t K,
                hipStream_t stream = nullptr);

inline constexpr Version<Launch<gpu::fp8>> kVersionsOfFp8[] = {
    {"fp8_naive", launch_fp8_naive, "one thread per element of C, no matrix unit"},
    {"fp8", launch_fp8, "clusters for 8-bit numbers: twice as many in the same bytes",
     kNeedsOfSm90},
};

}  // namespace gemm_mixed
