// 5.3  gradient_check: is it the gradient at all?
//
// A gradient is a formula that somebody has derived and somebody has typed. Whether it is the slope
// of the loss can be asked without knowing the formula: move one parameter by h up and down, and
//
//   dL/dp  is  (L(p + h) - L(p - h)) / 2h   but for  h^2 / 6 L'''  and  u |L| / h,  u = 2^-53
//
// the first because a parabola through three points is not the curve, the second because L is
// rounded. Their sum is smallest at h = cbrt(3 u L / L'''), about cbrt(3 u) where loss and
// parameter are of order 1 (Nocedal and Wright: Numerical Optimization, 2nd ed., section 8.1). What
// is left is near 1e-11: L is computed in double, on the host, by references that share no code
// with the kernels. In float, whose u is 2^-24, it would be near 1e-4, no better than the
// tolerance.
//
// The gradient that is checked is the one that the kernels compute on the device, in float. Every
// parameter and every input of each layer and loss of the course is moved, one after the other. A
// later step adds a Case of its own: arguments, a loss in double, and what launches its kernels.
//
// At a kink (ReLU at 0, a maximum of two equal values) there is no slope. Cases stay away from
// them; a Finding says so where one has not.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/gpu.h"
#include "common/program.h"
#include "common/random.h"
#include "stage0_infra/04_device_matrix/device_matrix.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage3_ml_ops/01_matrix_activations/matrix_activations.h"
#include "stage3_ml_ops/02_softmax/softmax.h"
#include "stage3_ml_ops/03_losses/losses.h"
#include "stage4_forward/01_dense/dense.h"
#include "stage5_training/01_dense_backward/dense_backward.h"
#include "stage5_training/02_activation_backward/activation_backward.h"

