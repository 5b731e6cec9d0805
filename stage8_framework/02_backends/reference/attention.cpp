// Attention: every query looks at the keys that it sees and takes their values, by how well they
// fit. For each of the leading axes (batch, head) on its own:
//
//   out = softmax(scale q k^T) v        q, out (Tq, D)   k, v (Tk, D)   lse (Tq)
//
// A causal query i sees the keys j <= i + Tk - Tq: the last query sees all. What it does not see
// adds nothing, whatever it holds.
#include <algorithm>
#include <cmath>
#include <limits>

#include "stage8_framework/02_backends/reference/operations.h"

namespace reference {
namespace {

struct Mask {
  bool causal;
  double scale;

  Integer visible(Integer query, Integer Tq, Integer Tk) const {
    return causal ? std::clamp(query + 1 + Tk - Tq, Integer{0}, Tk) : Tk;
  }
};

Mask mask_of(const Arguments& arguments) {
  return {arguments.attribute(0) != 0, arguments.attribute(1)};
}

double dot(const Numbers& a, Integer i, const Numbers& b, Integer j) {
  double sum = 0;
  for (Integer d = 0; d < a.extent(1); ++d) sum += a(i, d) * b(j, d);
  return sum;
}

// A row that sees no key gets 0, and lse = -infinity.
void attention(const Arguments& arguments) {
  const Mask mask = mask_of(arguments);
  for (Integer head = 0; head < arguments.in(0).parts(2); ++head) {
    const Numbers q = arguments.in(0).part(head, 2), k = arguments.in(1).part(head, 2);
    const Numbers v = arguments.in(2).part(head, 2), out = arguments.out(0).part(head, 2);
    const Numbers lse = arguments.out(1).part(head, 1);
    const Integer Tq = q.extent(0), Tk = k.extent(0);
    for (Integer i = 0; i < Tq; ++i) {
      std::vector<double> weights(static_cast<size_t>(mask.visible(i, Tq, Tk)));
      double max = -std::numeric_limits<double>::infinity(), sum = 0;
      for (size_t j = 0; j < weights.size(); ++j) {
        weights[j] = mask.scale * dot(q, i, k, static_cast<Integer>(j));
        max = std::fmax(max, weights[j]);
      }
      for (double& weight : weights) sum += weight = std::exp(weight - max);
      for (Integer d = 0; d < v.extent(1); ++d) {
        double taken = 0;
        for (size_t j = 0; j < weights.size(); ++j) taken += weights[j] * v(j, d);
        out(i, d) = weights.empty() ? 0 : taken / sum;
      }
      lse(i) = weights.empty() ? max : max + std::log(sum);
    }
  }
}

// With the weights p[i,j] = exp(scale q[i] k[j] - lse[i]) and their gradients
// g[i,j] = p[i,j] (grad_out[i] v[j] - out[i] grad_out[i]),
//   grad_v = p^T grad_out      grad_q = scale g k      grad_k = scale g^T q
void attention_backward(const Arguments& arguments) {
  const Mask mask = mask_of(arguments);
  for (Integer head = 0; head < arguments.in(0).parts(2); ++head) {
    const auto in = [&](int i) { return arguments.in(i).part(head, 2); };
    const Numbers grad_out = in(0), q = in(1), k = in(2), v = in(3), out = in(4);
    const Numbers lse = arguments.in(5).part(head, 1);
    const Numbers grad_q = arguments.out(0).part(head, 2), grad_k = arguments.out(1).part(head, 2);
    const Numbers grad_v = arguments.out(2).part(head, 2);
    const Integer Tq = q.extent(0), Tk = k.extent(0), D = q.extent(1);
    std::vector<double> of_q(static_cast<size_t>(Tq * D)), of_k(static_cast<size_t>(Tk * D));
    std::vector<double> of_v = of_k;
    for (Integer i = 0; i < Tq; ++i)
      for (Integer j = 0; j < mask.visible(i, Tq, Tk); ++j) {
        const double weight = std::exp(mask.scale * dot(q, i, k, j) - lse(i));
        const double grad = weight * (dot(grad_out, i, v, j) - dot(out, i, grad_out, i));
        for (Integer d = 0; d < D; ++d) {
          of_q[static_cast<size_t>(i * D + d)] += mask.scale * grad * k(j, d);
          of_k[static_cast<size_t>(j * D + d)] += mask.scale * grad * q(i, d);
          of_v[static_cast<size_t>(j * D + d)] += weight * grad_out(i, d);
        }
      }
    for (Integer n = 0; n < Tq * D; ++n) grad_q[n] = of_q[static_cast<size_t>(n)];
    for (Integer n = 0; n < Tk * D; ++n) {
      grad_k[n] = of_k[static_cast<size_t>(n)];
      grad_v[n] = of_v[static_cast<size_t>(n)];
    }
  }
}

}  // namespace

std::vector<Operation> attentions() {
  return {{"attention", attention}, {"attention_backward", attention_backward}};
}

}  // namespace reference
