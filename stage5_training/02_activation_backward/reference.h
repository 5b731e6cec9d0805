// The references of 5.2 in double, and how far correct float results may be from them. Plain C++.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "common/rounding.h"
#include "stage1_vector/04_activations/reference.h"
#include "stage3_ml_ops/03_losses/reference.h"

namespace activation_backward {

using activations::kTiny;

// ---- Activations ------------------------------------------------------------------------------

// The slope of F computed from y = f(x), for the references of step 1.4: derivative_cpu(y), and
// what a float version's may be off.
template <class Activation>
struct SlopeOfOutput;

// y is positive where x is.
template <>
struct SlopeOfOutput<activations::Relu> : activations::Relu {};

// y (1 - y): a difference and a product.
template <>
struct SlopeOfOutput<activations::Sigmoid> {
  static double derivative_cpu(double y) { return y * (1 - y); }
  static double derivative_bound(double y) {
    return rounding::gamma(2) * std::fabs(derivative_cpu(y)) + kTiny;
  }
};

// (1 - y) (1 + y): two sums and a product.
template <>
struct SlopeOfOutput<activations::Tanh> {
  static double derivative_cpu(double y) { return (1 - y) * (1 + y); }
  static double derivative_bound(double y) {
    return rounding::gamma(3) * std::fabs(derivative_cpu(y)) + kTiny;
  }
};

// 1 - exp(-y): 6 u from expm1f (3 ulp, OpenCL's promise).
template <>
struct SlopeOfOutput<activations::Softplus> {
  static double derivative_cpu(double y) { return -std::expm1(-y); }
  static double derivative_bound(double y) {
    return rounding::gamma(6) * std::fabs(derivative_cpu(y)) + kTiny;
  }
};

// grad_x and grad_bias in double, and what a float version may be off.
struct Expected {
  std::vector<double> grad_x, bound_x, grad_bias, bound_bias;
};

// `kept` is x, with the slope of F, or y, with that of SlopeOfOutput<F>. A column's sum inherits
// what its elements are off; a sum whose terms go through at most `roundings` additions adds
// rounding::worst_case, and beta times what was there before (unless beta is 0) two roundings more,
// as in gemv.h.
template <class Slope>
Expected backward_cpu(const std::vector<float>& grad_y, const std::vector<float>& kept, size_t cols,
                      double roundings, float beta, const std::vector<float>& before) {
  Expected want{activations::backward_cpu<Slope>(kept, grad_y), std::vector<double>(kept.size()),
                std::vector<double>(cols), std::vector<double>(cols)};
  std::vector<double> absolute(cols);
  for (size_t i = 0; i < kept.size(); ++i) {
    const size_t col = i % cols;
    want.bound_x[i] = activations::backward_bound<Slope>(static_cast<double>(kept[i]),
                                                         static_cast<double>(grad_y[i]));
    want.grad_bias[col] += want.grad_x[i];
    want.bound_bias[col] += want.bound_x[i];
    absolute[col] += std::fabs(want.grad_x[i]) + want.bound_x[i];
  }
  for (size_t col = 0; col < cols; ++col) {
    const double old = beta == 0 ? 0 : static_cast<double>(beta) * static_cast<double>(before[col]);
    want.grad_bias[col] += old;
    want.bound_bias[col] +=
        rounding::worst_case(roundings + 2, static_cast<double>(kept.size() / cols) + 3,
                             absolute[col] + std::fabs(old)) +
        kTiny;
  }
  return want;
}

// ---- Softmax ----------------------------------------------------------------------------------

// grad_x in double for rows of `cols`, and what a float result may be off whose sums' terms go
// through at most `roundings` operations: both terms of an element round with the sum, the
// difference and the product.
void softmax_backward_cpu(const std::vector<float>& grad_p, const std::vector<float>& p,
                          size_t cols, double roundings, std::vector<double>& grad_x,
                          std::vector<double>& bound);

// ---- Softmax and cross-entropy ----------------------------------------------------------------

// A gradient in double, and what a float version may be off.
struct LossGradient {
  std::vector<double> grad, bound;
};

// From the logits, by the reference and the bounds of step 3.3. From p, which is (rows, classes) as
// it is stored: `composed` rounds three times on the way to grad_p, and then as softmax_backward
// does; the formula of `from_probabilities` rounds four times.
LossGradient cross_entropy_backward_cpu(const losses::HostRows& rows, const std::vector<float>& p,
                                        bool from_logits);

}  // namespace activation_backward
