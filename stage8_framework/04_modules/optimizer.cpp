#include "stage8_framework/04_modules/optimizer.h"

#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

#include "stage8_framework/02_backends/registry.h"
#include "stage8_framework/03_autograd/tape.h"

namespace framework {

Optimizer::Optimizer(std::vector<NamedTensor> parameters, const OptimizerRule& rule)
    : parameters_(std::move(parameters)), rule_(rule) {
  if (parameters_.empty()) throw std::invalid_argument("an optimizer of no parameters");
  const Tensor& first = *parameters_[0].tensor;
  for (const auto& [name, tensor] : parameters_) {
    if (tensor->dtype() != Dtype::f32 && tensor->dtype() != Dtype::f64)
      throw std::invalid_argument("an optimizer of " + name + ", " + tensor->text() +
                                  ": it updates f32 and f64");
    if (!tensor->requires_grad())
      throw std::invalid_argument("an optimizer of " + name +
                                  ", which requires no gradient: leave it out of the list");
    if (tensor->dtype() != first.dtype() || &tensor->device() != &first.device())
      throw std::invalid_argument("an optimizer of " + parameters_[0].name + " and " + name +
                                  ", which are of two types or on two devices");
  }
  rate_ = own_rate_ = full(first.device(), {}, 0, first.dtype());
}

void Optimizer::zero_grad() {
  for (const NamedTensor& parameter : parameters_) parameter.tensor->set_grad({});
}

Tensor Optimizer::gradient_of(const NamedTensor& parameter) const {
  const Tensor grad = parameter.tensor->grad();
  if (!grad.is_defined())
    throw std::runtime_error(parameter.name + " has no gradient: the loss does not depend on it, " +
                             "or backward() has not run since zero_grad()");
  return grad;
}

void Optimizer::step(double rate) {
  if (rate != last_rate_) fill(own_rate_, rate);
  last_rate_ = rate;
  step(own_rate_);
}

void Optimizer::step(const Tensor& rate) {
  rate_ = rate;
  update();
}

StateDict Optimizer::state_dict() const {
  StateDict all;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto [numbers, steps] = state(i);
    all[parameters_[i].name + ".step"] = steps;
    for (std::int64_t row = 0; row < states_of(rule_.kind); ++row)
      all[parameters_[i].name + (row == 0 ? ".m" : ".v")] = numbers.select(0, row);
  }
  return all;
}

void Optimizer::load_state_dict(const StateDict& state) {
  const StateDict mine = state_dict();
  for (const auto& [name, to] : mine) {
    const auto found = state.find(name);
    if (found == state.end())
      throw std::invalid_argument("load_state_dict of an optimizer: " + name + " is missing");
    if (!found->second.is_defined())
      throw std::invalid_argument("load_state_dict of an optimizer: " + name + " is undefined");
    if (found->second.shape() != to.shape())
      throw std::invalid_argument("load_state_dict of an optimizer: " + name + " is " +
                                  found->second.text() + ", not " + to.text());
  }
  for (const auto& [name, from] : state)
    if (mine.count(name) == 0)
      throw std::invalid_argument("load_state_dict of an optimizer: it has no " + name);
  for (const auto& [name, to] : mine) to.copy_from(framework::to(state.at(name), to.device()));
}

double by_steps(double highest, std::uint64_t done, std::uint64_t every, double gamma) {
  return highest * std::pow(gamma, static_cast<double>(done / every));
}

}  // namespace framework
