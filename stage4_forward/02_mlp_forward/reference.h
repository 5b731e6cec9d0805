// The reference of 4.2 in double, and how far a correct float result may be from it: step 4.1's,
// carried from the first layer to the second.
#pragma once

#include <cstddef>
#include <vector>

#include "stage4_forward/01_dense/dense.h"
#include "stage4_forward/01_dense/reference.h"

namespace mlp_forward {

using dense::Terms;
using dense::Values;

// A network's parameters on the host, each as dense::Layer says.
struct Parameters {
  std::vector<float> w1, bias1, w2, bias2;
};

// f(W1 x + b1) for `batch` samples.
template <class Activation>
Values hidden_cpu(const std::vector<float>& x, const Parameters& p, std::size_t batch,
                  Terms terms = Terms::any) {
  return dense::dense_cpu<Activation>(dense::exactly(x), p.w1, p.bias1, batch, terms);
}

// W2 f(W1 x + b1) + b2.
template <class Activation>
Values mlp_cpu(const std::vector<float>& x, const Parameters& p, std::size_t batch,
               Terms terms = Terms::any) {
  return dense::dense_cpu<dense::Linear>(hidden_cpu<Activation>(x, p, batch, terms), p.w2, p.bias2,
                                         batch, terms);
}

}  // namespace mlp_forward
