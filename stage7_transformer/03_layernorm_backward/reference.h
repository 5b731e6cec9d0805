// The reference of 7.3 in double, and how far correct float gradients may be from it. Plain C++.
#pragma once

#include <cstddef>
#include <vector>

#include "common/rounding.h"
#include "stage4_forward/01_dense/reference.h"

namespace layernorm_backward {

using dense::Terms;

// A gradient in double, and what a float version may be off.
struct Expected {
  std::vector<double> value, bound;
};

// The rows of grad_x whose mean and rstd are given, those that the forward pass has left: they
// count as exact. grad_residual may be empty.
//
// g, n and the two sums over the row are each rounded a few times on their way into an element: at
// most 12 roundings of g, of the mean of g, of n times the mean of g n, and of the residual. Beside
// that the two sums have the bounds of their kind of `terms`: `any` for rounding::random_bound,
// `mean_zero` for rounding::mean_zero_bound, where the signs of grad_y are random; or
// rounding::worst_case where that is less. A term goes through `cols` additions at most.
Expected grad_x_cpu(const std::vector<float>& grad_y, const std::vector<float>& x,
                    const std::vector<float>& gain, const std::vector<float>& mean,
                    const std::vector<float>& rstd, const std::vector<float>& grad_residual,
                    Terms terms = Terms::any);

// The largest odd divisor of `cols`. Where every gain is a multiple of it, and all else are
// integers, the means over the row are integers over a power of two.
std::size_t odd_divisor(std::size_t cols);

// Whether grad_x is then exact in float, with |x|, |mean|, |grad_y| <= 3, rstd 1 or 2 and |gain| <=
// 3 odd: |g| <= 9 odd and |g n| <= 108 odd, so that a row's sum is at most 108 odd cols; and
// g - mean - n mean is at most 1314 odd, in units of odd / cols. Integers up to 2^24 are exact.
bool sums_are_exact(std::size_t cols);

// The gradients of gain and bias, sums over all rows.
struct ColumnGradients {
  Expected gain, bias;
};
ColumnGradients columns_cpu(const std::vector<float>& grad_y, const std::vector<float>& x,
                            const std::vector<float>& mean, const std::vector<float>& rstd,
                            std::size_t cols, Terms terms = Terms::any);

}  // namespace layernorm_backward
