// What losses are made of, in double. None of it shares code with the references of the steps' own
// tests but for the activations' formulas.
#pragma once

#include <cstddef>
#include <vector>

namespace gradient_check {

// A layer's outputs become one number by random weights, which are then the gradient by them.
double weighted_sum(const std::vector<double>& y, const std::vector<float>& weights);

// x w^T + bias for x (batch, in), w (out, in).
std::vector<double> affine(const std::vector<double>& x, const std::vector<double>& w,
                           const std::vector<double>& bias, std::size_t batch);

// x[r,c] + bias[c].
std::vector<double> biased(std::vector<double> x, const std::vector<double>& bias);

template <class Activation>
std::vector<double> activated(std::vector<double> values) {
  for (double& value : values) value = Activation::cpu(value);
  return values;
}

double log_sum_exp(const double* x, std::size_t n);

// The mean of log(sum exp x) - x[label] over the rows whose label is not kIgnoreIndex.
double mean_cross_entropy(const std::vector<double>& x, const std::vector<int>& labels);

}  // namespace gradient_check
