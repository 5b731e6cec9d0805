// The reference of fp8's products in double, and what a correct result may be off.
#pragma once

#include <cstddef>
#include <vector>

#include "common/fp8.h"

namespace gemm_mixed {

// rows x N elements of C, row by row.
struct Fp8Reference {
  std::vector<double> value;
  std::vector<double> bound;
};

// The product of `rows` rows of A (rows, K) with B^T, B (N, K).
//
// The products are exact, and Hopper's unit keeps few bits of their sum. It adds up to 32 products
// to the sum at a time: it shifts all numbers to the largest exponent among them, cuts off what is
// more than 13 bits behind the first one there, and cuts the result as well. (DeepSeek-V3 Technical
// Report, arXiv:2412.19437, section 3.3.2: "around 14 bits". Of the method: Fasi et al., see
// reference.h.) So each cut goes towards zero and loses less than u = 2^-13 times the largest power
// of two in these numbers. That is 1000 times as much as of 16-bit numbers: a bound from K and the
// sum of squares would be as large as the result. This one follows each sum instead. Let L_g be
// that power of the products and the exact partial sums of group g, 16 products.
//
//   cuts of the sum       two for each group, of one sign as long as the sum keeps its own:
//                         2 u sum L_g.
//   cuts of the products  of random signs: lambda u sqrt(16 sum L_g^2).
//
// What was lost makes the next sums smaller or larger, and their cuts with them: times
// exp(2 u groups), 1.13 with K = 8192. A unit that takes 32 products at a time loses less. Sums in
// float lose far less. Terms must have random signs.
//
// A missing term of median size, 0.187 for numbers in [-1, 1), is larger than this up to a K of
// 160. With K = 8192 the bound is an eighth of a typical result: it shows wrong rows and tiles, and
// missing stages. There, single terms show in small integers, whose sums below 2^13 are exact in 14
// bits.
Fp8Reference gemm_fp8_cpu(const std::vector<gpu::fp8>& a, const std::vector<gpu::fp8>& b,
                          std::size_t rows, std::size_t N, std::size_t K);

}  // namespace gemm_mixed
