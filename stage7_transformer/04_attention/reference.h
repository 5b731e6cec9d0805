// The reference of 7.4 in double, and how far a correct float result may be from it. Plain C++.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "common/rounding.h"
#include "stage4_forward/01_dense/reference.h"
#include "stage7_transformer/04_attention/views.h"

namespace attention {

using dense::Terms;
using dense::Values;

// What an element of the two sums of a row, of exponentials and of exponentials times values, goes
// through at most, and what matrix units do differently.
struct Roundings {
  double exponentials;    // as whose product it is computed
  double additions;       // of float
  double of_product = 1;  // that each term of a sum of products may lose
  double of_stored = 0;   // relative, of what is stored with fewer bits than a float has
};
Roundings float_roundings(const Problem& p);  // of any version for float
Roundings bf16_roundings(const Problem& p);   // of any version for bf16

// A row of one head: the queries' row, and all keys and values, (Tk, D) without gaps.
struct RowOf {
  const float *q, *k, *v;
};

// What becomes of a row in double, and how far a float version may be off.
struct ExpectedRow {
  std::vector<double> out, out_error;                      // (D)
  std::vector<double> probability, relative, score_error;  // of the keys that are seen
  double lse = -std::numeric_limits<double>::infinity(), lse_error = 0;
};

// a . b of D floats, with what their sum's bounds are made of.
rounding::Sum dot_row(const float* a, const float* b, size_t D);

// The row of a query that sees the keys [0, visible). With Terms::mean_zero the signs of q, k and v
// are random: the bounds are those of independent errors, and one missing key exceeds them.
ExpectedRow row_cpu(const RowOf& row, size_t visible, const Problem& p, const Roundings& roundings,
                    Terms terms = Terms::any);

// The rows `rows`, numbers in (B, H, Tq), of out and lse; arrays (B, H, T, D) on the host.
struct Expected {
  Values out, lse;
};
Expected forward_cpu(const std::vector<float>& q, const std::vector<float>& k,
                     const std::vector<float>& v, const Problem& p, const Roundings& roundings,
                     const std::vector<size_t>& rows, Terms terms = Terms::any);

}  // namespace attention
