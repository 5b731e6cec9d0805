#include "stage5_training/03_gradient_check/reference.h"

#include <cmath>

#include "stage5_training/03_gradient_check/problem.h"

namespace gradient_check {

double weighted_sum(const std::vector<double>& y, const std::vector<float>& weights) {
  double sum = 0;
  for (std::size_t i = 0; i < y.size(); ++i) sum += static_cast<double>(weights[i]) * y[i];
  return sum;
}

std::vector<double> affine(const std::vector<double>& x, const std::vector<double>& w,
                           const std::vector<double>& bias, std::size_t batch) {
  const std::size_t out = bias.size(), in = x.size() / batch;
  std::vector<double> y(batch * out);
  for (std::size_t s = 0; s < batch; ++s)
    for (std::size_t o = 0; o < out; ++o) {
      double sum = bias[o];
      for (std::size_t k = 0; k < in; ++k) sum += x[s * in + k] * w[o * in + k];
      y[s * out + o] = sum;
    }
  return y;
}

std::vector<double> biased(std::vector<double> x, const std::vector<double>& bias) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += bias[i % bias.size()];
  return x;
}

double log_sum_exp(const double* x, std::size_t n) {
  double sum = 0;
  for (std::size_t c = 0; c < n; ++c) sum += std::exp(x[c]);
  return std::log(sum);
}

double mean_cross_entropy(const std::vector<double>& x, const std::vector<int>& labels) {
  const std::size_t classes = x.size() / labels.size();
  double sum = 0, counted = 0;
  for (std::size_t row = 0; row < labels.size(); ++row) {
    if (labels[row] == kIgnoreIndex) continue;
    const double* logits = x.data() + row * classes;
    sum += log_sum_exp(logits, classes) - logits[labels[row]], ++counted;
  }
  return sum / counted;
}

}  // namespace gradient_check
