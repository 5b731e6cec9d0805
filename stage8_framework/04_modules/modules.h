// 8.4  modules: models as trees of named tensors, layers, optimizers, data loaders, and files that
// PyTorch reads, too.
//
//   module.h      Module: parameters, names, state_dict     optimizer.h   the rules of 5.4
//   layers.h      Linear, Conv2d, BatchNorm2d, ...          loader.h      batches of a data set
//   state_file.h  safetensors                               models.h      the course's three models
//
// This file has the ladder: the same training, whose parameters, gradients and data lie in ever
// better places. Each version trains `model` for `steps` steps and returns the loss before each of
// them; the model keeps the gradients of the last one. Done on return. Errors are those of the
// optimizer and the operations.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "common/version.h"
#include "stage8_framework/04_modules/layers.h"
#include "stage8_framework/04_modules/loader.h"
#include "stage8_framework/04_modules/optimizer.h"

namespace modules {

using framework::Device;
using framework::Module;
using framework::Tensor;

// What is learnt from, and how.
struct Task {
  Device& device;
  std::vector<Tensor> host_columns, columns;  // the data set in host memory, and on the device
  std::int64_t batch;
  framework::Order order;
  std::function<Tensor(Module& model, const std::vector<Tensor>& batch)> loss;  // a scalar
  framework::OptimizerRule rule;
  std::function<double(std::uint64_t done)> rate;  // of the step that has `done` behind it
};

// What the first two versions do, each with an optimizer of its own.
std::vector<float> train_from_host(framework::Optimizer& optimizer, Module& model, const Task& task,
                                   std::uint64_t steps);

std::vector<float> train_per_tensor(Module& model, const Task& task, std::uint64_t steps);
std::vector<float> train_arena(Module& model, const Task& task, std::uint64_t steps);
std::vector<float> train_resident(Module& model, const Task& task, std::uint64_t steps);

using Launch = std::vector<float> (*)(Module& model, const Task& task, std::uint64_t steps);

inline constexpr Version<Launch> kVersions[] = {
    {"per_tensor", train_per_tensor, "an update for each tensor; a batch is brought by the host"},
    {"arena", train_arena, "all parameters in one tensor, updated by one call"},
    {"resident", train_resident, "data and losses stay on the device: the host waits for nothing"},
};
constexpr const auto& best() { return kVersions[2]; }

}  // namespace modules
