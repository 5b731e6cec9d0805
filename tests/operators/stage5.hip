// The operators of stage 5: the gradients of stages 3 and 4, and the optimizers.
#include <cmath>
#include <sstream>

#include "stage3_ml_ops/03_losses/buffers.h"
#include "stage5_training/01_dense_backward/dense_backward.h"
#include "stage5_training/02_activation_backward/activation_backward.h"
#include "stage5_training/04_optimizers/optimizers.h"
#include "tests/operators/activations.h"
#include "tests/operators/operators.h"

namespace operators {
namespace {

// The attribute "beta", and what a gradient begins with: the input of this name where beta is not
// 0; else poison, since beta = 0 does not read it.
float beta_of(const Case& c) { return static_cast<float>(c.number("beta", 0)); }
std::vector<float> before(const Case& c, const std::string& name,
                          const std::vector<std::size_t>& shape) {
  if (beta_of(c) != 0) return c.input(name, shape).values;
  return std::vector<float>(count(shape), NAN);
}

// The gradients of a dense layer: inputs grad_y (batch, out), x (batch, in) and w (out, in);
// attributes beta and offset; outputs grad_w, grad_bias and grad_x, which where beta is not 0 are
// inputs too.
void run_dense_backward(const Case& c, Outputs& outputs) {
  const Array &grad_y = c.input("grad_y", 2), &x = c.input("x", 2);
  const std::size_t batch = x.extent(0), in = x.extent(1), out = grad_y.extent(1), at = offset(c);
  c.input("grad_y", {batch, out});
  const Array& w = c.input("w", {out, in});
  dense_backward::Workspace workspace(batch, in, out);
  const dense_backward::Branches branches;
  for (const auto& version : dense_backward::kVersions) {
    Guarded<float> d_grad_y(grad_y.values, at), d_x(x.values, at), d_w(w.values, at);
    Guarded<float> grad_w(before(c, "grad_w", w.shape), at);
    Guarded<float> grad_bias(before(c, "grad_bias", {out}), at);
    Guarded<float> grad_x(before(c, "grad_x", x.shape), at);
    version.launch({grad_w.data(), grad_bias.data(), grad_x.data()}, d_grad_y.data(), d_x.data(),
                   batch, {in, out, d_w.data(), nullptr}, beta_of(c), workspace,
                   {nullptr, &branches});
    finish(version.name, d_grad_y, d_x, d_w, grad_w, grad_bias, grad_x);
    keep(outputs, version.name, "grad_w", w.shape, grad_w);
    keep(outputs, version.name, "grad_bias", {out}, grad_bias);
    keep(outputs, version.name, "grad_x", x.shape, grad_x);
  }
}

// grad_x = grad_y f'(x) and the sums of its columns: inputs grad_y, x and y = f(x), of which a
// version takes x or y, all (rows, cols); attributes activation, beta and offset; outputs grad_x
// and grad_bias (cols), which where beta is not 0 is an input too.
void run_activation_backward(const Case& c, Outputs& outputs) {
  const Array &grad_y = c.input("grad_y", 2), &x = c.input("x", grad_y.shape);
  const Array& y = c.input("y", grad_y.shape);
  const std::size_t rows = x.extent(0), cols = x.extent(1), at = offset(c);
  dense_backward::Workspace workspace(rows);
  visit_activation<activations::Relu, activations::Sigmoid, activations::Tanh, activations::GeluErf,
                   activations::GeluTanh, activations::Softplus>(c, [&](auto function) {
    for (const auto& version : activation_backward::kVersions<decltype(function)>) {
      if (version.launch.run == nullptr) continue;
      Guarded<float> d_grad_y(grad_y.values, at);
      Guarded<float> kept(version.launch.from_output ? y.values : x.values, at);
      Guarded<float> grad_x(rows * cols, at), grad_bias(before(c, "grad_bias", {cols}), at);
      version.launch.run(grad_x.data(), grad_bias.data(), d_grad_y.data(), kept.data(), rows, cols,
                         beta_of(c), workspace, nullptr);
      finish(version.name, d_grad_y, kept, grad_x, grad_bias);
      keep(outputs, version.name, "grad_x", x.shape, grad_x);
      keep(outputs, version.name, "grad_bias", {cols}, grad_bias);
    }
  });
}

// grad_x through p = softmax(x): inputs grad_p and p (rows, cols); attribute offset; output grad_x.
void run_softmax_backward(const Case& c, Outputs& outputs) {
  const Array &p = c.input("p", 2), &grad_p = c.input("grad_p", p.shape);
  const std::size_t at = offset(c);
  for (const auto& version : activation_backward::kSoftmaxVersions) {
    Guarded<float> d_p(p.values, at), d_grad_p(grad_p.values, at), grad_x(p.values.size(), at);
    version.launch.run(grad_x.data(), d_grad_p.data(), d_p.data(), p.extent(0), p.extent(1),
                       nullptr);
    finish(version.name, d_p, d_grad_p, grad_x);
    keep(outputs, version.name, "grad_x", p.shape, grad_x);
  }
}

// The gradient of cross-entropy's mean by the logits: inputs logits and p = softmax(logits), of
// which a version takes one, (rows, classes), and labels (rows), each in [0, classes); output grad.
void run_cross_entropy_backward(const Case& c, Outputs& outputs) {
  const Array &logits = c.input("logits", 2), &p = c.input("p", logits.shape);
  const std::size_t rows = logits.extent(0), classes = logits.extent(1);
  const Array& labels = c.input("labels", std::vector<std::size_t>{rows});
  require(classes > 0, "cross-entropy needs at least one class");
  for (const float label : labels.values)
    require(label >= 0 && label < static_cast<float>(classes) && label == std::floor(label),
            "a label is none of the classes");
  losses::Buffers buffers(rows);
  for (const auto& version : activation_backward::kLossVersions) {
    Guarded<float> d_logits(logits.values, 0), d_p(p.values, 0), grad(rows * classes, 0);
    Guarded<int> d_labels(std::vector<int>(labels.values.begin(), labels.values.end()), 0);
    version.launch.run(grad.data(), d_logits.data(), d_p.data(), {d_labels.data(), rows, classes},
                       buffers.workspace(), nullptr);
    finish(version.name, d_logits, d_p, grad, d_labels);
    keep(outputs, version.name, "grad", logits.shape, grad);
  }
}

// Steps of an optimizer: inputs w (n), grad_w (steps, n), m and v (n); attributes optimizer (sgd,
// momentum, adam or adamw), learning_rate, momentum, beta1, beta2, epsilon, weight_decay, done (the
// steps before these), tensors (the parameters' sizes, with spaces between, which add up to n;
// default: one of all) and offset; outputs w, and m and v where the optimizer keeps them.
void run_optimizer(const Case& c, Outputs& outputs) {
  const Array &w = c.input("w", 1), &grad_w = c.input("grad_w", 2);
  const std::size_t n = w.extent(0), steps = grad_w.extent(0), at = offset(c);
  c.input("grad_w", {steps, n});
  const Array &m = c.input("m", std::vector<std::size_t>{n}),
              &v = c.input("v", std::vector<std::size_t>{n});

  optimizers::Kind kind{};
  bool found = false;
  for (const optimizers::Kind one : optimizers::kKinds)
    if (c.word("optimizer", "sgd") == optimizers::name(one)) kind = one, found = true;
  require(found, "there is no optimizer " + c.word("optimizer", "sgd"));
  optimizers::Hyperparameters hyper;
  const auto read = [&](float& value, const char* name) {
    value = static_cast<float>(c.number(name, static_cast<double>(value)));
  };
  read(hyper.learning_rate, "learning_rate"), read(hyper.momentum, "momentum");
  read(hyper.beta1, "beta1"), read(hyper.beta2, "beta2"), read(hyper.epsilon, "epsilon");
  read(hyper.weight_decay, "weight_decay");
  require(hyper.epsilon > 0, "epsilon must be above 0");

  std::istringstream sizes(c.word("tensors", std::to_string(n)));
  std::vector<std::size_t> tensors;
  std::size_t sum = 0;
  for (std::size_t size; sizes >> size; sum += size) tensors.push_back(size);
  require(sizes.eof() && sum == n, "the tensors' sizes do not add up to n");

  for (const auto& version : optimizers::kVersions) {
    Guarded<float> d_w(w.values, at), d_m(m.values, at), d_v(v.values, at), d_grad_w(n, at);
    const bool keeps_m = optimizers::states(kind) >= 1, keeps_v = optimizers::states(kind) >= 2;
    const optimizers::ParameterArena arena{d_w.data(), d_grad_w.data(),
                                           keeps_m ? d_m.data() : nullptr,
                                           keeps_v ? d_v.data() : nullptr, n};
    std::vector<optimizers::ParameterArena> parts;
    std::size_t begin = 0;
    for (const std::size_t size : tensors) {
      parts.push_back(arena.part(begin, size));
      begin += size;
    }
    const optimizers::TensorList list(parts);
    auto schedule = optimizers::make_schedule(hyper, c.integer("done", 0));
    for (std::size_t step = 0; step < steps; ++step) {
      if (n > 0)
        HIP_CHECK(hipMemcpy(d_grad_w.data(), grad_w.values.data() + step * n, n * sizeof(float),
                            hipMemcpyHostToDevice));
      optimizers::launch_begin_step(schedule.data());
      version.launch(kind, list, schedule.data(), nullptr);
    }
    finish(version.name, d_w, d_m, d_v, d_grad_w);
    keep(outputs, version.name, "w", w.shape, d_w);
    if (keeps_m) keep(outputs, version.name, "m", w.shape, d_m);
    if (keeps_v) keep(outputs, version.name, "v", w.shape, d_v);
  }
}

}  // namespace

std::vector<Operator> stage5() {
  return {{"dense_backward", run_dense_backward},
          {"activation_backward", run_activation_backward},
          {"softmax_backward", run_softmax_backward},
          {"cross_entropy_backward", run_cross_entropy_backward},
          {"optimizer", run_optimizer}};
}

}  // namespace operators
