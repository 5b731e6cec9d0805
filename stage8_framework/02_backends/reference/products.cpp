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

// y[..., n] = f(sum over k of x[..., k] w[n, k] + bias[n])
void linear(const Arguments& arguments) {
  const Numbers x = arguments.in(0), w = arguments.in(1), bias = arguments.in(2);
  const Numbers y = arguments.out(0);
  for (Integer i = 0; i < y.parts(1); ++i) {
    const Numbers row_x = x.part(i, 1), row_y = y.part(i, 1);
    for (Integer n = 0; n < w.extent(0); ++n) {
      double sum = 0;
      for (Integer k = 0; k < w.extent(1); ++k) sum += row_x(k) * w(n, k);
      if (bias.is_present()) sum += bias(n);
      row_y(n) = activated(arguments.whole(0), sum);
    }
  }
}

}  // namespace

std::vector<Operation> products() { return {{"matmul", matmul}, {"linear", linear}}; }

}  // namespace reference
