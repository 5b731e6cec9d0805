// The reference of 2.4 in double, and what a correct float result may be off.
#pragma once

#include <cstddef>
#include <vector>

#include "common/rounding.h"

namespace gemm_mixed {

// The product of `rows` rows of A (rows, K) with B (K, N), row by row: the values, and the sums of
// the terms' absolute values and squares. For T = gpu::half, gpu::bfloat16 and float.
template <class T>
rounding::Sums gemm_mixed_cpu(const std::vector<T>& a, const std::vector<T>& b, std::size_t rows,
                              std::size_t N, std::size_t K);

// Both bounds are for an element of C with K terms. Its products are exact: two fractions of at
// most 11 bits make one of 22. What rounds are the additions. A matrix unit adds n products to the
// sum at a time, n >= 4. It shifts all n + 1 numbers to the largest exponent among them, cuts off
// what is below float's last bit there (or one or two bits further down), adds them, and cuts the
// result to a float. (Fasi, Higham, Mikaitis, Pranesh: Numerical behavior of NVIDIA tensor cores.
// PeerJ Computer Science 7:e330, 2021.) Each cut goes towards zero and loses less than 2 u times
// the largest number present. A version that rounds to nearest loses at most u times the sum, once
// per product. u = 2^-24 is float's unit roundoff.

// For terms of any signs. No number is larger than `absolute`, the sum of the terms' absolute
// values. There are n + 2 cuts for each n products, at most 3/2 K in all: 3 K u `absolute`.
double bound(double K, double absolute);

// For terms with random signs, `squares` the sum of their squares. No partial sum is larger than
// S = lambda sqrt(squares), but for a chance of kFalseAlarm (Azuma's inequality, in its form for
// the largest of all partial sums: Hoeffding, Probability inequalities for sums of bounded random
// variables, J. Amer. Stat. Assoc. 58, 1963).
//
//   cuts of the sum       two for each n products, K/2 + 2 at most. The sum often keeps its sign
//                         for thousands of terms, and all cuts then have the same sign, so their
//                         sizes add up: (K/2 + 2) 2 u S.
//   cuts of the products  K at most. Each has the sign of its product, which is random, so they add
//                         up like a sum with random signs: lambda sqrt(K) 2 u S.
//
// Roundings to nearest lose K u S at most, which is less. A missing term of median size, 0.187 for
// numbers in [-1, 1), is larger than this bound up to K = 10,000.
double mean_zero_bound(double K, double squares);

}  // namespace gemm_mixed
