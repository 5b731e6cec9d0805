// The reference of a training's first steps: the model in double (step 5.5), from the same
// parameters, with the same batches. Steps 5.7, 5.8, 6.4 and 7.7 hold their versions against it
// too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "stage5_training/05_sequential/reference.h"
#include "stage5_training/06_train_toy/trainer.h"
#include "stage5_training/06_train_toy/trajectory.h"

namespace train_toy {

// The data of a training on the host. Steps count from 0.
struct Examples {
  std::function<sequential::Values(std::uint64_t step)> x;  // (batch, inputs)
  // The loss of y (batch, outputs); stores_floats as sequential::cross_entropy_cpu has it.
  std::function<sequential::Loss(std::uint64_t step, const sequential::Values& y,
                                 bool stores_floats)>
      loss;
  // What the optimizer does in the step; without it, always the same.
  std::function<Hyperparameters(std::uint64_t step)> hyper = {};
};

// A model's parameters that lie one behind the other, tensor by tensor.
std::vector<std::vector<float>> by_tensor(const sequential::Sequential& model,
                                          const std::vector<float>& parameters);

// What the first steps of a training must do from `parameters`, which lie one behind the other in
// the order of the model's tensors: the losses and the first gradient of a DoubleModel, and what
// its twins drift away. A twin stores layers' outputs and probabilities as floats; the first one
// also decides otherwise where a float version might: whether a sum that is nearly 0 is above
// ReLU's corner. Long trainings drift apart for good: the trajectory may end before `steps` steps,
// and what can be compared then is what was learnt.
Trajectory trajectory_cpu(const sequential::Sequential& model, const std::vector<float>& parameters,
                          const Settings& settings, size_t batch, const Examples& examples,
                          size_t steps, const Twins& drift);

// The same of any layers, with a twin for each of these deviations, of which there is one or more.
// of_twins: the layers of the twins, where they are others.
Trajectory trajectory_cpu(const sequential::DoubleNetwork& network,
                          const std::vector<std::vector<float>>& parameters,
                          const Settings& settings, size_t batch, const Examples& examples,
                          size_t steps, const Twins& drift,
                          const std::vector<sequential::Deviation>& twins,
                          const sequential::DoubleNetwork* of_twins = nullptr);

}  // namespace train_toy
