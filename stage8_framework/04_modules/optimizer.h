// Optimizers: the rules of 5.4 for the parameters of a module, and learning rates that change from
// step to step. An optimizer's numbers lie on the device, the learning rate and the number of steps
// among them, so that a step that was recorded can be run again (8.5).
//
//   ArenaOptimizer optimizer(model.parameters(), {kAdam});
//   optimizer.zero_grad();
//   loss_of(model(x), labels).backward();
//   optimizer.step(1e-3);
//
// The module outlives its optimizer. Errors: std::invalid_argument, one line that names the
// parameter, where one is not f32 or f64, requires no gradient, or they are of several types or on
// several devices; std::runtime_error where one has no gradient; gpu::Error of the device.
#pragma once

#include <vector>

#include "stage7_transformer/07_train_shakespeare/settings.h"
#include "stage8_framework/02_backends/functions.h"
#include "stage8_framework/04_modules/module.h"

namespace framework {

// The kinds of 5.4, and how many numbers each keeps of a parameter.
enum OptimizerKind { kSgd, kMomentum, kAdam, kAdamW };
constexpr std::int64_t states_of(int kind) { return kind == kSgd ? 0 : kind == kMomentum ? 1 : 2; }

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Updates every parameter by its gradient. Throws before any has changed.
  void step(double rate);
  // The same by a rate () of their type and device: a step that is recorded reads it anew.
  void step(const Tensor& rate);
  // Forgets the gradients: the next backward() writes them anew. No work for the device.
  void zero_grad();
  // Steps taken, m and v: what a training that goes on needs.
  StateDict state_dict() const;
  // Copies them back. Throws std::invalid_argument as Module::load_state_dict() does.
  void load_state_dict(const StateDict& state);

 protected:
  Optimizer(std::vector<NamedTensor> parameters, const OptimizerRule& rule);
  // What is kept of a parameter.
  struct State {
    Tensor numbers, steps;  // m and v (rows, ...); ()
  };
  virtual State state(size_t parameter) const = 0;
  virtual void update() = 0;                               // by rate_
  Tensor gradient_of(const NamedTensor& parameter) const;  // throws where there is none

  const std::vector<NamedTensor> parameters_;
  const OptimizerRule rule_;
  Tensor rate_;  // (), of the present step

 private:
  Tensor own_rate_;  // (): last_rate_
  double last_rate_ = 0;
};

// versions/per_tensor.cpp: each parameter is updated by a call of its own.
class PerTensorOptimizer : public Optimizer {
 public:
  PerTensorOptimizer(std::vector<NamedTensor> parameters, const OptimizerRule& rule);

 private:
  State state(size_t parameter) const override { return states_[parameter]; }
  void update() override;
  std::vector<State> states_;
};

// versions/arena.cpp: all parameters are parts of one tensor, and so are their gradients: one call
// updates all. The handles of the module become views of it. What grad() returns is a part of it,
// too: the backward pass behind the next zero_grad() overwrites it.
class ArenaOptimizer : public Optimizer {
 public:
  ArenaOptimizer(std::vector<NamedTensor> parameters, const OptimizerRule& rule);
  ~ArenaOptimizer() override;  // gradients find a place of their own again

 private:
  State state(size_t parameter) const override;
  void update() override;
  Tensor part(const Tensor& arena, size_t parameter) const;  // of its shape
  std::vector<std::int64_t> first_;                          // of each, in elements
  Tensor weights_, gradients_, state_, steps_;               // (n), (n), (rows, n), ()
};

// ---- Learning rates: of the step that has `done` behind it --------------------------------------

// Rises, then falls along half a cosine.
using train_shakespeare::warm_cosine;
// A factor of `gamma` after every `every` steps.
double by_steps(double highest, std::uint64_t done, std::uint64_t every, double gamma);

}  // namespace framework
