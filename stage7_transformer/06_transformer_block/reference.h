// The reference of 7.6 in double, and how far a float block is likely to be from it. Plain C++.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "common/rounding.h"
#include "stage4_forward/01_dense/reference.h"
#include "stage5_training/05_sequential/reference.h"
#include "stage7_transformer/06_transformer_block/problem.h"

namespace transformer_block {

using dense::Values;
using sequential::Approximate;

// The block in double. Every number carries how far a float version is likely to be from it: what
// its operands are off, through the derivative of the operation, and the operation's own rounding.
// Worst cases would be multiplied by the sum of a row's |w| in each product, and after four of them
// no mistake could break the bound. But roundings are independent, or nearly so, and as often up as
// down: their squares add up. A sum of n terms is then off by sqrt(n) u times the sum of their
// sizes where the worst case says n u, but with a probability of 2 exp(-k^2 / 2) by more than k
// times that (Higham and Mary: A new approach to probabilistic rounding error analysis, SIAM J.
// Sci. Comput. 41, 2019, theorem 3.1). k = 8 makes it 3e-14.
inline constexpr double kConfidence = 8;

inline Approximate rounded(double value, double inherited) {
  return {value, std::hypot(inherited, kFloatRoundoff * value)};
}
inline Approximate operator+(Approximate a, Approximate b) {
  return rounded(a.value + b.value, std::hypot(a.error, b.error));
}
inline Approximate operator-(Approximate a, Approximate b) {
  return rounded(a.value - b.value, std::hypot(a.error, b.error));
}
inline Approximate operator*(Approximate a, Approximate b) {
  return rounded(a.value * b.value, std::hypot(a.value * b.error, a.error * b.value));
}
inline Approximate exactly(float value) { return {static_cast<double>(value), 0}; }
inline Approximate rounded(double value) { return rounded(value, 0); }

// A sum of products in any order, fused or not.
class LikelySum {
 public:
  void add(Approximate a, Approximate b = {1, 0}) {
    const double left = a.value * b.error, right = a.error * b.value;
    value_ += a.value * b.value, absolute_ += std::fabs(a.value * b.value);
    inherited_ += left * left + right * right, ++terms_;
  }
  Approximate result() const {
    const double own = std::sqrt(terms_) * kFloatRoundoff * absolute_;
    return {value_, std::sqrt(inherited_ + own * own)};
  }

 private:
  double value_ = 0, absolute_ = 0, inherited_ = 0, terms_ = 0;
};

Values zeros(size_t n);
void put(Values& values, size_t i, Approximate a);
Values added(const Values& a, const Values& b);
// What a result is held against.
Values bounded(Values values);

// y (rows, out) = x (rows, in) w^T + bias. Its backward pass returns the gradient of x and appends
// those of w and bias.
Values linear_cpu(const Values& x, const std::vector<float>& w, const std::vector<float>& bias,
                  size_t rows);
Values linear_backward_cpu(std::vector<Values>& gradients, const Values& grad_y, const Values& x,
                           const std::vector<float>& w, size_t rows);

// (x - mean) rstd of each row, and rstd.
struct Normalized {
  Values hat, rstd;
};
Normalized normalized_cpu(const Values& x, size_t rows, size_t cols);
// Times the gain, plus the bias. The backward pass returns the gradient of x and appends those of
// gain and bias.
Values scaled_cpu(const Normalized& x, const std::vector<float>& gain,
                  const std::vector<float>& bias);
Values normalized_backward_cpu(std::vector<Values>& gradients, const Values& grad_y,
                               const Normalized& x, const std::vector<float>& gain);

// Causal attention over packed q, k, v (B, T, 3, H, D). Probabilities P (B, H, T, T) are kept.
struct Attended {
  Values y, probabilities;
};

// The forward pass, with all that the backward pass needs. `p` in the order of Tensors.
struct ForwardReference {
  Normalized hat1, hat2;
  Values norm1, qkv, h, norm2, sums, hidden, y;
  Attended attended;
};
ForwardReference forward_cpu(const Values& x, const std::vector<std::vector<float>>& p,
                             const Shape& shape);

// y, grad_x and the parameters' gradients, in the order of Tensors.
struct Reference {
  Values y, grad_x;
  std::vector<Values> gradients;
};

// Forward and backward of x and grad_y (B, T, C); the errors are bounds.
Reference block_cpu(const std::vector<float>& x, const std::vector<float>& grad_y,
                    const std::vector<std::vector<float>>& p, const Shape& shape);

}  // namespace transformer_block
