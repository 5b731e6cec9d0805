#include "stage7_transformer/03_layernorm_backward/reference.h"

#include <algorithm>
#include <cmath>

#include "stage3_ml_ops/02_softmax/reference.h"

namespace layernorm_backward {
namespace {

using rounding::Sum;
using softmax::kTiny;

double bound_of(const Sum& sum, double depth, Terms terms) {
  return std::min(sum.worst_case(depth, depth),
                  terms == Terms::mean_zero ? sum.mean_zero_bound(depth) : sum.random_bound(depth));
}

}  // namespace

Expected grad_x_cpu(const std::vector<float>& grad_y, const std::vector<float>& x,
                    const std::vector<float>& gain, const std::vector<float>& mean,
                    const std::vector<float>& rstd, const std::vector<float>& grad_residual,
                    Terms terms) {
  const std::size_t cols = gain.size();
  const double count = static_cast<double>(cols);
  Expected want;
  std::vector<double> g(cols), n(cols);
  for (std::size_t row = 0; row < mean.size(); ++row) {
    const double m = static_cast<double>(mean[row]), r = static_cast<double>(rstd[row]);
    Sum sum, sum_n;
    for (std::size_t c = 0; c < cols; ++c) {
      n[c] = (static_cast<double>(x[row * cols + c]) - m) * r;
      g[c] = static_cast<double>(grad_y[row * cols + c]) * static_cast<double>(gain[c]);
      sum.add(g[c]), sum_n.add(g[c] * n[c]);
    }
    const double mean_g = sum.value / count, mean_gn = sum_n.value / count;
    // A term of sum has been rounded once before it is added, one of sum_n four times.
    const double off = bound_of(sum, count + 1, terms) / count;
    const double off_n = bound_of(sum_n, count + 4, terms) / count;
    for (std::size_t c = 0; c < cols; ++c) {
      const double residual =
          grad_residual.empty() ? 0 : static_cast<double>(grad_residual[row * cols + c]);
      const double of_sums = r * (off + std::fabs(n[c]) * off_n);
      const double size = r * (std::fabs(g[c]) + std::fabs(mean_g) + std::fabs(n[c] * mean_gn)) +
                          std::fabs(residual) + of_sums;
      want.value.push_back(r * (g[c] - mean_g - n[c] * mean_gn) + residual);
      want.bound.push_back(of_sums + rounding::gamma(12) * size + kTiny);
    }
  }
  return want;
}

std::size_t odd_divisor(std::size_t cols) {
  while (cols != 0 && cols % 2 == 0) cols /= 2;
  return cols;
}

bool sums_are_exact(std::size_t cols) {
  constexpr std::size_t kExact = std::size_t{1} << 24;
  return cols < kExact / 1314 && 108 * odd_divisor(cols) * cols < kExact;
}

ColumnGradients columns_cpu(const std::vector<float>& grad_y, const std::vector<float>& x,
                            const std::vector<float>& mean, const std::vector<float>& rstd,
                            std::size_t cols, Terms terms) {
  const double rows = static_cast<double>(mean.size());
  rounding::Sums gain(cols), bias(cols);
  for (std::size_t row = 0; row < mean.size(); ++row) {
    const double m = static_cast<double>(mean[row]), r = static_cast<double>(rstd[row]);
    for (std::size_t c = 0; c < cols; ++c) {
      const double grad = static_cast<double>(grad_y[row * cols + c]);
      gain.add(c, grad * ((static_cast<double>(x[row * cols + c]) - m) * r));
      bias.add(c, grad);
    }
  }
  ColumnGradients want;
  for (std::size_t c = 0; c < cols; ++c) {
    // A term of gain's has been rounded three times before: a difference and two products.
    want.gain.value.push_back(gain.value[c]), want.bias.value.push_back(bias.value[c]);
    want.gain.bound.push_back(bound_of(gain[c], rows + 3, terms) + kTiny);
    want.bias.bound.push_back(bound_of(bias[c], rows, terms) + kTiny);
  }
  return want;
}

}  // namespace layernorm_backward
