// A model, its data and all memory of its training, for step 5.6.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/device_buffer.h"
#include "stage3_ml_ops/03_losses/losses.h"
#include "stage5_training/05_sequential/checkpoint.h"
#include "stage5_training/05_sequential/sequential.h"
#include "stage5_training/06_train_toy/data.h"
#include "stage5_training/06_train_toy/network.h"
#include "stage5_training/06_train_toy/reference.h"

namespace train_toy {

using gpu::DeviceBuffer;

struct Settings {
  Kind kind = Kind::Momentum;
  Hyperparameters hyper;
  std::uint64_t seed = 1;
};

// One training at a time uses a Trainer. Its constructor throws std::invalid_argument where the
// points don't fit the network, and std::out_of_range for a label that is no class.
class Trainer {
 public:
  Trainer(const std::vector<size_t>& widths, const Points& points, const Settings& settings);
  ~Trainer() { static_cast<void>(hipStreamDestroy(stream)); }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Back to the beginning, with room for the losses of `steps` steps, every so many of them.
  void reset(unsigned steps, unsigned every_steps);
  // The model is one that has `steps_done` steps behind it.
  void go_on(unsigned steps_done, unsigned steps, unsigned every_steps);

  const std::vector<size_t>& widths() const { return widths_; }
  const Settings& settings() const { return settings_; }
  size_t points() const { return labels.size(); }

  // The layout of the step kernels. Throws std::invalid_argument for more than kMaxLayers layers.
  Network network() const;
  // Throws std::invalid_argument where the curve has no room for the losses of so many more steps.
  void require_room(unsigned steps) const;

  sequential::Sequential model;
  DeviceBuffer<float> x;
  DeviceBuffer<int> labels;
  DeviceBuffer<float> logits_grad, loss;
  losses::Buffers loss_buffers;
  DeviceBuffer<Schedule> schedule;   // of the steps that are launched one by one
  DeviceBuffer<Schedule> schedules;  // of those of one launch; make_arrays() fills them
  DeviceBuffer<float> curve;         // the losses before the steps every, 2 every, ...
  unsigned done = 0, every = 1;      // steps behind us; so often a loss goes to the curve
  hipStream_t stream = nullptr;
  dense_backward::Branches branches;  // of the stream, for graphs

 private:
  std::vector<size_t> widths_;
  Settings settings_;
};

// The model's parameters one behind the other, in the order of its tensors.
std::vector<float> parameters_of(const Trainer& t);

// The trajectory that a trainer's first steps must take from its present parameters.
Trajectory trajectory_cpu(const Trainer& t, const Points& points, size_t steps);

}  // namespace train_toy
