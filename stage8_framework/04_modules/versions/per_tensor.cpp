// A training as it is first written: each parameter is updated for itself, and the host brings each
// batch and takes each loss.
//
// Idea:  autograd leaves a gradient beside each parameter. A loop updates one parameter after the
//        other, by one call each, which reads and writes the parameter and its states once.
// Costs: a call per parameter: 29 of 8.4's small transformer. Two copies that the device waits for
//        in front of every step, and a third that the host waits for behind it: nothing is queued
//        while the host works, and the host does nothing while the device does.
#include <cstdint>
#include <utility>

#include "stage8_framework/03_autograd/tape.h"
#include "stage8_framework/04_modules/modules.h"

namespace framework {

PerTensorOptimizer::PerTensorOptimizer(std::vector<NamedTensor> parameters,
                                       const OptimizerRule& rule)
    : Optimizer(std::move(parameters), rule) {
  for (const auto& [name, tensor] : parameters_) {
    Shape rows = tensor->shape();
    rows.insert(0, states_of(rule.kind));
    states_.push_back({full(tensor->device(), rows, 0, tensor->dtype()),
                       full(tensor->device(), {}, 0, Dtype::i64)});
  }
}

void PerTensorOptimizer::update() {
  const NoGrad guard;
  for (const NamedTensor& parameter : parameters_) gradient_of(parameter);  // all, or none
  // exercise: update each parameter by its gradient and its own state (about 6 lines)
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor weights = parameters_[i].tensor->detach();
    optimizer_step(weights, states_[i].numbers, states_[i].steps, gradient_of(parameters_[i]),
                   rate_, rule_);
  }
  // end exercise
}

}  // namespace framework

namespace modules {

std::vector<float> train_from_host(framework::Optimizer& optimizer, Module& model, const Task& task,
                                   std::uint64_t steps) {
  framework::HostLoader batches(task.host_columns, task.batch, task.order, task.device);
  std::vector<float> losses;
  for (std::uint64_t step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    const Tensor loss = task.loss(model, batches.next());
    loss.backward();
    optimizer.step(task.rate(step));
    losses.push_back(loss.to_host<float>()[0]);
  }
  return losses;
}

std::vector<float> train_per_tensor(Module& model, const Task& task, std::uint64_t steps) {
  framework::PerTensorOptimizer optimizer(model.parameters(), task.rule);
  return train_from_host(optimizer, model, task, steps);
}

}  // namespace modules
