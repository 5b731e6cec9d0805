// The operators of stage 1. Each takes the attribute `offset` (operators.h).
#include "stage1_vector/01_vector_add/vector_add.h"
#include "stage1_vector/02_axpy/axpy.h"
#include "stage1_vector/03_dot/dot.h"
#include "stage1_vector/04_activations/activations.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "tests/operators/operators.h"

namespace operators {
namespace {

// vector_add, vector_multiply: c = a + b, c = a * b. Inputs a and b of one shape; output c.
void run_elementwise(const Case& c, Outputs& outputs,
                     vector_add::Launch::Function vector_add::Launch::*operation) {
  const Array &a = c.input("a"), &b = c.input("b", a.shape);
  const std::size_t at = offset(c);
  for (const auto& version : vector_add::kVersions) {
    Guarded<float> d_a(a.values, at), d_b(b.values, at), d_c(a.values.size(), at);
    (version.launch.*operation)(d_c.data(), d_a.data(), d_b.data(), d_c.size(), nullptr);
    finish(version.name, d_a, d_b, d_c);
    keep(outputs, version.name, "c", a.shape, d_c);
  }
}
void run_vector_add(const Case& c, Outputs& outputs) {
  run_elementwise(c, outputs, &vector_add::Launch::add);
}
void run_vector_multiply(const Case& c, Outputs& outputs) {
  run_elementwise(c, outputs, &vector_add::Launch::multiply);
}

// scale: y = alpha x. Input x; attributes alpha and in_place (0 or 1: y is x); output y.
void run_scale(const Case& c, Outputs& outputs) {
  const Array& x = c.input("x");
  const float alpha = static_cast<float>(c.number("alpha", 1));
  for (const auto& version : axpy::kVersions) {
    Guarded<float> d_x(x.values, offset(c)), d_y(x.values.size(), offset(c));
    Guarded<float>& y = c.integer("in_place", 0) != 0 ? d_x : d_y;
    version.launch.scale(y.data(), alpha, d_x.data(), y.size(), nullptr);
    finish(version.name, d_x, d_y);
    keep(outputs, version.name, "y", x.shape, y);
  }
}

// axpy: y = alpha x + y. Inputs x and y of one shape; attribute alpha; output y.
void run_axpy(const Case& c, Outputs& outputs) {
  const Array &x = c.input("x"), &y = c.input("y", x.shape);
  const float alpha = static_cast<float>(c.number("alpha", 1));
  for (const auto& version : axpy::kVersions) {
    Guarded<float> d_x(x.values, offset(c)), d_y(y.values, offset(c));
    version.launch.axpy(d_y.data(), alpha, d_x.data(), d_y.size(), nullptr);
    finish(version.name, d_x, d_y);
    keep(outputs, version.name, "y", x.shape, d_y);
  }
}

// dot: the sum of x y. Inputs x and y of one shape; output result, a scalar. Every version runs
// twice with one workspace, since a launch leaves it ready for the next.
void run_dot(const Case& c, Outputs& outputs) {
  const Array &x = c.input("x"), &y = c.input("y", x.shape);
  const std::size_t n = x.values.size();
  for (const auto& version : dot::kVersions) {
    Guarded<float> d_x(x.values, offset(c)), d_y(y.values, offset(c)), d_result(1, 0);
    Guarded<unsigned char> workspace(std::vector<unsigned char>(dot::workspace_bytes(n)), 0);
    for (int run = 0; run < 2; ++run)
      version.launch.run(d_result.data(), d_x.data(), d_y.data(), n, workspace.data(), nullptr);
    finish(version.name, d_x, d_y, d_result, workspace);
    keep(outputs, version.name, "result", {}, d_result);
  }
}

// relu, sigmoid, tanh, gelu_erf, gelu_tanh, softplus: y = f(x), and grad_x = grad_y f'(x). Inputs x
// and, for the second, grad_y of the same shape; attribute in_place (0 or 1: y is x, grad_x is
// grad_y); outputs y and grad_x.
template <class Activation>
void run_activation(const Case& c, Outputs& outputs) {
  const Array& x = c.input("x");
  const bool in_place = c.integer("in_place", 0) != 0;
  const std::size_t n = x.values.size(), at = offset(c);
  for (const auto& version : activations::kVersions<Activation>) {
    Guarded<float> d_x(x.values, at), d_out(n, at);
    Guarded<float>& y = in_place ? d_x : d_out;
    version.launch.forward(y.data(), d_x.data(), n, nullptr);
    finish(version.name, d_x, d_out);
    keep(outputs, version.name, "y", x.shape, y);
  }
  if (!c.has("grad_y")) return;
  const Array& grad_y = c.input("grad_y", x.shape);
  for (const auto& version : activations::kVersions<Activation>) {
    Guarded<float> d_x(x.values, at), d_grad_y(grad_y.values, at), d_out(n, at);
    Guarded<float>& grad_x = in_place ? d_grad_y : d_out;
    version.launch.backward(grad_x.data(), d_grad_y.data(), d_x.data(), n, nullptr);
    finish(version.name, d_x, d_grad_y, d_out);
    keep(outputs, version.name, "grad_x", x.shape, grad_x);
  }
}

}  // namespace

std::vector<Operator> stage1() {
  std::vector<Operator> all = {{"vector_add", run_vector_add},
                               {"vector_multiply", run_vector_multiply},
                               {"scale", run_scale},
                               {"axpy", run_axpy},
                               {"dot", run_dot}};
  activations::for_each_activation([&](auto f) {
    using Activation = decltype(f);
    all.push_back({Activation::kName, run_activation<Activation>});
  });
  return all;
}

}  // namespace operators