namespace gradient_check {

using device_matrix::DeviceBuffer;

// ---- A case and what is found -----------------------------------------------------------------

// What the loss depends on: a parameter or an input.
struct Argument {
  std::string name;
  std::vector<size_t> shape;
  std::vector<float> values;  // row-major
};

struct Case {
  std::vector<Argument> arguments;
  // The loss in double, given the values of all arguments.
  std::function<double(const std::vector<std::vector<double>>& values)> loss;
  // Queues on the default stream what writes the loss's gradient by each argument, all in device
  // memory and in the order of `arguments`.
  std::function<void(const std::vector<float*>& gradients, const std::vector<const float*>& values)>
      backward;
};

// The element whose gradient is off by most.
struct Finding {
  bool ok = true;
  size_t checked = 0, failed = 0;
  size_t argument = 0, index = 0;    // where: of Case::arguments, and in its values
  double analytic = 0, numeric = 0;  // the device's gradient, and the difference quotient
  double error = 0;                  // relative, as relative_error says
  bool kink = false;                 // the slopes of the two sides differ as much: there is none
};

// ---- The checker ------------------------------------------------------------------------------

inline constexpr double kTolerance = 1e-4;
inline constexpr double kDoubleRoundoff = 1.1102230246251565e-16;  // 2^-53
inline constexpr double kStep = 7.62939453125e-06;  // 2^-17, which is about cbrt(3 * 2^-53)

// |a - n| over the larger of the two, or over `floor` where both are below: a gradient far below
// its neighbours is the difference of large numbers, and float has left it few digits.
inline double relative_error(double analytic, double numeric, double floor) {
  if (analytic == numeric) return 0;
  const double error =
      std::fabs(analytic - numeric) / std::max({std::fabs(analytic), std::fabs(numeric), floor});
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
}

// How the loss changes with one of `values`.
struct Slopes {
  double central, above, below;
};

template <class Loss>
Slopes difference_quotients(const Loss& loss, std::vector<std::vector<double>>& values,
                            size_t argument, size_t index, double here) {
  // exercise: the loss a step above and a step below, and the three quotients (about 10 lines)
  double& value = values[argument][index];
  const double old = value, step = kStep * std::max(1.0, std::fabs(old));
  value = old + step;
  const double high = value, loss_above = loss(values);
  value = old - step;
  const double low = value, loss_below = loss(values);
  value = old;
  return {(loss_above - loss_below) / (high - low), (loss_above - here) / (high - old),
          (here - loss_below) / (old - low)};
  // end exercise
}

inline double root_mean_square(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return values.empty() ? 0 : std::sqrt(sum / static_cast<double>(values.size()));
}

inline std::vector<std::vector<double>> wide(const std::vector<Argument>& arguments) {
  std::vector<std::vector<double>> values;
  for (const Argument& argument : arguments)
    values.emplace_back(argument.values.begin(), argument.values.end());
  return values;
}

// The gradients that the case's kernels compute. What they do not write stays NaN.
inline std::vector<std::vector<float>> device_gradients(const Case& c) {
  std::vector<DeviceBuffer<float>> values, gradients;
  std::vector<const float*> from;
  std::vector<float*> to;
  for (const Argument& argument : c.arguments) {
    values.emplace_back(argument.values), gradients.emplace_back(argument.values.size());
    gradients.back().poison();
    from.push_back(values.back().data()), to.push_back(gradients.back().data());
  }
  c.backward(to, from);
  HIP_CHECK(hipDeviceSynchronize());
  std::vector<std::vector<float>> result;
  for (const DeviceBuffer<float>& gradient : gradients) result.push_back(gradient.to_host());
  return result;
}

// Holds the case's gradient by every element of every argument against the difference quotient.
// An argument's floor is the root of the mean square of its gradients, but at least so large that
// what the rounding of the loss does to a quotient (some ten operations' worth of a number of order
// 1, though the loss may be their difference) stays within the tolerance.
inline Finding check(const Case& c) {
  const std::vector<std::vector<float>> analytic = device_gradients(c);
  std::vector<std::vector<double>> values = wide(c.arguments);
  const double here = c.loss(values);
  const double noise = 10 * kDoubleRoundoff * std::max(1.0, std::fabs(here)) / kStep;

  Finding worst;
  worst.error = -1;
  for (size_t a = 0; a < values.size(); ++a) {
    std::vector<Slopes> slopes;
    std::vector<double> numeric;
    for (size_t i = 0; i < values[a].size(); ++i) {
      slopes.push_back(difference_quotients(c.loss, values, a, i, here));
      numeric.push_back(slopes.back().central);
    }
    const double floor = std::max(root_mean_square(numeric), noise / kTolerance);
    for (size_t i = 0; i < numeric.size(); ++i) {
      const double got = static_cast<double>(analytic[a][i]);
      const double error = relative_error(got, numeric[i], floor);
      ++worst.checked;
      if (!(error < kTolerance)) ++worst.failed;
      if (error <= worst.error) continue;
      worst.argument = a, worst.index = i, worst.error = error;
      worst.analytic = got, worst.numeric = numeric[i];
      // Of a smooth loss the two sides differ by about h L''.
      worst.kink = !(relative_error(slopes[i].above, slopes[i].below, floor) < kTolerance);
    }
  }
  worst.error = std::max(worst.error, 0.0);
  worst.ok = worst.failed == 0;
  worst.kink = worst.kink && !worst.ok;
  return worst;
}

// "w[2,3]": an element of an argument.
inline std::string name_of(const Argument& argument, size_t index) {
  std::string text;
  for (size_t d = argument.shape.size(); d-- > 1; index /= argument.shape[d])
    text = "," + std::to_string(index % argument.shape[d]) + text;
  return argument.name + "[" + std::to_string(index) + text + "]";
}

// ---- What cases are made of -------------------------------------------------------------------

// The sizes of a case: a batch of samples, what goes into a layer and what comes out.
struct Sizes {
  size_t batch, in, out;
};

inline std::vector<float> uniform_values(size_t n, std::uint64_t seed, std::uint32_t stream,
                                         float scale = 1) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = scale * random_numbers::uniform(seed, stream, i);
  return values;
}

inline Argument argument(const std::string& name, const std::vector<size_t>& shape,
                         std::uint64_t seed, std::uint32_t stream, float scale = 1) {
  size_t n = 1;
  for (const size_t size : shape) n *= size;
  return {name, shape, uniform_values(n, seed, stream, scale)};
}

// The losses in double. None of them shares code with the references of the steps' own tests but
// for the activations' formulas.

// A layer's outputs become one number by random weights, which are then the gradient by them.
inline double weighted_sum(const std::vector<double>& y, const std::vector<float>& weights) {
  double sum = 0;
  for (size_t i = 0; i < y.size(); ++i) sum += static_cast<double>(weights[i]) * y[i];
  return sum;
}

// x w^T + bias for x (batch, in), w (out, in).
inline std::vector<double> affine(const std::vector<double>& x, const std::vector<double>& w,
                                  const std::vector<double>& bias, size_t batch) {
  const size_t out = bias.size(), in = x.size() / batch;
  std::vector<double> y(batch * out);
  for (size_t s = 0; s < batch; ++s)
    for (size_t o = 0; o < out; ++o) {
      double sum = bias[o];
      for (size_t k = 0; k < in; ++k) sum += x[s * in + k] * w[o * in + k];
      y[s * out + o] = sum;
    }
  return y;
}

