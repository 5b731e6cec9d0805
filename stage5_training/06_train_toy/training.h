// A training of step 5.6: a network of any widths, and the same points in every step.
#pragma once

#include <cstddef>
#include <vector>

#include "stage3_ml_ops/03_losses/losses.h"
#include "stage5_training/06_train_toy/data.h"
#include "stage5_training/06_train_toy/network.h"
#include "stage5_training/06_train_toy/reference.h"
#include "stage5_training/06_train_toy/sequential_trainer.h"

namespace train_toy {

// Its constructor throws std::invalid_argument where the points don't fit the network, and
// std::out_of_range for a label that is no class.
class Training : public SequentialTrainer {
 public:
  Training(const std::vector<size_t>& widths, const Points& points, const Settings& wanted);

  const float* queue_batch() override { return x.data(); }
  void queue_loss(const float* logits) override;

  // Back to the beginning, with room for the losses of `count` steps, every so many of them.
  void reset(unsigned count, unsigned every_steps);
  // Throws std::invalid_argument where the curve has no room for the losses of so many more steps.
  void require_room(unsigned count) const;

  const std::vector<size_t>& widths() const { return widths_; }
  size_t points() const { return labels.size(); }
  // The layout of the step kernels. Throws std::invalid_argument for more than kMaxLayers layers.
  Network network() const;

  DeviceBuffer<float> x;             // (points, inputs)
  DeviceBuffer<int> labels;          // (points)
  DeviceBuffer<Schedule> schedules;  // of the steps of one launch; make_arrays() fills them

 private:
  std::vector<size_t> widths_;
  losses::Buffers loss_buffers_;
};

// The trajectory that a training's first steps must take from its present parameters. Ten times
// what the twins drift away is allowed, and 4 u: a loss near 0 is the logarithm of 1 + e, a sum
// that has lost what is below u.
Trajectory trajectory_cpu(const Training& t, const Points& points, size_t steps);

}  // namespace train_toy
