// The operators of stage 4. Of the activations those that the steps' own tests take: the others
// differ in nothing but step 1.4's functions.
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage4_forward/01_dense/dense.h"
#include "stage4_forward/02_mlp_forward/mlp_forward.h"
#include "tests/operators/activations.h"
#include "tests/operators/operators.h"

namespace operators {
namespace {

// y = f(x w^T + bias): inputs x (batch, in), w (out, in) and bias (out); attributes activation
// (linear, relu or gelu_tanh) and offset; output y (batch, out).
void run_dense(const Case& c, Outputs& outputs) {
  const Array &x = c.input("x", 2), &w = c.input("w", 2);
  const std::size_t batch = x.extent(0), in = x.extent(1), out = w.extent(0), at = offset(c);
  c.input("w", {out, in});
  const Array& bias = c.input("bias", std::vector<std::size_t>{out});
  visit_activation<dense::Linear, activations::Relu, activations::GeluTanh>(c, [&](auto function) {
    for (const auto& version : dense::kVersions<decltype(function)>) {
      Guarded<float> d_x(x.values, at), d_w(w.values, at), d_bias(bias.values, at);
      Guarded<float> d_y(batch * out, at), partials(gemv::kMaxPartials, 0);
      const dense::Layer layer{in, out, d_w.data(), d_bias.data()};
      version.launch(d_y.data(), d_x.data(), batch, layer, {partials.data()}, nullptr);
      finish(version.name, d_x, d_w, d_bias, d_y, partials);
      keep(outputs, version.name, "y", {batch, out}, d_y);
    }
  });
}

// y = w2 relu(x w1^T + bias1)^T + bias2: inputs x (batch, in), w1 (hidden, in), bias1 (hidden), w2
// (out, hidden) and bias2 (out); attribute offset; output y (batch, out).
void run_mlp_forward(const Case& c, Outputs& outputs) {
  const Array &x = c.input("x", 2), &w1 = c.input("w1", 2), &w2 = c.input("w2", 2);
  const std::size_t batch = x.extent(0), in = x.extent(1), hidden = w1.extent(0);
  const std::size_t out = w2.extent(0), at = offset(c);
  c.input("w1", {hidden, in}), c.input("w2", {out, hidden});
  const Array &bias1 = c.input("bias1", std::vector<std::size_t>{hidden}),
              &bias2 = c.input("bias2", std::vector<std::size_t>{out});
  for (const auto& version : mlp_forward::kVersions<activations::Relu>) {
    Guarded<float> d_x(x.values, at), d_w1(w1.values, at), d_bias1(bias1.values, at);
    Guarded<float> d_w2(w2.values, at), d_bias2(bias2.values, at);
    Guarded<float> d_h(batch * hidden, at), d_y(batch * out, at);
    const mlp_forward::Network network{{in, hidden, d_w1.data(), d_bias1.data()},
                                       {hidden, out, d_w2.data(), d_bias2.data()}};
    version.launch(d_y.data(), d_h.data(), d_x.data(), batch, network, nullptr);
    finish(version.name, d_x, d_w1, d_bias1, d_w2, d_bias2, d_h, d_y);
    keep(outputs, version.name, "y", {batch, out}, d_y);
  }
}

}  // namespace

std::vector<Operator> stage4() { return {{"dense", run_dense}, {"mlp_forward", run_mlp_forward}}; }

}  // namespace operators
