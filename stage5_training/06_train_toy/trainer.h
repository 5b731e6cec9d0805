// What every training has, whatever it learns and whatever its model is: an optimizer, a curve of
// losses, steps that are launched one by one or as graphs, and checkpoints. Where the model is a
// Sequential, sequential_trainer.h has its step. Step 7.7's model is another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/device_buffer.h"
#include "common/graph.h"
#include "stage5_training/01_dense_backward/branches.h"
#include "stage5_training/04_optimizers/optimizers.h"
#include "stage5_training/05_sequential/checkpoint.h"

namespace train_toy {

using gpu::DeviceBuffer;
using optimizers::Hyperparameters;
using optimizers::Kind;
using optimizers::Schedule;

inline constexpr size_t kGraphSteps = 50;  // captured together, at most

struct Settings {
  Kind kind = Kind::Adam;
  Hyperparameters hyper{};
  std::uint64_t seed = 1;  // of the first parameters, and of the order of the samples
};

// Where the losses of a training are kept: of every `every`-th step, in `length` places that are
// used in turn.
struct CurveShape {
  size_t length;
  size_t every = 1;
};

// One host thread uses it. Everything that is queued goes to `stream`. The functions throw
// gpu::Error where the device refuses.
class Trainer {
 public:
  // Whoever derives from it calls restart() when the model is there.
  Trainer(const Settings& wanted, const CurveShape& curve_shape);
  virtual ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // ---- What a training of its own says
  // The model, as a checkpoint has it.
  virtual sequential::Stored stored() const = 0;
  // Gives the model new parameters, which follow from the seed; gradients and states become 0.
  // Waits for the device.
  virtual void initialize() = 0;
  // How often the memory that steps work in was given back: a graph that was captured before does
  // not know where the new one is.
  virtual size_t moves() const { return 0; }
  // From now on a step may use these branches of the stream; nullptr: no longer.
  virtual void use_branches(const dense_backward::Branches* /*of_stream*/) {}
  // How many steps are an epoch. 1: the training counts steps.
  virtual size_t steps_per_epoch() const { return 1; }
  // What else must be alike where a training goes on from a checkpoint: {"batch", "64"}.
  virtual std::map<std::string, std::string> facts() const { return {}; }

  // ---- Its state
  // New parameters, and no step behind them.
  void restart();
  // The model is one that has so many steps behind it. Poisons the curve.
  void go_on(std::uint64_t steps_done);
  // The next steps take this learning rate; restart() and go_on() put back that of the settings.
  // Waits for the device.
  void set_learning_rate(float rate);
  // A curve of another shape, poisoned.
  void set_curve(const CurveShape& shape);

  // Writes a checkpoint: the model, the optimizer's states and what resume() compares; `more` is
  // written beside it. Throws as sequential::save does.
  void save(const std::string& path, const std::map<std::string, std::string>& more = {}) const;
  // Goes on from a checkpoint. Throws as sequential::load does, and std::runtime_error where the
  // file is of a training with another optimizer, seed or other facts; then nothing has changed.
  void resume(const std::string& path);

  // ---- Its steps
  // versions/graph.hip: queues steps from graphs of what queue() queues for one of them; `name`
  // says which graphs these are, since they are kept. A graph holds where everything lies: they are
  // captured anew where the model's memory has moved.
  void replay(size_t count, const std::string& name, const std::function<void()>& queue);
  // Queues `count` steps by calling run(n) for pieces of n of them, and counts them. A piece ends
  // where a loss goes to the curve, unless all of them do: then it is a part of every step.
  void run_in_pieces(size_t count, const std::function<void(size_t)>& run);

  // The losses on the curve, NaN where this training has not written any. Waits for the device.
  std::vector<float> losses() const;
  // The model's parameters one behind the other, in the order of its tensors. Waits for the device.
  std::vector<float> parameters() const;

  Settings settings;
  DeviceBuffer<Schedule> schedule;  // of the step that begins
  DeviceBuffer<float> loss;         // of one step
  DeviceBuffer<float> curve;
  size_t every = 1;         // so often a loss goes to the curve
  std::uint64_t steps = 0;  // queued so far
  hipStream_t stream = nullptr;
  dense_backward::Branches branches;  // of the stream, while it is captured
  size_t most_graph_steps = kGraphSteps;

 private:
  sequential::TrainingState state() const;  // as it is now
  void forget_graphs();

  std::string captured_;                          // whose graphs these are
  std::unique_ptr<gpu::Graph> graph_, one_step_;  // of graph_steps_ steps, and of one
  size_t graph_steps_ = 0;
  size_t moves_ = 0;  // moves(), before they were captured
};

}  // namespace train_toy