template <class Activation>
std::vector<double> activated(std::vector<double> values) {
  for (double& value : values) value = Activation::cpu(value);
  return values;
}

// x[r,c] + bias[c].
inline std::vector<double> biased(std::vector<double> x, const std::vector<double>& bias) {
  for (size_t i = 0; i < x.size(); ++i) x[i] += bias[i % bias.size()];
  return x;
}

inline double log_sum_exp(const double* x, size_t n) {
  double sum = 0;
  for (size_t c = 0; c < n; ++c) sum += std::exp(x[c]);
  return std::log(sum);
}

inline constexpr int kIgnoreIndex = -100;

// The mean of log(sum exp x) - x[label] over the rows that are not ignored.
inline double mean_cross_entropy(const std::vector<double>& x, const std::vector<int>& labels) {
  const size_t classes = x.size() / labels.size();
  double sum = 0, counted = 0;
  for (size_t row = 0; row < labels.size(); ++row) {
    if (labels[row] == kIgnoreIndex) continue;
    const double* logits = x.data() + row * classes;
    sum += log_sum_exp(logits, classes) - logits[labels[row]], ++counted;
  }
  return sum / counted;
}

// A label per row; every third is kIgnoreIndex where some shall be.
inline std::vector<int> random_labels(size_t rows, size_t classes, bool ignore,
                                      std::uint64_t seed) {
  std::vector<int> labels(rows);
  for (size_t row = 0; row < rows; ++row)
    labels[row] = ignore && row % 3 == 1
                      ? kIgnoreIndex
                      : static_cast<int>(random_numbers::word(seed, 90, row) % classes);
  return labels;
}

// No x + bias of a case lies nearer to 0 than this, where ReLU has its kink: a step, of x or of the
// bias, moves it by no more than 4 kStep.
inline constexpr float kAway = 1.0f / 1024;

// ---- Layers -----------------------------------------------------------------------------------

inline Case dense_layer(const Sizes& sizes, std::uint64_t seed) {
  const auto [batch, in, out] = sizes;
  const std::vector<float> grad_y = uniform_values(batch * out, seed, 3);
  Case c;
  c.arguments = {argument("x", {batch, in}, seed, 0), argument("w", {out, in}, seed, 1),
                 argument("bias", {out}, seed, 2)};
  c.loss = [=, batch = batch](const auto& v) {
    return weighted_sum(affine(v[0], v[1], v[2], batch), grad_y);
  };
  c.backward = [=, batch = batch, in = in, out = out](const auto& gradients, const auto& v) {
    const DeviceBuffer<float> d_grad_y(grad_y);
    dense_backward::Workspace workspace(batch);
    dense_backward::backward({gradients[1], gradients[2], gradients[0]}, d_grad_y.data(), v[0],
                             batch, {in, out, v[1], v[2]}, 0, workspace);
    HIP_CHECK(hipDeviceSynchronize());  // before the workspace goes
  };
  return c;
}

// f(x + bias) with what computes the gradients by x and by bias, or by x alone.
using BackwardOfBiased = void (*)(float* grad_x, float* grad_bias, const float* grad_y,
                                  const float* x, const float* bias, size_t rows, size_t cols);

template <class Activation, BackwardOfBiased run, bool kWithBias>
Case biased_activation(const Sizes& sizes, std::uint64_t seed) {
  const size_t rows = sizes.batch, cols = sizes.out;
  const std::vector<float> grad_y = uniform_values(rows * cols, seed, 12);
  Argument x = argument("x", {rows, cols}, seed, 10, 4);
  Argument bias = argument("bias", {cols}, seed, 11);
  for (size_t i = 0; i < x.values.size(); ++i)
    if (std::fabs(x.values[i] + bias.values[i % cols]) < kAway) x.values[i] += 2 * kAway;
  Case c;
  c.arguments = {x};
  if (kWithBias) c.arguments.push_back(bias);
  const std::vector<double> fixed(bias.values.begin(), bias.values.end());
  c.loss = [=](const auto& v) {
    return weighted_sum(activated<Activation>(biased(v[0], kWithBias ? v.back() : fixed)), grad_y);
  };
  c.backward = [=](const auto& gradients, const auto& v) {
    const DeviceBuffer<float> d_grad_y(grad_y), d_bias(bias.values);
    run(gradients[0], kWithBias ? gradients.back() : nullptr, d_grad_y.data(), v[0],
        kWithBias ? v.back() : d_bias.data(), rows, cols);
    HIP_CHECK(hipDeviceSynchronize());  // before the buffers go
  };
  return c;
}

