// 2.4  C = A B of floats, with float's accuracy: a second ladder of this step, whose first rung is
// 2.3's best version. A (M, K), B (K, N), C (M, N), row-major without gaps between rows.
//
// `workspace` is device memory, workspace_bytes(M, K) of it and aligned to 16 bytes, which no other
// stream may use at the same time. It may be null where workspace_bytes is 0. Otherwise as
// gemm_mixed.h says.
#pragma once

#include <cstddef>

#include "stage2_matrix/03_gemm/gemm.h"
#include "stage2_matrix/04_gemm_mixed/gemm_mixed.h"

namespace gemm_mixed {

// For the two parts of A. 0 on AMD.
size_t workspace_bytes(size_t M, size_t K);

// gemm::best (2.3), on float units. It needs no workspace.
void launch_float_units(float* c, const float* a, const float* b, size_t M, size_t N, size_t K,
                        void* workspace, hipStream_t stream = nullptr);

// versions/three_products_sm90.hip. B and C want rows that begin at multiples of 16 bytes (M, N, K
// <= 2^30), else gemm::best is launched. Throws std::runtime_error on AMD.
//
// Its error stays within 2.3's bounds. Infinities and NaN give what float arithmetic gives, with
// these limits:
//   - Where a product or a sum comes within a 2^-10th of the largest float, or exceeds it, the
//     result may be infinite or NaN. A number within a 2^-12th of the largest float keeps 11 bits.
//   - Of a number below 2^-113, what is below 2^-136 is lost. A number below 2^-137 is 0; where it
//     meets an infinity the result is NaN. A result below 2^-126 may be 0.
void launch_three_products(float* c, const float* a, const float* b, size_t M, size_t N, size_t K,
                           void* workspace, hipStream_t stream = nullptr);

// gemm::best for those who want the product soonest: three_products where the device has it, p is
// its product (NN, alpha 1, beta 0, no gaps, no batch) and large enough to keep half of the
// multiprocessors busy; else gemm::best. Throws what gemm::check throws.
void accurate(const gemm::Product& p, void* workspace, hipStream_t stream = nullptr);

using LaunchOfFloats = void (*)(float* c, const float* a, const float* b, size_t M, size_t N,
                                size_t K, void* workspace, hipStream_t stream);

inline constexpr Version<LaunchOfFloats> kVersionsOfFloats[] = {
    {"float_units", launch_float_units, "2.3's best: no matrix unit"},
    {"three_products", launch_three_products,
     "floats in two tf32 parts; partial sums are added in float", kNeedsOfSm90},
};

}  // namespace gemm_mixed
