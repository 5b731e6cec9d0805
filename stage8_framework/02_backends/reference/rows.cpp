// Operations on the rows of a tensor, which lie along its last axis.
#include <algorithm>
#include <cmath>
#include <limits>

#include "stage8_framework/02_backends/reference/operations.h"
#include "stage8_framework/02_backends/reference/rows.h"

namespace reference {

RowSum sum_of_exponentials(const Numbers& row) {
  RowSum of{-std::numeric_limits<double>::infinity(), 0};
  for (Integer c = 0; c < row.size(); ++c) of.max = std::fmax(of.max, row(c));
  for (Integer c = 0; c < row.size(); ++c) of.sum += std::exp(row(c) - of.max);
  return of;
}

namespace {

// y[c] = exp(x[c]) / sum over k of exp(x[k])
void softmax(const Arguments& arguments) {
  const Numbers x = arguments.in(0), y = arguments.out(0);
  for (Integer r = 0; r < x.parts(1); ++r) {
    const Numbers row = x.part(r, 1), out = y.part(r, 1);
    const RowSum of = sum_of_exponentials(row);
    for (Integer c = 0; c < row.size(); ++c) out(c) = std::exp(row(c) - of.max) / of.sum;
  }
}

// y[c] = x[c] - log(sum over k of exp(x[k]))
void log_softmax(const Arguments& arguments) {
  const Numbers x = arguments.in(0), y = arguments.out(0);
  for (Integer r = 0; r < x.parts(1); ++r) {
    const Numbers row = x.part(r, 1), out = y.part(r, 1);
    const RowSum of = sum_of_exponentials(row);
    for (Integer c = 0; c < row.size(); ++c) out(c) = row(c) - of.max - std::log(of.sum);
  }
}

// grad_x[c] = y[c] (grad_y[c] - sum over k of y[k] grad_y[k]), with y = softmax(x)
void softmax_backward(const Arguments& arguments) {
  const Numbers grad_y = arguments.in(0), y = arguments.in(1), grad_x = arguments.out(0);
  for (Integer r = 0; r < y.parts(1); ++r) {
    const Numbers p = y.part(r, 1), grad = grad_y.part(r, 1), out = grad_x.part(r, 1);
    double sum = 0;
    for (Integer c = 0; c < p.size(); ++c) sum += p(c) * grad(c);
    for (Integer c = 0; c < p.size(); ++c) out(c) = p(c) * (grad(c) - sum);
  }
}

// y[c] = (x[c] - mean) rstd gain[c] + bias[c]; rstd = 1 / sqrt(mean of (x[c] - mean)^2 + eps), or 0
// where that is a division by 0.
void normalize(const Arguments& arguments, const Numbers& x, const Numbers& gain,
               const Numbers& bias) {
  const Numbers y = arguments.out(0), means = arguments.out(1), rstds = arguments.out(2);
  for (Integer r = 0; r < x.parts(1); ++r) {
    const Numbers row = x.part(r, 1), out = y.part(r, 1);
    const double count = static_cast<double>(row.size());
    double sum = 0, squares = 0;
    for (Integer c = 0; c < row.size(); ++c) sum += row(c);
    const double mean = sum / count;
    for (Integer c = 0; c < row.size(); ++c) squares += (row(c) - mean) * (row(c) - mean);
    const double variance = squares / count + arguments.attribute(0);
    const double rstd = variance == 0 ? 0 : 1 / std::sqrt(variance);
    for (Integer c = 0; c < row.size(); ++c) out(c) = (row(c) - mean) * rstd * gain(c) + bias(c);
    means[r] = mean, rstds[r] = rstd;
  }
}
void layernorm(const Arguments& arguments) {
  normalize(arguments, arguments.in(0), arguments.in(1), arguments.in(2));
}
// The same of sum = x + residual, which is stored, too.
void add_layernorm(const Arguments& arguments) {
  const Numbers x = arguments.in(0), residual = arguments.in(1), sum = arguments.out(3);
  for (Integer r = 0; r < x.parts(1); ++r)
    for (Integer c = 0; c < x.extent(-1); ++c)
      sum.part(r, 1)(c) = x.part(r, 1)(c) + residual.part(r, 1)(c);
  normalize(arguments, sum, arguments.in(2), arguments.in(3));
}

// With n[r,c] = (x[r,c] - mean[r]) rstd[r] and g[r,c] = grad_y[r,c] gain[c],
//   grad_x[r,c]  = rstd[r] (g[r,c] - mean over k of g[r,k] - n[r,c] mean over k of g[r,k] n[r,k])
//   grad_gain[c] = sum over r of grad_y[r,c] n[r,c]      grad_bias[c] = sum over r of grad_y[r,c]
// and grad_residual is added to grad_x.
void layernorm_backward(const Arguments& arguments) {
  const Numbers grad_y = arguments.in(0), x = arguments.in(1), gain = arguments.in(2);
  const Numbers means = arguments.in(3), rstds = arguments.in(4), residual = arguments.in(5);
  const Numbers grad_x = arguments.out(0), grad_gain = arguments.out(1),
                grad_bias = arguments.out(2);
  const Integer cols = x.extent(-1);
  const auto normal = [&](Integer r, Integer c) { return (x.part(r, 1)(c) - means[r]) * rstds[r]; };
  for (Integer r = 0; r < x.parts(1); ++r) {
    const Numbers grad = grad_y.part(r, 1), out = grad_x.part(r, 1);
    double sum = 0, sum_n = 0;
    for (Integer c = 0; c < cols; ++c) {
      sum += grad(c) * gain(c);
      sum_n += grad(c) * gain(c) * normal(r, c);
    }
    const double count = static_cast<double>(cols);
    for (Integer c = 0; c < cols; ++c) {
      const double past = residual.is_present() ? double{residual.part(r, 1)(c)} : 0;
      out(c) = rstds[r] * (grad(c) * gain(c) - sum / count - normal(r, c) * sum_n / count) + past;
    }
  }
  for (Integer c = 0; c < cols; ++c) {
    double sum = 0, sum_n = 0;
    for (Integer r = 0; r < x.parts(1); ++r) {
      sum += grad_y.part(r, 1)(c);
      sum_n += grad_y.part(r, 1)(c) * normal(r, c);
    }
    grad_gain(c) = sum_n, grad_bias(c) = sum;
  }
}

}  // namespace

std::vector<Operation> rows() {
  return {{"softmax", softmax},
          {"log_softmax", log_softmax},
          {"softmax_backward", softmax_backward},
          {"layernorm", layernorm},
          {"add_layernorm", add_layernorm},
          {"layernorm_backward", layernorm_backward}};
}

}  // namespace reference
