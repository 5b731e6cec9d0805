// The launches that `composed` is made of, forwards and, in step 7.5, backwards.
#pragma once

#include <cstddef>

#include "stage2_matrix/03_gemm/gemm.h"
#include "stage7_transformer/04_attention/views.h"

namespace attention {

// (B, H) products of step 2.3: one launch where all heads of all three arrays lie equally far
// apart, else one per sequence.
void multiply(gemm::Layout layout, size_t M, size_t N, size_t K, float alpha, const ConstView& a,
              const ConstView& b, const View& c, const Problem& p, hipStream_t stream);

// versions/composed.hip has the others. rows[b,h,t,d] = value    rows (B, H, T, D).
void launch_fill_rows(const View& rows, const Problem& p, size_t T, size_t D, float value,
                      hipStream_t stream);

// probabilities (B, H, Tq, Tk) and lse (unless it is null) of a problem in which all queries see.
// lse has Tq_of_lse queries for each head, of which the last are meant.
void launch_probabilities(float* probabilities, float* lse, size_t Tq_of_lse, const ConstView& q,
                          const ConstView& k, const Problem& p, hipStream_t stream);

// Of sums[t,d] = factor sum over the others s of m(t,s) rows[s,d], which a product has made of a
// causal problem in which all queries see, those that are not finite once more: over the s that t
// sees, or with kOfKeys over those that see the key t.
//                     sums (B, H, T, D)  rows (B, H, S, D)  m, or its transpose, (B, H, Tq, Tk)
template <bool kOfKeys>
void launch_repeat_sums(const View& sums, const float* m, const ConstView& rows, float factor,
                        const Problem& p, hipStream_t stream);

}  // namespace attention