// Step 3.1, which adds the bias and leaves its gradient to others.
template <class Activation>
void backward_of_matrix(float* grad_x, float*, const float* grad_y, const float* x,
                        const float* bias, size_t rows, size_t cols) {
  matrix_activations::launch_backward_vectorized<Activation>(grad_x, grad_y, x, bias, rows, cols);
}

// Step 5.2, from the sums x + bias.
template <class Activation>
void backward_of_layer(float* grad_x, float* grad_bias, const float* grad_y, const float* x,
                       const float* bias, size_t rows, size_t cols) {
  DeviceBuffer<float> sums(rows * cols);
  activation_backward::Workspace workspace(rows);
  matrix_activations::launch_forward_vectorized<matrix_activations::Identity>(sums.data(), x, bias,
                                                                              rows, cols);
  activation_backward::backward<Activation>(grad_x, grad_bias, grad_y, sums.data(), rows, cols, 0,
                                            workspace);
  HIP_CHECK(hipDeviceSynchronize());  // before the buffers go
}

// Step 5.2, from the outputs f(x + bias).
template <class Activation>
void backward_from_output(float* grad_x, float* grad_bias, const float* grad_y, const float* x,
                          const float* bias, size_t rows, size_t cols) {
  using Slope = activation_backward::OfOutput<Activation>;
  DeviceBuffer<float> y(rows * cols);
  activation_backward::Workspace workspace(rows);
  matrix_activations::launch_forward_vectorized<Activation>(y.data(), x, bias, rows, cols);
  activation_backward::backward<Slope>(grad_x, grad_bias, grad_y, y.data(), rows, cols, 0,
                                       workspace);
  HIP_CHECK(hipDeviceSynchronize());  // before the buffers go
}

template <class Activation>
Case matrix_activation(const Sizes& sizes, std::uint64_t seed) {
  return biased_activation<Activation, backward_of_matrix<Activation>, false>(sizes, seed);
}
template <class Activation>
Case activation_layer(const Sizes& sizes, std::uint64_t seed) {
  return biased_activation<Activation, backward_of_layer<Activation>, true>(sizes, seed);
}
template <class Activation>
Case activation_from_output(const Sizes& sizes, std::uint64_t seed) {
  return biased_activation<Activation, backward_from_output<Activation>, true>(sizes, seed);
}

inline Case softmax_layer(const Sizes& sizes, std::uint64_t seed) {
  const size_t rows = sizes.batch, cols = sizes.out;
  const std::vector<float> grad_p = uniform_values(rows * cols, seed, 21);
  Case c;
  c.arguments = {argument("x", {rows, cols}, seed, 20, 2)};
  c.loss = [=](const auto& v) {
    std::vector<double> p = v[0];
    for (size_t row = 0; row < rows; ++row) {
      const double scale = log_sum_exp(v[0].data() + row * cols, cols);
      for (size_t i = row * cols; i < (row + 1) * cols; ++i) p[i] = std::exp(p[i] - scale);
    }
    return weighted_sum(p, grad_p);
  };
  c.backward = [=](const auto& gradients, const auto& v) {
    const DeviceBuffer<float> d_grad_p(grad_p);
    DeviceBuffer<float> d_p(rows * cols);
    softmax::best(d_p.data(), v[0], rows, cols);
    activation_backward::softmax_backward(gradients[0], d_grad_p.data(), d_p.data(), rows, cols);
    HIP_CHECK(hipDeviceSynchronize());  // before the buffers go
  };
  return c;
}

// ---- Losses -----------------------------------------------------------------------------------

inline Case squared_error(const Sizes& sizes, std::uint64_t seed) {
  const size_t n = sizes.batch * sizes.out;
  const std::vector<float> target = uniform_values(n, seed, 31);
  Case c;
  c.arguments = {argument("p", {sizes.batch, sizes.out}, seed, 30)};
  c.loss = [=](const auto& v) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += std::pow(v[0][i] - static_cast<double>(target[i]), 2);
    return sum / static_cast<double>(n);
  };
  c.backward = [=](const auto& gradients, const auto& v) {
    const DeviceBuffer<float> d_target(target);
    DeviceBuffer<float> d_loss(1);
    losses::Buffers buffers(0);
    losses::launch_squared_error_vectorized(d_loss.data(), gradients[0], v[0], d_target.data(), n,
                                            buffers.workspace());
    HIP_CHECK(hipDeviceSynchronize());  // before the buffers go
  };
  return c;
}

