// The operators of stage 3, whose headers hold kernels.
#include <cmath>
#include <string>
#include <vector>

#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage3_ml_ops/01_matrix_activations/matrix_activations.h"
#include "stage3_ml_ops/02_softmax/softmax.h"
#include "stage3_ml_ops/03_losses/losses.h"
#include "tests/operators/operators.h"

namespace operators {
namespace {

// matrix_relu, matrix_sigmoid, ...: y = f(x + bias), and grad_x = grad_y f'(x + bias). Inputs x
// (rows, cols), bias (cols) and, for the second, grad_y (rows, cols); attributes offset and
// in_place (0 or 1: y is x, grad_x is x); outputs y and grad_x.
template <class Activation>
void run_matrix_activation(const Case& c, Outputs& outputs) {
  const Array& x = c.input("x", 2);
  const std::size_t rows = x.shape[0], cols = x.shape[1], n = x.values.size(), at = offset(c);
  const Array& bias = c.input("bias", std::vector<std::size_t>{cols});
  const bool in_place = c.integer("in_place", 0) != 0;
  for (const auto& version : matrix_activations::kVersions<Activation>) {
    Guarded<float> d_x(x.values, at), d_bias(bias.values, at), d_out(n, at);
    Guarded<float>& out = in_place ? d_x : d_out;
    version.launch.forward(out.data(), d_x.data(), d_bias.data(), rows, cols, nullptr);
    finish(version.name, d_x, d_bias, d_out);
    keep(outputs, version.name, "y", x.shape, out);
  }
  if (!c.has("grad_y")) return;
  const Array& grad_y = c.input("grad_y", x.shape);
  for (const auto& version : matrix_activations::kVersions<Activation>) {
    Guarded<float> d_x(x.values, at), d_bias(bias.values, at), d_grad_y(grad_y.values, at);
    Guarded<float> d_out(n, at);
    Guarded<float>& out = in_place ? d_x : d_out;
    version.launch.backward(out.data(), d_grad_y.data(), d_x.data(), d_bias.data(), rows, cols,
                            nullptr);
    finish(version.name, d_x, d_bias, d_grad_y, d_out);
    keep(outputs, version.name, "grad_x", x.shape, out);
  }
}

// softmax by rows. Input x (rows, cols); attributes offset, offset_y (as offset; default: the same)
// and in_place (0 or 1: y is x); output y.
void run_softmax(const Case& c, Outputs& outputs) {
  const Array& x = c.input("x", 2);
  const std::size_t rows = x.shape[0], cols = x.shape[1], at = offset(c);
  const std::size_t at_y = c.integer("offset_y", at);
  const bool in_place = c.integer("in_place", 0) != 0;
  const auto run = [&](const char* name, auto launch) {
    Guarded<float> d_x(x.values, at), d_y(x.values.size(), at_y);
    Guarded<float>& y = in_place ? d_x : d_y;
    launch(y.data(), d_x.data(), rows, cols, nullptr);
    finish(name, d_x, d_y);
    keep(outputs, name, "y", x.shape, y);
  };
  for (const auto& version : softmax::kVersions) run(version.name, version.launch.run);
  run("best", softmax::best);
}

// squared_error: the mean of (p - t)^2 and its gradient by p. Inputs p and t of one shape;
// attribute offset; outputs loss, a scalar, and grad. The version `loss_alone` has no grad.
void run_squared_error(const Case& c, Outputs& outputs) {
  const Array &p = c.input("p"), &t = c.input("t", p.shape);
  const std::size_t n = p.values.size(), at = offset(c);
  losses::Buffers buffers(0);
  Guarded<float> d_p(p.values, at), d_t(t.values, at);
  for (const auto& version : losses::kSquaredErrorVersions) {
    Guarded<float> loss(1, 0), grad(n, at);
    version.launch.run(loss.data(), grad.data(), d_p.data(), d_t.data(), n, buffers.workspace(),
                       nullptr);
    finish(version.name, d_p, d_t, loss, grad);
    keep(outputs, version.name, "loss", {}, loss);
    keep(outputs, version.name, "grad", p.shape, grad);
  }
  Guarded<float> loss(1, 0);
  losses::launch_squared_error_loss(loss.data(), d_p.data(), d_t.data(), n, buffers.workspace());
  finish("loss_alone", d_p, d_t, loss);
  keep(outputs, "loss_alone", "loss", {}, loss);
}

// cross_entropy: the mean of -log softmax(logits)[label] over the rows that count, and its
// gradient. Inputs logits (rows, classes) and labels (rows), each in [0, classes) or ignore_index;
// attributes offset, ignore_index (default: no label is ignored) and in_place (0 or 1: grad is
// logits); outputs loss, row_losses (0 where a row is ignored) and grad. The versions
// loss_of_logits and loss_of_probabilities, which computes the softmax beforehand, have no grad.
void run_cross_entropy(const Case& c, Outputs& outputs) {
  const Array& logits = c.input("logits", 2);
  const std::size_t rows = logits.shape[0], classes = logits.shape[1], at = offset(c);
  const Array& labels = c.input("labels", std::vector<std::size_t>{rows});
  require(rows == 0 || classes > 0, "there is no class");
  const bool in_place = c.integer("in_place", 0) != 0;

  losses::Targets targets{nullptr, rows, classes};
  const std::string ignored = c.word("ignore_index", "");
  if (!ignored.empty()) targets.ignore_index = static_cast<long long>(c.number("ignore_index", 0));
  std::vector<int> integers;
  for (const float label : labels.values) {
    require(std::fabs(label) < 16777216 && label == std::rint(label),
            "a label is not an integer: " + std::to_string(label));
    integers.push_back(static_cast<int>(label));
    require(integers.back() == targets.ignore_index ||
                (label >= 0 && static_cast<std::size_t>(label) < classes),
            "label " + std::to_string(integers.back()) + " is not in [0, " +
                std::to_string(classes) + ")");
  }

  const auto run = [&](const char* name, bool has_grad, auto&& launch) {
    losses::Buffers buffers(rows);
    Guarded<int> d_labels(integers, at);
    Guarded<float> d_logits(logits.values, at), d_grad(logits.values.size(), at), loss(1, 0);
    Guarded<float>& grad = in_place ? d_logits : d_grad;
    targets.labels = d_labels.data();
    launch(loss.data(), grad.data(), d_logits.data(), buffers.workspace());
    finish(name, d_labels, d_logits, d_grad, loss);
    buffers.check_labels(classes);
    keep(outputs, name, "loss", {}, loss);
    outputs[std::string(name) + "/row_losses"] = {{rows}, buffers.row_losses()};
    if (has_grad) keep(outputs, name, "grad", logits.shape, grad);
  };
  for (const auto& version : losses::kVersions)
    run(version.name, true, [&](float* loss, float* grad, const float* x, const auto& workspace) {
      version.launch.run(loss, grad, x, targets, workspace, nullptr);
    });
  run("best", true, [&](float* loss, float* grad, const float* x, const auto& workspace) {
    losses::cross_entropy(loss, grad, x, targets, workspace);
  });
  run("loss_of_logits", false, [&](float* loss, float*, const float* x, const auto& workspace) {
    losses::launch_loss_of_logits(loss, x, targets, workspace);
  });
  run("loss_of_probabilities", false,
      [&](float* loss, float* p, const float* x, const auto& workspace) {
        softmax::best(p, x, rows, classes);
        losses::launch_loss_of_probabilities(loss, p, targets, workspace);
      });
}

}  // namespace

std::vector<Operator> stage3() {
  std::vector<Operator> all = {{"softmax", run_softmax},
                               {"squared_error", run_squared_error},
                               {"cross_entropy", run_cross_entropy}};
  activations::for_each_activation([&](auto f) {
    using Activation = decltype(f);
    static const std::string name = std::string("matrix_") + Activation::kName;
    all.push_back({name.c_str(), run_matrix_activation<Activation>});
  });
  return all;
}

}  // namespace operators
