// The launches that `composed` is made of, forwards and, in step 7.5, backwards.
#pragma once

#include <cstddef>
#include <initializer_list>

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

// The grid of a kernel that goes over (B, H, Tq, Tk) scores without a quotient: blocks of
// vector_add::kBlock keys along x, queries along y, heads along z. It goes round over the latter.
dim3 grid_of_scores(const Problem& p);

// What a product has made: sums[t,d] = factor sum over the others s of m(t,s) rows[s,d]. Rows of
// sums are queries, or of_keys: keys.
//                     sums (B, H, T, D)  rows (B, H, S, D)  m, or its transpose, (B, H, Tq, Tk)
struct PairSums {
  View sums;
  const float* m;
  ConstView rows;
  float factor;
  bool of_keys;
};

// Of up to kMostPairSums such arrays those sums that are not finite once more: over the others that
// see, or are seen by, the sum's row, as far as there is a mask. All queries see some key.
inline constexpr size_t kMostPairSums = 3;
void launch_repeat_sums(std::initializer_list<PairSums> all, const Problem& p, hipStream_t stream);

}  // namespace attention
