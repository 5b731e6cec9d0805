// Products of matrices.
#include <cmath>

#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage8_framework/02_backends/reference/operations.h"

namespace reference {
namespace {

// y[..., m, n] = sum over k of a[..., m, k] b[..., k, n], with the leading axes broadcast.
void matmul(const Arguments& arguments) {
  const Numbers y = arguments.out(0);
  const Numbers a = arguments.in(0).broadcast_like(y, 2), b = arguments.in(1).broadcast_like(y, 2);
  for (Integer batch = 0; batch < y.parts(2); ++batch) {
    const Numbers A = a.part(batch, 2), B = b.part(batch, 2), Y = y.part(batch, 2);
    for (Integer m = 0; m < Y.extent(0); ++m)
      for (Integer n = 0; n < Y.extent(1); ++n) {
        double sum = 0;
        for (Integer k = 0; k < A.extent(1); ++k) sum += A(m, k) * B(k, n);
        Y(m, n) = sum;
      }
  }
}

double activated(Integer activation, double x) {
  switch (activation) {
    case 1:
      return x < 0 ? 0 : x;
    case 2:
      return activations::Sigmoid::cpu(x);
    case 3:
      return std::tanh(x);
    case 4:
      return activations::GeluTanh::cpu(x);
    default:
      return x;
  }
}

// What unit n of a layer makes of a row, before its activation.
double sum_of_unit(const Numbers& row, const Numbers& w, const Numbers& bias, Integer n) {
  double sum = 0;
  for (Integer k = 0; k < w.extent(1); ++k) sum += row(k) * w(n, k);
  return bias.is_present() ? sum + bias(n) : sum;
}

// y[..., n] = f(sum over k of x[..., k] w[n, k] + bias[n])
void linear(const Arguments& arguments) {
  const Numbers x = arguments.in(0), w = arguments.in(1), bias = arguments.in(2);
  const Numbers y = arguments.out(0);
  for (Integer i = 0; i < y.parts(1); ++i) {
    const Numbers row_x = x.part(i, 1), row_y = y.part(i, 1);
    for (Integer n = 0; n < w.extent(0); ++n)
      row_y(n) = activated(arguments.whole(0), sum_of_unit(row_x, w, bias, n));
  }
}

// grad_w[o, k] = sum over rows of grad_y[row, o] x[row, k]    grad_bias[o] = sum of grad_y[row, o]
void linear_grad_w(const Arguments& arguments) {
  const Numbers grad_y = arguments.in(0), x = arguments.in(1);
  const Numbers grad_w = arguments.out(0), grad_bias = arguments.out(1);
  for (Integer o = 0; o < grad_w.extent(0); ++o) {
    double of_bias = 0;
    for (Integer row = 0; row < grad_y.parts(1); ++row) of_bias += grad_y.part(row, 1)(o);
    grad_bias(o) = of_bias;
    for (Integer k = 0; k < grad_w.extent(1); ++k) {
      double sum = 0;
      for (Integer row = 0; row < grad_y.parts(1); ++row)
        sum += grad_y.part(row, 1)(o) * x.part(row, 1)(k);
      grad_w(o, k) = sum;
    }
  }
}

// grad[..., n] = grad_y[..., n] times the slope of gelu at x w^T + bias
void gelu_linear_backward(const Arguments& arguments) {
  const Numbers grad_y = arguments.in(0), x = arguments.in(1), w = arguments.in(2);
  const Numbers bias = arguments.in(3), grad = arguments.out(0);
  for (Integer i = 0; i < grad.parts(1); ++i)
    for (Integer n = 0; n < w.extent(0); ++n)
      grad.part(i, 1)(n) = grad_y.part(i, 1)(n) * activations::GeluTanh::derivative_cpu(
                                                      sum_of_unit(x.part(i, 1), w, bias, n));
}

}  // namespace

std::vector<Operation> products() {
  return {{"matmul", matmul},
          {"linear", linear},
          {"linear_grad_w", linear_grad_w},
          {"gelu_linear_backward", gelu_linear_backward}};
}

}  // namespace reference