// With what writes the gradient by the logits: the fused kernel of step 3.3, or the chain of 5.2.
using BackwardOfLogits = void (*)(float* grad, const float* logits, const losses::Targets& targets,
                                  const losses::Workspace& workspace);

inline void backward_of_cross_entropy(float* grad, const float* logits,
                                      const losses::Targets& targets,
                                      const losses::Workspace& workspace) {
  DeviceBuffer<float> loss(1);
  losses::cross_entropy(loss.data(), grad, logits, targets, workspace);
  HIP_CHECK(hipDeviceSynchronize());  // before the buffer goes
}

inline void backward_through_softmax(float* grad, const float* logits,
                                     const losses::Targets& targets,
                                     const losses::Workspace& workspace) {
  DeviceBuffer<float> p(targets.rows * targets.classes);
  softmax::best(p.data(), logits, targets.rows, targets.classes);
  activation_backward::launch_composed(grad, logits, p.data(), targets, workspace);
  HIP_CHECK(hipDeviceSynchronize());  // before the buffer goes
}

template <BackwardOfLogits run, bool kIgnore>
Case cross_entropy(const Sizes& sizes, std::uint64_t seed) {
  const size_t rows = sizes.batch, classes = sizes.out;
  const std::vector<int> labels = random_labels(rows, classes, kIgnore, seed);
  Case c;
  c.arguments = {argument("logits", {rows, classes}, seed, 40, 3)};
  c.loss = [=](const auto& v) { return mean_cross_entropy(v[0], labels); };
  c.backward = [=](const auto& gradients, const auto& v) {
    const DeviceBuffer<int> d_labels(labels);
    losses::Buffers buffers(rows);
    run(gradients[0], v[0], {d_labels.data(), rows, classes, kIgnoreIndex}, buffers.workspace());
    buffers.check_labels(classes);
  };
  return c;
}

// ---- A network --------------------------------------------------------------------------------

// Cross-entropy of w2 f(w1 x + b1) + b2: the chain rule from one end of a network to the other. The
// arguments are x (batch, in), w1 (hidden, in), b1 (hidden), w2 (out, hidden), b2 (out).
template <class Activation>
Case network(const std::vector<Argument>& arguments, const std::vector<int>& labels) {
  const size_t batch = labels.size(), in = arguments[0].shape[1];
  const size_t hidden = arguments[1].shape[0], out = arguments[3].shape[0];
  Case c;
  c.arguments = arguments;
  c.loss = [=](const auto& v) {
    const std::vector<double> h = activated<Activation>(affine(v[0], v[1], v[2], batch));
    return mean_cross_entropy(affine(h, v[3], v[4], batch), labels);
  };
  c.backward = [=](const auto& gradients, const auto& v) {
    const DeviceBuffer<int> d_labels(labels);
    DeviceBuffer<float> sums(batch * hidden), h(batch * hidden), grad_h(batch * hidden);
    DeviceBuffer<float> logits(batch * out), grad_logits(batch * out), loss(1);
    losses::Buffers buffers(batch);
    dense_backward::Workspace workspace(batch);
    const dense::Layer first{in, hidden, v[1], v[2]}, second{hidden, out, v[3], v[4]};
    dense::forward<dense::Linear>(sums.data(), v[0], batch, first);
    matrix_activations::launch_activation<Activation>(h.data(), sums.data(), batch, hidden);
    dense::forward<dense::Linear>(logits.data(), h.data(), batch, second);
    // exercise: from the loss back to x: its gradient by the logits, the second layer, the
    // activation with the first layer's bias, the first layer (about 9 lines)
    losses::cross_entropy(loss.data(), grad_logits.data(), logits.data(),
                          {d_labels.data(), batch, out}, buffers.workspace());
    dense_backward::backward({gradients[3], gradients[4], grad_h.data()}, grad_logits.data(),
                             h.data(), batch, second, 0, workspace);
    activation_backward::backward<Activation>(grad_h.data(), gradients[2], grad_h.data(),
                                              sums.data(), batch, hidden, 0, workspace);
    dense_backward::backward({gradients[1], nullptr, gradients[0]}, grad_h.data(), v[0], batch,
                             first, 0, workspace);
    // end exercise
    HIP_CHECK(hipDeviceSynchronize());  // before the buffers go
  };
  return c;
}

