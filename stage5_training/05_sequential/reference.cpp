#include "stage5_training/05_sequential/reference.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "common/gpu_runtime.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage5_training/05_sequential/layers.h"

namespace sequential {

std::vector<Values> exactly(const std::vector<std::vector<float>>& parameters) {
  std::vector<Values> values;
  for (const std::vector<float>& parameter : parameters)
    values.push_back(dense::exactly(parameter));
  return values;
}

namespace {

// The relative error of `count` roundings.
double roundings(double count) { return rounding::gamma(count); }

}  // namespace

Reference step_cpu(const Sequential& model, const std::vector<float>& x,
                   const std::vector<float>& grad_y, size_t batch) {
  DoubleModel run(model);
  Reference reference;
  reference.y = run.forward(dense::exactly(x), batch);
  reference.grad_x = run.backward(dense::exactly(grad_y));
  reference.gradients = run.gradients();
  return reference;
}

// ---- Losses -----------------------------------------------------------------------------------

// The difference rounds once, the square and the quotient once each, and each sum of n terms n - 1
// times at most: n + 3 roundings of a term.
Loss mean_squared_error_cpu(const Values& y, const std::vector<float>& targets) {
  const size_t size = y.value.size();
  if (targets.size() != size)
    throw std::invalid_argument("mean_squared_error_cpu: " + std::to_string(targets.size()) +
                                " targets for " + std::to_string(size) + " values");
  const double n = static_cast<double>(size);
  Loss loss{{}, {std::vector<double>(size), std::vector<double>(size)}};
  rounding::ApproximateSum sum;
  for (size_t i = 0; i < size; ++i) {
    const double off = y.value[i] - static_cast<double>(targets[i]);
    const double error = at(y, i).error;
    sum.add({off, error}, {off, error});
    loss.grad.value[i] = 2 * off / n;
    loss.grad.error[i] =
        2 * (error + roundings(3) * (std::fabs(off) + error)) / n + activations::kTiny;
  }
  const Approximate total = sum.worst_case(n + 4, n + 4);
  loss.mean = {total.value / n, total.error / n + activations::kTiny};
  return loss;
}

// The float versions take exp of z - max, an argument that is off by u times its size; exp is off
// by 4 u, the sum by `classes` u, the quotient by 2.5 u, the logarithm by 4 u.
Loss cross_entropy_cpu(const Values& y, const std::vector<int>& labels, size_t classes,
                       bool stores_floats) {
  const size_t rows = labels.size();
  if (y.value.size() != rows * classes)
    throw std::invalid_argument("cross_entropy_cpu: " + std::to_string(rows) + " labels of " +
                                std::to_string(classes) + " classes for " +
                                std::to_string(y.value.size()) + " logits");
  double count = 0;
  for (const int label : labels) {
    if (label >= static_cast<int>(classes))
      throw std::out_of_range("cross_entropy_cpu: label " + std::to_string(label) + " of " +
                              std::to_string(classes) + " classes");
    count += label >= 0;
  }
  Loss loss{{}, {std::vector<double>(y.value.size()), std::vector<double>(y.value.size())}};
  double absolute = 0;
  for (size_t row = 0; row < rows; ++row) {
    if (labels[row] < 0) continue;
    const double* const logits = y.value.data() + row * classes;
    const size_t label = static_cast<size_t>(labels[row]);
    const double max = *std::max_element(logits, logits + classes);
    const double min = *std::min_element(logits, logits + classes);
    double off = 0, sum = 0;
    for (size_t c = 0; c < classes; ++c) off = std::max(off, at(y, row * classes + c).error);
    for (size_t c = 0; c < classes; ++c) sum += std::exp(logits[c] - max);
    const double of_row = std::log(sum) + max - logits[label];
    const double depth = static_cast<double>(classes) + 16 + 2 * (max - min + 2 * off);
    const double of_p = std::expm1(2 * off) + roundings(depth) * std::exp(2 * off);
    for (size_t c = 0; c < classes; ++c) {
      const double p = std::exp(logits[c] - max) / sum, one_hot = c == label ? 1 : 0;
      const double stored = stores_floats ? static_cast<double>(static_cast<float>(p)) : p;
      loss.grad.value[row * classes + c] = (stored - one_hot) / count;
      loss.grad.error[row * classes + c] =
          (p * of_p + roundings(3) * (p * (1 + of_p) + one_hot)) / count + activations::kTiny;
    }
    loss.mean.value += of_row / count;
    loss.mean.error += (2 * off + roundings(depth) * (1 + of_row)) / count;
    absolute += of_row / count;
  }
  if (count == 0) loss.mean.value = std::numeric_limits<double>::quiet_NaN();
  loss.mean.error += rounding::worst_case(count + 3, count + 3, absolute + loss.mean.error);
  return loss;
}

// ---- A training -------------------------------------------------------------------------------

DoubleNetwork network_of(const Sequential& model) {
  DoubleNetwork network{{}, model.inputs(), model.description()};
  for (size_t i = 0; i < model.layers(); ++i) network.layers.push_back(&model.layer(i));
  return network;
}

namespace {

std::vector<std::vector<float>> parameters_now(const Sequential& model) {
  std::vector<std::vector<float>> parameters;
  for (const NamedTensor& tensor : model.tensors()) {
    parameters.emplace_back(tensor.n);
    HIP_CHECK(hipMemcpy(parameters.back().data(), tensor.w, tensor.n * sizeof(float),
                        hipMemcpyDeviceToHost));
  }
  return parameters;
}

}  // namespace

DoubleModel::DoubleModel(const Sequential& model, Deviation deviation)
    : DoubleModel(model, parameters_now(model), deviation) {}

DoubleModel::DoubleModel(DoubleNetwork network, const std::vector<std::vector<float>>& parameters,
                         Deviation deviation)
    : network_(std::move(network)), deviation_(deviation), first_{0} {
  std::vector<std::pair<std::string, size_t>> wanted;  // names and sizes
  for (size_t i = 0; i < network_.layers.size(); ++i) {
    for (const Parameter& parameter : network_.layers[i]->parameters())
      wanted.emplace_back(std::to_string(i) + "." + parameter.name,
                          checked_product(parameter.shape, network_.description));
    first_.push_back(wanted.size());
  }
  if (parameters.size() != wanted.size())
    throw std::invalid_argument("DoubleModel: " + std::to_string(parameters.size()) +
                                " tensors for the " + std::to_string(wanted.size()) + " of " +
                                network_.description);
  for (size_t k = 0; k < wanted.size(); ++k) {
    const auto& [name, n] = wanted[k];
    if (parameters[k].size() != n)
      throw std::invalid_argument("DoubleModel: " + std::to_string(parameters[k].size()) +
                                  " values for \"" + name + "\", which has " + std::to_string(n));
    const std::vector<float> zeros(n);
    elements_.push_back(optimizers::elements_of(parameters[k], zeros, zeros));
  }
}

std::vector<Values> DoubleModel::parameters_of(size_t layer) const {
  std::vector<Values> parameters;
  for (size_t k = first_[layer]; k < first_[layer + 1]; ++k) {
    Values& values = parameters.emplace_back();
    for (const optimizers::Element& e : elements_[k])
      values.value.push_back(e.w), values.error.push_back(e.w_error);
    if (!follows_errors()) values.error.clear();
  }
  return parameters;
}

namespace {

// The value as a float that is so many floats nearer to 0.
double stored(double value, int toward_zero, bool is_tanh) {
  float result = static_cast<float>(value);
  const float away = std::copysign(std::numeric_limits<float>::infinity(), result);
  for (int i = 0; i < std::abs(toward_zero) && result != 0; ++i)
    result = std::nextafter(result, toward_zero > 0 ? 0.0f : away);
  if (is_tanh) result = std::clamp(result, -1.0f, 1.0f);
  return static_cast<double>(result);
}

}  // namespace

const Values& DoubleModel::forward(Values x, size_t batch) {
  if (x.value.size() != batch * network_.inputs || x.error.size() != x.value.size())
    throw std::invalid_argument("DoubleModel: x is not (" + std::to_string(batch) + ", " +
                                std::to_string(network_.inputs) + ")");
  if (!follows_errors()) x.error.clear();
  passes_.clear();
  double terms = 1;  // of the layer's sums, or of those before it
  for (size_t i = 0; i < network_.layers.size(); ++i) {
    const DoubleLayer& layer = *network_.layers[i];
    HostPass& pass = passes_.emplace_back(HostPass{std::move(x), parameters_of(i), batch});
    if (deviation_.other_side > 0)
      layer.decide_otherwise(pass.x, deviation_.other_side / std::sqrt(terms));
    const std::vector<Parameter> of_layer = layer.parameters();
    if (!of_layer.empty()) terms = static_cast<double>(of_layer[0].fan_in);
    x = layer.forward_cpu(pass);
    if (deviation_.stores_floats) {
      const int toward_zero = of_layer.empty() ? deviation_.toward_zero : 0;
      const bool is_tanh = dynamic_cast<const Tanh*>(&layer) != nullptr;
      for (double& value : x.value) value = stored(value, toward_zero, is_tanh);
    }
  }
  y_ = std::move(x);
  if (deviation_.no_errors) {
    for (HostPass& pass : passes_) pass.x.error.clear();
    y_.error.clear();
  }
  return y_;
}

Values DoubleModel::backward(const Values& grad_y) {
  if (passes_.empty())
    throw std::logic_error("DoubleModel: there is no forward pass that backward could belong to");
  std::vector<std::vector<Values>> of_layers(passes_.size());
  Values grad = grad_y;
  for (size_t i = passes_.size(); i-- > 0;) {
    const DoubleLayer& layer = *network_.layers[i];
    if (deviation_.stores_floats && dynamic_cast<const Tanh*>(&layer) != nullptr) {
      const std::vector<double>& y = i + 1 < passes_.size() ? passes_[i + 1].x.value : y_.value;
      for (size_t j = 0; j < y.size(); ++j)  // where it is nearly 1, the slope has
        grad.value[j] *= 1 - y[j] * y[j];    // hardly a digit left
    } else {
      grad = layer.backward_cpu(of_layers[i], grad, passes_[i]);
    }
  }
  gradients_.clear();
  for (std::vector<Values>& of_layer : of_layers)
    for (Values& gradient : of_layer) gradients_.push_back(std::move(gradient));
  return grad;
}

void DoubleModel::step(optimizers::Kind kind, const optimizers::Hyperparameters& hyper,
                       std::uint64_t t) {
  if (gradients_.size() != elements_.size())
    throw std::logic_error("DoubleModel: there are no gradients for a step");
  for (size_t k = 0; k < elements_.size(); ++k) {
    gradients_[k].error.resize(elements_[k].size());  // 0 where they are not followed
    optimizers::step_cpu(kind, hyper, t, gradients_[k].value, gradients_[k].error, elements_[k]);
  }
}

void DoubleModel::forget_errors() {
  for (std::vector<optimizers::Element>& tensor : elements_)
    for (optimizers::Element& e : tensor) e.w_error = e.m_error = e.v_error = 0;
}

}  // namespace sequential
