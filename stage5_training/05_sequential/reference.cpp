#include "stage5_training/05_sequential/reference.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "common/gpu_runtime.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage4_forward/01_dense/dense.h"
#include "stage5_training/05_sequential/layers.h"

namespace sequential {

std::vector<Values> exactly(const std::vector<std::vector<float>>& parameters) {
  std::vector<Values> values;
  for (const std::vector<float>& parameter : parameters)
    values.push_back(dense::exactly(parameter));
  return values;
}

namespace {

// A model's present parameters.
std::vector<std::vector<float>> download(const Sequential& model) {
  std::vector<std::vector<float>> parameters;
  for (const NamedTensor& tensor : model.tensors()) {
    parameters.emplace_back(tensor.n);
    HIP_CHECK(hipMemcpy(parameters.back().data(), tensor.w, tensor.n * sizeof(float),
                        hipMemcpyDeviceToHost));
  }
  return parameters;
}

// The relative error of `count` roundings.
double roundings(double count) { return rounding::gamma(count); }

}  // namespace

// ---- Layers -----------------------------------------------------------------------------------

Values Layer::forward_cpu(const Values&, const std::vector<std::vector<float>>&, size_t) const {
  throw std::logic_error(description() + " has no reference");
}
Values Layer::backward_cpu(std::vector<Values>&, const Values&, const Values&,
                           const std::vector<std::vector<float>>&, size_t) const {
  throw std::logic_error(description() + " has no reference");
}
Values Layer::forward_double(const Values& x, const std::vector<Values>& parameters,
                             size_t batch) const {
  if (parameters.empty()) return forward_cpu(x, {}, batch);
  throw std::logic_error(description() + " has no reference with parameters in double");
}
Values Layer::backward_double(std::vector<Values>& gradients, const Values& grad_y, const Values& x,
                              const std::vector<Values>& parameters, size_t batch) const {
  if (parameters.empty()) return backward_cpu(gradients, grad_y, x, {}, batch);
  throw std::logic_error(description() + " has no reference with parameters in double");
}

Values Linear::forward_cpu(const Values& x, const std::vector<std::vector<float>>& values,
                           size_t batch) const {
  return forward_double(x, exactly(values), batch);
}
Values Linear::backward_cpu(std::vector<Values>& gradients, const Values& grad_y, const Values& x,
                            const std::vector<std::vector<float>>& values, size_t batch) const {
  return backward_double(gradients, grad_y, x, exactly(values), batch);
}

// The addition of the bias rounds once more.
Values Linear::forward_double(const Values& x, const std::vector<Values>& parameters,
                              size_t batch) const {
  const auto input = [&](size_t sample, size_t k) { return at(x, sample * in_ + k); };
  const auto weight = [&](size_t k, size_t unit) { return at(parameters[0], unit * in_ + k); };
  const bool with_errors = !x.error.empty();
  Values y = product_cpu(batch, out_, in_, input, weight, with_errors);
  for (size_t i = 0; i < batch * out_; ++i) {
    const Approximate bias = at(parameters[1], i % out_);
    y.value[i] += bias.value;
    if (!with_errors) continue;
    y.error[i] += bias.error;
    y.error[i] += kFloatRoundoff * (std::fabs(y.value[i]) + y.error[i]);
  }
  return y;
}

Values Linear::backward_double(std::vector<Values>& gradients, const Values& grad_y,
                               const Values& x, const std::vector<Values>& parameters,
                               size_t batch) const {
  const auto grad = [&](size_t sample, size_t unit) { return at(grad_y, sample * out_ + unit); };
  const auto transposed = [&](size_t unit, size_t sample) { return grad(sample, unit); };
  const auto input = [&](size_t sample, size_t k) { return at(x, sample * in_ + k); };
  const auto one = [](size_t, size_t) { return Approximate{1, 0}; };
  const auto weight = [&](size_t unit, size_t k) { return at(parameters[0], unit * in_ + k); };
  const bool with_errors = !x.error.empty();
  gradients.push_back(product_cpu(out_, in_, batch, transposed, input, with_errors));
  gradients.push_back(product_cpu(out_, 1, batch, transposed, one, with_errors));
  return product_cpu(batch, in_, out_, grad, weight, with_errors);
}

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

// ---- One step ---------------------------------------------------------------------------------

// Layers say what they do with parameters that are floats in forward_cpu: all of them can, also
// those that can't yet train in double.
Reference step_cpu(const Sequential& model, const std::vector<float>& x,
                   const std::vector<float>& grad_y, size_t batch) {
  std::vector<std::vector<float>> tensors = download(model);
  std::vector<std::vector<std::vector<float>>> parameters(model.layers());
  size_t k = 0;
  for (size_t i = 0; i < model.layers(); ++i)
    for (size_t left = model.layer(i).parameters().size(); left > 0; --left, ++k)
      parameters[i].push_back(std::move(tensors[k]));

  std::vector<Values> inputs{dense::exactly(x)};  // of the layers, and what the last one makes
  for (size_t i = 0; i < model.layers(); ++i)
    inputs.push_back(model.layer(i).forward_cpu(inputs[i], parameters[i], batch));
  Reference reference{inputs.back(), dense::exactly(grad_y), {}};
  std::vector<std::vector<Values>> gradients(model.layers());
  for (size_t i = model.layers(); i-- > 0;)
    reference.grad_x = model.layer(i).backward_cpu(gradients[i], reference.grad_x, inputs[i],
                                                   parameters[i], batch);
  for (std::vector<Values>& of_layer : gradients)
    for (Values& gradient : of_layer) reference.gradients.push_back(std::move(gradient));
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

DoubleModel::DoubleModel(const Sequential& model, Deviation deviation)
    : DoubleModel(model, download(model), deviation) {}

DoubleModel::DoubleModel(const Sequential& model, const std::vector<std::vector<float>>& parameters,
                         Deviation deviation)
    : model_(model), deviation_(deviation), first_{0} {
  const std::vector<NamedTensor>& tensors = model.tensors();
  if (parameters.size() != tensors.size())
    throw std::invalid_argument("DoubleModel: " + std::to_string(parameters.size()) +
                                " tensors for the " + std::to_string(tensors.size()) + " of " +
                                model.description());
  for (size_t k = 0; k < tensors.size(); ++k) {
    if (parameters[k].size() != tensors[k].n)
      throw std::invalid_argument("DoubleModel: " + std::to_string(parameters[k].size()) +
                                  " values for \"" + tensors[k].name + "\", which has " +
                                  std::to_string(tensors[k].n));
    const std::vector<float> zeros(tensors[k].n);
    elements_.push_back(optimizers::elements_of(parameters[k], zeros, zeros));
  }
  for (size_t i = 0; i < model.layers(); ++i)
    first_.push_back(first_.back() + model.layer(i).parameters().size());
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
  if (x.value.size() != batch * model_.inputs() || x.error.size() != x.value.size())
    throw std::invalid_argument("DoubleModel: x is not (" + std::to_string(batch) + ", " +
                                std::to_string(model_.inputs()) + ")");
  batch_ = batch;
  if (!follows_errors()) x.error.clear();
  inputs_.clear();
  inputs_.push_back(std::move(x));
  double terms = 1;  // of the layer's sums, or of those before it
  for (size_t i = 0; i < model_.layers(); ++i) {
    const Layer& layer = model_.layer(i);
    Values& input = inputs_.back();
    if (deviation_.other_side > 0)
      layer.decide_otherwise(input, deviation_.other_side / std::sqrt(terms));
    const std::vector<Parameter> of_layer = layer.parameters();
    if (!of_layer.empty()) terms = static_cast<double>(of_layer[0].fan_in);
    Values y = layer.forward_double(input, parameters_of(i), batch);
    if (deviation_.stores_floats) {
      const int toward_zero = of_layer.empty() ? deviation_.toward_zero : 0;
      const bool is_tanh = dynamic_cast<const Tanh*>(&layer) != nullptr;
      for (double& value : y.value) value = stored(value, toward_zero, is_tanh);
    }
    inputs_.push_back(std::move(y));
  }
  if (deviation_.no_errors)
    for (Values& input : inputs_) input.error.clear();
  return inputs_.back();
}

Values DoubleModel::backward(const Values& grad_y) {
  if (inputs_.empty())
    throw std::logic_error("DoubleModel: there is no forward pass that backward could belong to");
  std::vector<std::vector<Values>> of_layers(model_.layers());
  Values grad = grad_y;
  for (size_t i = model_.layers(); i-- > 0;) {
    const Layer& layer = model_.layer(i);
    if (deviation_.stores_floats && dynamic_cast<const Tanh*>(&layer) != nullptr) {
      const std::vector<double>& y = inputs_[i + 1].value;  // where it is nearly 1, the slope has
      for (size_t j = 0; j < y.size(); ++j)                 // hardly a digit left
        grad.value[j] *= 1 - y[j] * y[j];
    } else {
      grad = layer.backward_double(of_layers[i], grad, inputs_[i], parameters_of(i), batch_);
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
