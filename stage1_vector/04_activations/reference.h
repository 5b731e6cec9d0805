// The references of 1.4 in double, and what a correct float result may be off. The formulas and
// their bounds stand in detail/formulas.h, beside what they are held against.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "stage1_vector/04_activations/detail/formulas.h"

namespace activations {

// f(x[i]).
template <class Activation>
std::vector<double> forward_cpu(const std::vector<float>& x) {
  std::vector<double> y(x.size());
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = Activation::cpu(static_cast<double>(x[i]));
  return y;
}

// grad_y[i] * f'(x[i]); both arrays have the same length.
template <class Activation>
std::vector<double> backward_cpu(const std::vector<float>& x, const std::vector<float>& grad_y) {
  std::vector<double> grad_x(x.size());
  for (std::size_t i = 0; i < grad_x.size(); ++i)
    grad_x[i] =
        static_cast<double>(grad_y[i]) * Activation::derivative_cpu(static_cast<double>(x[i]));
  return grad_x;
}

// Forward: Activation::bound(x). Backward multiplies the derivative's error by grad_y and rounds
// the product.
template <class Activation>
double backward_bound(double x, double grad_y) {
  return std::fabs(grad_y) *
             (Activation::derivative_bound(x) + kU * std::fabs(Activation::derivative_cpu(x))) +
         kTiny;
}

}  // namespace activations
