// The reference of 2.3 in double, and how far a correct float result may be from it.
#pragma once

#include <cstddef>
#include <vector>

#include "stage2_matrix/03_gemm/gemm.h"

namespace gemm {

// Chosen rows of C and what their bounds are made of, row behind row.
struct Reference {
  std::vector<double> c;
  std::vector<double> absolute;      // sum over k of |op(A)[row, k] op(B)[k, column]|
  std::vector<double> before;        // beta C, with C as it was; 0 if beta is 0
  std::vector<double> squares = {};  // sum over k of (op(A)[row, k] op(B)[k, column])^2
};

// The rows `rows` of product p (batch 1), whose arrays on the host are a, b and c.
Reference gemm_cpu(const Product& p, const std::vector<float>& a, const std::vector<float>& b,
                   const std::vector<float>& c, const std::vector<size_t>& rows);

// The largest |got - want| of element i of a correct float result. Each product goes through at
// most K + 2 roundings: its own, the additions in any order, and those of alpha and beta. Rounding
// errors go up as often as down, so that they add up to 8 sqrt(K + 2) u sum |terms|, but for one
// element in 10^13 (rounding::random_bound has the source). Zeros that are added change nothing.
double bound(const Product& p, const Reference& reference, size_t i);

// The same where A and B are random with mean zero, as the program's are: the sums on the way stay
// small, too, and 8 sqrt(K + 2) u sqrt(sum terms^2) + u |C| is enough (rounding::mean_zero_bound).
double bound_of_mean_zero(const Product& p, const Reference& reference, size_t i);

}  // namespace gemm
