// Parameters and gradients in two long tensors, updated by one call.
//
//   weights_    | 0.weight          | 0.bias | 2.weight  | 2.bias |      a gap fills up 64 bytes
//   gradients_  | where backward() writes 0.weight's     | ...    |
//   state_      | m of all                                         |
//               | v of all                                         |
//
// Fixes: per_tensor makes a call, and a launch or two, for each parameter.
// Idea:  no parameter needs another, so all of them are one long array (5.4, `flat`). The module's
//        handles become views of it. A gradient has a home in the second array, where the rule of
//        its operation writes it at once: nothing is copied, and nothing is set to 0 first.
// Costs: all parameters count as written when one is. Every parameter must have a gradient.
#include <cstdint>
#include <utility>

#include "stage8_framework/03_autograd/tape.h"
#include "stage8_framework/04_modules/modules.h"

namespace framework {

namespace {

constexpr std::int64_t kAlignment = 16;  // elements: 64 bytes of f32

}  // namespace

ArenaOptimizer::ArenaOptimizer(std::vector<NamedTensor> parameters, const OptimizerRule& rule)
    : Optimizer(std::move(parameters), rule) {
  std::int64_t end = 0;
  for (const auto& [name, tensor] : parameters_) {
    first_.push_back(end);
    end += (tensor->elements() + kAlignment - 1) / kAlignment * kAlignment;
  }
  Device& device = rate_.device();
  weights_ = full(device, {end}, 0, rate_.dtype());
  gradients_ = full(device, {end}, 0, rate_.dtype());
  state_ = full(device, {states_of(rule.kind), end}, 0, rate_.dtype());
  steps_ = full(device, {}, 0, Dtype::i64);
  const NoGrad guard;
  // exercise: move each parameter into weights_, and give its gradient a home (about 7 lines)
  for (size_t i = 0; i < parameters_.size(); ++i) {
    Tensor& parameter = *parameters_[i].tensor;
    Tensor moved = part(weights_, i);
    moved.copy_from(parameter.detach());
    moved.set_requires_grad();
    set_gradient_home(moved, part(gradients_, i));
    parameter = moved;
  }
  // end exercise
}

ArenaOptimizer::~ArenaOptimizer() {
  for (const NamedTensor& parameter : parameters_)
    if (parameter.tensor->requires_grad() && parameter.tensor->shares_storage(weights_))
      set_gradient_home(*parameter.tensor, {});
}

Tensor ArenaOptimizer::part(const Tensor& arena, size_t parameter) const {
  const Tensor& like = *parameters_[parameter].tensor;
  const std::int64_t first = first_[parameter];
  return arena.slice(0, first, first + like.elements()).reshape(like.shape());
}

void ArenaOptimizer::update() {
  const NoGrad guard;
  // All, or none: gradient_of() throws before anything has changed.
  // Elsewhere is a gradient only where set_grad() has set it. It may be another parameter's.
  std::vector<std::pair<size_t, Tensor>> elsewhere;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor grad = gradient_of(parameters_[i]);
    const bool is_inside = grad.shares_storage(gradients_);
    if (!is_inside || !grad.is_contiguous() || grad.layout().offset != first_[i])
      elsewhere.emplace_back(i, is_inside ? grad.clone() : grad);
  }
  for (const auto& [i, grad] : elsewhere) part(gradients_, i).copy_from(grad);
  optimizer_step(weights_, state_, steps_, gradients_, rate_, rule_);
}

Optimizer::State ArenaOptimizer::state(size_t parameter) const {
  const Tensor& like = *parameters_[parameter].tensor;
  const std::int64_t first = first_[parameter];
  Shape rows = like.shape();
  rows.insert(0, states_of(rule_.kind));
  return {state_.slice(1, first, first + like.elements()).reshape(rows), steps_};
}

}  // namespace framework

namespace modules {

std::vector<float> train_arena(Module& model, const Task& task, std::uint64_t steps) {
  framework::ArenaOptimizer optimizer(model.parameters(), task.rule);
  return train_from_host(optimizer, model, task, steps);
}

}  // namespace modules
