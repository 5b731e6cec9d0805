// The layers of 5.5 in double: what reference.h makes models of.
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <type_traits>

#include "common/rounding.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage4_forward/01_dense/reference.h"
#include "stage5_training/05_sequential/layers.h"
#include "stage5_training/05_sequential/reference.h"

namespace sequential {

Values Layer::forward_cpu(HostPass&) const {
  throw std::logic_error(description() + " has no reference");
}
Values Layer::backward_cpu(std::vector<Values>&, const Values&, const HostPass&) const {
  throw std::logic_error(description() + " has no reference");
}

// ---- Linear -----------------------------------------------------------------------------------

// The addition of the bias rounds once more.
Values linear_cpu(const Values& x, const Values& w, const Values& bias, size_t rows,
                  Roundings how) {
  const size_t in = x.value.size() / rows, out = w.value.size() / in;
  const auto input = [&](size_t row, size_t k) { return at(x, row * in + k); };
  const auto weight = [&](size_t k, size_t unit) { return at(w, unit * in + k); };
  const bool with_errors = !x.error.empty();
  Values y = product_cpu(rows, out, in, input, weight, with_errors, how);
  for (size_t i = 0; i < y.value.size() && !bias.value.empty(); ++i) {
    const Approximate added = at(bias, i % out);
    y.value[i] += added.value;
    if (!with_errors) continue;
    if (how == Roundings::random) {
      y.error[i] = std::hypot(y.error[i], added.error, rounding::random_bound(1, y.value[i]));
    } else {
      y.error[i] += added.error;
      y.error[i] += kFloatRoundoff * (std::fabs(y.value[i]) + y.error[i]);
    }
  }
  return y;
}

Values linear_backward_cpu(std::vector<Values>& gradients, const Values& grad_y, const Values& x,
                           const Values& w, size_t rows, bool with_bias, Roundings how) {
  const size_t in = x.value.size() / rows, out = grad_y.value.size() / rows;
  const auto grad = [&](size_t row, size_t unit) { return at(grad_y, row * out + unit); };
  const auto transposed = [&](size_t unit, size_t row) { return grad(row, unit); };
  const auto input = [&](size_t row, size_t k) { return at(x, row * in + k); };
  const auto one = [](size_t, size_t) { return Approximate{1, 0}; };
  const auto weight = [&](size_t unit, size_t k) { return at(w, unit * in + k); };
  const bool with_errors = !x.error.empty();
  gradients.push_back(product_cpu(out, in, rows, transposed, input, with_errors, how));
  if (with_bias) gradients.push_back(product_cpu(out, 1, rows, transposed, one, with_errors, how));
  return product_cpu(rows, in, out, grad, weight, with_errors, how);
}

Values Linear::forward_cpu(HostPass& pass) const {
  return linear_cpu(pass.x, pass.parameters[0], pass.parameters[1], pass.batch);
}
Values Linear::backward_cpu(std::vector<Values>& gradients, const Values& grad_y,
                            const HostPass& pass) const {
  return linear_backward_cpu(gradients, grad_y, pass.x, pass.parameters[0], pass.batch);
}

// ---- Activations ------------------------------------------------------------------------------

namespace {

// How far f' may move where x is off by `error`. ReLU's jumps at 0.
template <class Function>
double derivative_moves(double x, double error) {
  if (!std::is_same_v<Function, activations::Relu>) return kSharpest * error;
  return Function::derivative_cpu(x - error) == Function::derivative_cpu(x + error) ? 0 : 1;
}

}  // namespace

template <class Function>
Values activation_cpu(const Values& x) {
  Values y = x;
  for (size_t i = 0; i < y.value.size(); ++i) {
    const auto [value, error] = at(x, i);
    y.value[i] = Function::cpu(value);
    if (y.error.empty()) continue;
    y.error[i] = dense::kSteepest * error +
                 std::max(Function::bound(value - error), Function::bound(value + error));
  }
  return y;
}

template <class Function>
Values activation_backward_cpu(const Values& grad_y, const Values& x) {
  Values grad_x = grad_y;
  grad_x.error.resize(x.error.size());
  for (size_t i = 0; i < grad_x.value.size(); ++i) {
    const auto [value, error] = at(x, i);
    const Approximate grad = at(grad_y, i);
    const double slope = Function::derivative_cpu(value);
    grad_x.value[i] = grad.value * slope;
    if (x.error.empty()) continue;
    const double slope_error = derivative_moves<Function>(value, error) +
                               std::max(Function::derivative_bound(value - error),
                                        Function::derivative_bound(value + error));
    const double inherited =
        std::fabs(grad.value) * slope_error + grad.error * (std::fabs(slope) + slope_error);
    grad_x.error[i] =
        inherited + activations::kTiny + kFloatRoundoff * (std::fabs(grad_x.value[i]) + inherited);
  }
  return grad_x;
}

template <class Function>
void Activation<Function>::decide_otherwise(Values& x, double share) const {
  if (!std::is_same_v<Function, activations::Relu> || x.error.empty()) return;
  for (size_t i = 0; i < x.value.size(); ++i)
    if (std::fabs(x.value[i]) <= share * x.error[i]) x.value[i] = -x.value[i];
}

#define INSTANTIATE(Function)                                                      \
  template Values activation_cpu<Function>(const Values&);                         \
  template Values activation_backward_cpu<Function>(const Values&, const Values&); \
  template void Activation<Function>::decide_otherwise(Values&, double) const;
INSTANTIATE(activations::Relu)
INSTANTIATE(activations::Sigmoid)
INSTANTIATE(activations::Tanh)
INSTANTIATE(activations::GeluErf)
INSTANTIATE(activations::Softplus)
#undef INSTANTIATE

}  // namespace sequential
