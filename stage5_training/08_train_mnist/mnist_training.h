// What trainings on step 5.8's images share, whatever their network: the images on the device, the
// order in which they are taken, a training's memory and checkpoints, graphs of its steps, and the
// test of what was learnt. Step 6.3 trains a network of its own with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/device_buffer.h"
#include "common/graph.h"
#include "common/random.h"
#include "stage3_ml_ops/03_losses/losses.h"
#include "stage5_training/04_optimizers/optimizers.h"
#include "stage5_training/05_sequential/sequential.h"
#include "stage5_training/06_train_toy/trajectory.h"
#include "stage5_training/08_train_mnist/mnist_data.h"

namespace mnist {

using gpu::DeviceBuffer;
using gpu::Graph;
using optimizers::Schedule;
using random_numbers::Permutation;
using sequential::Sequential;
using train_toy::compare_losses;
using train_toy::Trajectory;

inline constexpr float kPixelScale = 1.0f / 255;  // pixels are multiplied by it
inline constexpr size_t kGraphSteps = 64;         // steps in a graph
inline constexpr size_t kEvaluationBatch = 1000;  // images of a forward pass that is not trained on

// ---- Data -------------------------------------------------------------------------------------

// Images in device memory: pixels (count, 784), labels (count).
struct Samples {
  const std::uint8_t* pixels;
  const std::uint8_t* labels;
  size_t count;
};

// Owns them.
struct DeviceDigits {
  explicit DeviceDigits(const Digits& digits) : pixels(digits.pixels), labels(digits.labels) {}
  Samples samples() const { return {pixels.data(), labels.data(), labels.size()}; }
  DeviceBuffer<std::uint8_t> pixels, labels;
};

// In which order a training walks through `samples` images, `batch` at a time.
struct Course {
  size_t samples, batch;
  std::uint64_t seed;

  __host__ __device__ size_t steps_per_epoch() const { return samples / batch; }
  // The order of the epoch that this step is in.
  __host__ __device__ Permutation order(std::uint64_t step) const {
    return Permutation(samples, seed, static_cast<std::uint32_t>(step / steps_per_epoch()));
  }
  // Where in that order its sample i is.
  __host__ __device__ size_t place(std::uint64_t step, size_t i) const {
    return step % steps_per_epoch() * batch + i;
  }
};

// x[i] = pixels of image first + i, times kPixelScale, labels[i] = its label
// x (count, 784), labels (count).
void launch_gather_in_order(float* x, int* labels, const Samples& samples, size_t first,
                            size_t count);

// ---- A model in training ----------------------------------------------------------------------

struct Settings {
  size_t hidden = 128, batch = 64;
  optimizers::Kind optimizer = optimizers::Kind::Adam;
  float learning_rate = 1e-3f;
  std::uint64_t seed = 1;  // of the first weights and of the order of the images
};

optimizers::Hyperparameters hyperparameters_of(const Settings& settings);

// What the steps of every version work on, all of it in device memory. One host thread uses it.
struct Training {
  // Throws std::invalid_argument where the images do not fill one batch.
  Training(const Settings& wanted, const Samples& images, Sequential network);
  ~Training() { static_cast<void>(hipStreamDestroy(stream)); }
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  Course course() const { return {samples.count, settings.batch, settings.seed}; }

  // New weights from the seed, and no step behind them.
  void restart();
  // Goes on from a checkpoint. Throws as sequential::load does, and std::runtime_error where the
  // file is of a training with another seed, batch, optimizer or number of images; then nothing has
  // changed.
  void resume(const std::string& path);
  // Writes a checkpoint: the model, the optimizer's state, and which training it is of. Throws as
  // sequential::save does.
  void save(const std::string& path) const;
  // Memory for all steps and tests, before a graph knows where it is: graphs are forgotten.
  void reserve();

  Settings settings;
  Samples samples;
  Sequential model;
  DeviceBuffer<Schedule> schedule;
  DeviceBuffer<float> curve;  // the losses of the steps of an epoch
  hipStream_t stream = nullptr;
  std::uint64_t steps = 0;            // behind us
  dense_backward::Branches branches;  // of the stream, for graphs

  // Of one batch.
  DeviceBuffer<float> x, grad_logits, loss;
  DeviceBuffer<int> labels;
  losses::Buffers loss_buffers;

  // A graph of kGraphSteps steps and one of a single step, of the version that was run last.
  const void* captured = nullptr;
  std::unique_ptr<Graph> many, one;

 private:
  void begin(std::uint64_t steps_behind);
};

// The losses of this epoch's steps, NaN where this program has not run them. Waits for the device.
std::vector<float> epoch_losses(const Training& training);

// The model's parameters on the host, in the order of its tensors.
std::vector<std::vector<float>> parameters_of(const Training& training);

// ---- Steps ------------------------------------------------------------------------------------

// Loss and gradient of logits: losses::cross_entropy, or another launcher of step 3.3.
using LaunchLoss = void (*)(float* loss, float* grad, const float* logits,
                            const losses::Targets& targets, const losses::Workspace& workspace,
                            hipStream_t stream);

// Queues one step, a kernel per operation: step 5.5's layers, step 3.3's loss and step 5.4's
// optimizer as they are.
void queue_step(Training& t, LaunchLoss loss);

// A version: how the steps of a training of type T are run.
template <class T>
struct Launch {
  // Queues `steps` steps, the first of which has t.steps steps behind it.
  void (*queue)(T& t, size_t steps);
  // Empty, or why the version can't run this training on this device.
  std::string (*obstacle)(const T& t);
};

// Trains `steps` steps more and waits for them.
template <class T>
void train(T& training, const Launch<T>& version, size_t steps) {
  version.queue(training, steps);
  HIP_CHECK(hipDeviceSynchronize());
  training.steps += steps;
}

// Queues steps from graphs. Launching a kernel takes the host longer than small kernels take the
// device. A graph is launched as a whole, and nothing in it depends on which step it is.
template <class T>
void run_captured(T& t, size_t steps, void (*queue)(T&)) {
  const void* const identity = reinterpret_cast<const void*>(queue);
  if (t.captured != identity) {
    t.model.use_branches(&t.branches);  // in a graph a fork costs nothing
    t.many = std::make_unique<Graph>(t.stream, [&] {
      for (size_t i = 0; i < kGraphSteps; ++i) queue(t);
    });
    t.one = std::make_unique<Graph>(t.stream, [&] { queue(t); });
    t.model.use_branches(nullptr);
    t.captured = identity;
  }
  for (; steps >= kGraphSteps; steps -= kGraphSteps) t.many->launch(t.stream);
  for (; steps > 0; --steps) t.one->launch(t.stream);
}

// ---- What the model has learnt ----------------------------------------------------------------

// The logits (count, 10) of a set of images. Waits for the device.
std::vector<float> logits_of(Sequential& model, const Samples& samples);

struct Guess {
  unsigned label, prediction;
  double confidence;  // the probability of the prediction
};

// What the model says to each image, whose labels these are.
std::vector<Guess> guess(Sequential& model, const Samples& samples,
                         const std::vector<std::uint8_t>& labels);

// The share of right predictions, from 0 to 1.
double accuracy(const std::vector<Guess>& guesses);

}  // namespace mnist
