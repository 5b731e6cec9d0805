// 2.4  Products of floats, with float's accuracy: a second ladder of this step, whose first rung is
// 2.3's best version. All take every gemm::Product and throw what gemm::check() throws.
//
// `workspace` is device memory, workspace_bytes(p) of it and aligned to 16 bytes, which no other
// stream may use at the same time. It may be null where workspace_bytes is 0.
#pragma once

#include <cstddef>

#include "stage2_matrix/03_gemm/gemm.h"
#include "stage2_matrix/04_gemm_mixed/gemm_mixed.h"

namespace gemm_mixed {

// What is enough for all versions on the current device: for float_ring the transposed copy of B in
// NT and the sums of tiles that blocks share, for three_products the two parts of A in NN. 0 on
// AMD.
size_t workspace_bytes(const gemm::Product& p);
size_t float_ring_bytes(const gemm::Product& p);
size_t three_products_bytes(const gemm::Product& p);

// gemm::best (2.3), on float units. It needs no workspace.
void launch_float_units(const gemm::Product& p, void* workspace, hipStream_t stream = nullptr);

// versions/float_ring_sm90.hip: float units whose tiles the TMA copies. NN and TN, and NT with a
// transposed copy of B. A and B want rows that begin at multiples of 16 bytes (M, N, K <= 2^30), in
// NT the workspace and B without gaps; else, for a batch and for alpha = 0, gemm::best is launched.
// Throws std::runtime_error on AMD.
void launch_float_ring(const gemm::Product& p, void* workspace, hipStream_t stream = nullptr);

// versions/three_products_sm90.hip, for C = A B without a batch and without gaps between rows. B
// and C want rows that begin at multiples of 16 bytes (M, N, K <= 2^30). gemm::best is launched for
// all others. Throws std::runtime_error on AMD.
//
// Its error stays within 2.3's bounds. Infinities and NaN give what float arithmetic gives, with
// these limits:
//   - Where a product or a sum comes within a 2^-10th of the largest float, or exceeds it, the
//     result may be infinite or NaN. A number within a 2^-12th of the largest float keeps 11 bits.
//   - Of a number below 2^-113, what is below 2^-136 is lost. A number below 2^-137 is 0; where it
//     meets an infinity the result is NaN. A result below 2^-126 may be 0.
void launch_three_products(const gemm::Product& p, void* workspace, hipStream_t stream = nullptr);

// For those who want the product soonest: three_products where the device has it, p is its product
// and large enough to keep half of the multiprocessors busy; else float_best().
void accurate(const gemm::Product& p, void* workspace, hipStream_t stream = nullptr);

// For those who want float's own arithmetic: float_ring where the device has it, and it takes p and
// fills the multiprocessors; else gemm::best.
void float_best(const gemm::Product& p, void* workspace, hipStream_t stream = nullptr);

// What a version takes, else it launches gemm::best. `workspace` as above.
bool float_ring_takes(const gemm::Product& p, const void* workspace);
bool three_products_take(const gemm::Product& p, const void* workspace);

using LaunchOfFloats = void (*)(const gemm::Product& p, void* workspace, hipStream_t stream);

inline constexpr Version<LaunchOfFloats> kVersionsOfFloats[] = {
    {"float_units", launch_float_units, "2.3's best: no matrix unit"},
    {"float_ring", launch_float_ring,
     "the TMA copies tiles four stages ahead; float units multiply", kNeedsOfSm90},
    {"three_products", launch_three_products,
     "floats in two tf32 parts; partial sums are added in float", kNeedsOfSm90},
};

}  // namespace gemm_mixed