// As many hidden units as inputs, and weights that leave most of them where f bends. No hidden sum
// lies so near to 0, where ReLU has its kink, that a step could take it across, which moves it by
// no more than 2 kStep: numbers are drawn until none does.
template <class Activation>
Case two_layers(const Sizes& sizes, std::uint64_t seed) {
  const auto [batch, in, out] = sizes;
  const float scale = 1.5f / std::sqrt(static_cast<float>(in));
  for (std::uint32_t attempt = 0; attempt < 1000; ++attempt) {
    const std::uint32_t stream = 1000 + 5 * attempt;
    const std::vector<Argument> arguments = {
        argument("x", {batch, in}, seed, stream), argument("w1", {in, in}, seed, stream + 1, scale),
        argument("b1", {in}, seed, stream + 2), argument("w2", {out, in}, seed, stream + 3, scale),
        argument("b2", {out}, seed, stream + 4)};
    const std::vector<std::vector<double>> v = wide(arguments);
    const std::vector<double> sums = affine(v[0], v[1], v[2], batch);
    if (std::all_of(sums.begin(), sums.end(),
                    [](double sum) { return std::fabs(sum) > 10 * kStep; }))
      return network<Activation>(arguments, random_labels(batch, out, false, seed));
  }
  throw std::invalid_argument("gradient_check: so many hidden values that some lie at a kink");
}

// ---- The cases --------------------------------------------------------------------------------

using MakeCase = Case (*)(const Sizes& sizes, std::uint64_t seed);

using activations::GeluErf;
using activations::GeluTanh;
using activations::Relu;
using activations::Sigmoid;
using activations::Softplus;
using activations::Tanh;

inline constexpr Version<MakeCase> kVersions[] = {
    {"dense", dense_layer, "5.1: a layer's inputs, weights and bias"},
    {"relu_matrix", matrix_activation<Relu>, "3.1: f(x + bias) by x"},
    {"sigmoid_matrix", matrix_activation<Sigmoid>, "3.1: f(x + bias) by x"},
    {"tanh_matrix", matrix_activation<Tanh>, "3.1: f(x + bias) by x"},
    {"gelu_erf_matrix", matrix_activation<GeluErf>, "3.1: f(x + bias) by x"},
    {"gelu_tanh_matrix", matrix_activation<GeluTanh>, "3.1: f(x + bias) by x"},
    {"softplus_matrix", matrix_activation<Softplus>, "3.1: f(x + bias) by x"},
    {"relu", activation_layer<Relu>, "5.2: f(x + bias) by x and bias"},
    {"sigmoid", activation_layer<Sigmoid>, "5.2: f(x + bias) by x and bias"},
    {"tanh", activation_layer<Tanh>, "5.2: f(x + bias) by x and bias"},
    {"gelu_erf", activation_layer<GeluErf>, "5.2: f(x + bias) by x and bias"},
    {"gelu_tanh", activation_layer<GeluTanh>, "5.2: f(x + bias) by x and bias"},
    {"softplus", activation_layer<Softplus>, "5.2: f(x + bias) by x and bias"},
    {"relu_from_output", activation_from_output<Relu>, "5.2: the slope, given f(x + bias)"},
    {"sigmoid_from_output", activation_from_output<Sigmoid>, "5.2: the slope, given f(x + bias)"},
    {"tanh_from_output", activation_from_output<Tanh>, "5.2: the slope, given f(x + bias)"},
    {"softplus_from_output", activation_from_output<Softplus>, "5.2: the slope, given f(x + bias)"},
    {"softmax", softmax_layer, "5.2: a row's Jacobian"},
    {"squared_error", squared_error, "3.3: by the predictions"},
    {"cross_entropy", cross_entropy<backward_of_cross_entropy, false>, "3.3: by the logits"},
    {"cross_entropy_ignore", cross_entropy<backward_of_cross_entropy, true>,
     "3.3: some rows do not count"},
    {"cross_entropy_composed", cross_entropy<backward_through_softmax, true>,
     "5.2: through softmax's Jacobian"},
    {"mlp_tanh", two_layers<Tanh>, "two layers and a loss: the chain rule from end to end"},
    {"mlp_relu", two_layers<Relu>, "the same, away from the kinks"},
};

}  // namespace gradient_check
