// A normalization in double, of either Number (double_numbers.h). Plain C++.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "stage7_transformer/06_transformer_block/double_numbers.h"
#include "stage7_transformer/06_transformer_block/problem.h"

namespace transformer_block {

// x (rows, cols): hat (rows, cols) = (x - mean) rstd, and rstd (rows). A version may take the mean
// of x - x[r,0], whose elements are up to `spread` from 0, and the variance in one pass, with an
// error that grows with sqrt(1 + mean^2 / variance) (Chan, Golub, LeVeque: Algorithms for computing
// the sample variance, 1983, section 3). 4 u for the root and its reciprocal.
template <class Number>
void normalize(Values& hat, Values& rstd, const Values& x, size_t cols) {
  const size_t rows = x.value.size() / cols;
  const double n = static_cast<double>(cols);
  hat = zeros<Number>(rows * cols), rstd = zeros<Number>(rows);
  for (size_t row = 0; row < rows; ++row) {
    const size_t begin = row * cols, end = begin + cols;
    Total<Number> sum;
    double spread = 0;
    for (size_t i = begin; i < end; ++i) {
      sum.add(number<Number>(x, i));
      spread = std::fmax(spread, std::fabs(x.value[i] - x.value[begin]));
    }
    Number mean = sum.result() * constant<Number>(1 / n);
    if constexpr (kHasError<Number>)
      mean.error = std::hypot(mean.error, std::sqrt(n + 8) * kRounding * spread);
    double variance = 0, moved = 0;
    for (size_t i = begin; i < end; ++i) {
      const Number centred = number<Number>(x, i) - mean;
      variance += value_of(centred) * value_of(centred) / n;
      if constexpr (kHasError<Number>) moved += std::pow(2 * centred.value * centred.error / n, 2);
    }
    const double divisor = variance + static_cast<double>(kEpsilon);
    Number root{1 / std::sqrt(divisor)};
    if constexpr (kHasError<Number>) {
      const double size = std::sqrt(variance * (variance + mean.value * mean.value));
      const double off = std::sqrt(moved) + std::sqrt(2 * n + 8) * kRounding * size;
      root.error = root.value * std::hypot(off / (2 * divisor), 4 * kRounding);
    }
    put(rstd, row, root);
    for (size_t i = begin; i < end; ++i) put(hat, i, (number<Number>(x, i) - mean) * root);
  }
}

// hat gain + bias.
template <class Number>
Values scale(const Values& hat, const Values& gain, const Values& bias) {
  const size_t cols = gain.value.size();
  Values y = zeros<Number>(hat.value.size());
  for (size_t i = 0; i < y.value.size(); ++i)
    put(y, i,
        number<Number>(hat, i) * number<Number>(gain, i % cols) + number<Number>(bias, i % cols));
  return y;
}

// grad_x = rstd (g - mean(g) - hat mean(g hat)) of each row with g = grad_y gain; appends the
// gradients of gain and bias.
template <class Number>
Values normalize_backward(std::vector<Values>& gradients, const Values& grad_y, const Values& hat,
                          const Values& rstd, const Values& gain) {
  const size_t cols = gain.value.size(), rows = rstd.value.size();
  const Number share = constant<Number>(1 / static_cast<double>(cols));
  Values grad_x = zeros<Number>(rows * cols);
  std::vector<Total<Number>> of_gain(cols), of_bias(cols);
  for (size_t row = 0; row < rows; ++row) {
    Total<Number> sum, product;
    for (size_t c = 0; c < cols; ++c) {
      const Number grad = number<Number>(grad_y, row * cols + c);
      const Number normal = number<Number>(hat, row * cols + c);
      const Number of_hat = grad * number<Number>(gain, c);
      sum.add(of_hat), product.add(of_hat, normal);
      of_gain[c].add(grad, normal), of_bias[c].add(grad);
    }
    const Number mean = sum.result() * share, slope = product.result() * share;
    for (size_t i = row * cols; i < (row + 1) * cols; ++i) {
      const Number of_hat = number<Number>(grad_y, i) * number<Number>(gain, i % cols);
      put(grad_x, i, (of_hat - mean - number<Number>(hat, i) * slope) * number<Number>(rstd, row));
    }
  }
  gradients.push_back(results(of_gain)), gradients.push_back(results(of_bias));
  return grad_x;
}

}  // namespace transformer_block
