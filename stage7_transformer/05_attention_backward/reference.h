// The reference of 7.5 in double, and how far correct gradients may be from it. Plain C++.
#pragma once

#include <cstddef>
#include <vector>

#include "stage7_transformer/04_attention/reference.h"

namespace attention_backward {

using attention::Problem;
using attention::Roundings;
using attention::Terms;
using attention::Values;

struct Head {
  const float *q, *k, *v, *grad_out;  // (Tq, D), (Tk, D), (Tk, D), (Tq, D)
};
struct ExpectedGradients {
  Values q, k, v;
};

// The gradients of one head, from grad_out: rows `queries` of grad_q, rows `keys` of grad_k and
// grad_v, row behind row; both ascending. With Terms::mean_zero the signs of all inputs are random:
// the bounds are those of independent errors, and one missing pair of a query and a key exceeds
// them. reference.cpp derives the bounds.
ExpectedGradients backward_cpu(const Head& head, const Problem& p, const Roundings& roundings,
                               const std::vector<size_t>& queries, const std::vector<size_t>& keys,
                               Terms terms = Terms::any);

}  // namespace attention_backward
