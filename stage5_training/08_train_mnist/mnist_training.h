// What trainings on step 5.8's images share, whatever their network: the images on the device, the
// order in which they are taken, a training's memory and checkpoints, graphs of its steps, and the
// test of what was learnt. Step 6.3 trains a network of its own with it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/compare.h"
#include "common/gpu.h"
#include "common/graph.h"
#include "common/program.h"
#include "common/random.h"
#include "common/safetensors.h"
#include "stage0_infra/04_device_matrix/device_matrix.h"
#include "stage3_ml_ops/03_losses/losses.h"
#include "stage5_training/04_optimizers/optimizers.h"
#include "stage5_training/05_sequential/checkpoint.h"
#include "stage5_training/05_sequential/sequential.h"
#include "stage5_training/06_train_toy/trajectory.h"
#include "stage5_training/08_train_mnist/mnist_data.h"

namespace mnist {

using device_matrix::DeviceBuffer;
using gpu::Graph;
using optimizers::Schedule;
using random_numbers::Permutation;
using sequential::Sequential;
using train_toy::compare_losses;
using train_toy::Trajectory;

// ---- Tuning -----------------------------------------------------------------------------------

inline constexpr float kPixelScale = 1.0f / 255;  // pixels are multiplied by it
inline constexpr unsigned kPixelsPerThread = 16;  // of gather: one load of 16 bytes
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
  explicit DeviceDigits(const mnist::Digits& digits)
      : pixels(digits.pixels), labels(digits.labels) {}
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

// Which image is sample i of a batch: the next of a training, or the next of a test.
struct Shuffled {
  Course course;
  const Schedule* schedule;  // of the step that begins
  __device__ size_t operator()(size_t i) const {
    return course.order(schedule->step)(course.place(schedule->step, i));
  }
};
struct InOrder {
  size_t first;
  __device__ size_t operator()(size_t i) const { return first + i; }
};

// x[i] = pixels of image rows(i) * kPixelScale, labels[i] = its label    x (gridDim.x, 784).
// Fixes : a host that picks the images has to copy every batch, and four bytes for each of theirs.
// Idea  : each block asks which image it is to fetch; bytes become floats on the way.
// Thread: thread t of block i makes 16 pixels of sample i.
// Costs : 5 * 784 bytes of global memory per sample; every thread finds out the same image.
template <class Rows>
static __global__ void gather(float* x, int* labels, Samples samples, Rows rows) {
  const unsigned first = threadIdx.x * kPixelsPerThread;
  if (first >= kPixels) return;
  const size_t row = rows(blockIdx.x);
  const uint4 pixels = *reinterpret_cast<const uint4*>(samples.pixels + row * kPixels + first);
  float4* to = reinterpret_cast<float4*>(x + size_t{blockIdx.x} * kPixels + first);
  const unsigned words[] = {pixels.x, pixels.y, pixels.z, pixels.w};
  for (int i = 0; i < 4; ++i) {
    const float4 value = gpu::unpack_bytes(words[i]);
    to[i] = make_float4(kPixelScale * value.x, kPixelScale * value.y, kPixelScale * value.z,
                        kPixelScale * value.w);
  }
  if (first == 0) labels[blockIdx.x] = samples.labels[row];
}

template <class Rows>
inline void launch_gather(float* x, int* labels, const Samples& samples, size_t batch,
                          const Rows& rows, hipStream_t stream = nullptr) {
  constexpr unsigned kBlock = 64;  // at least 784 / 16
  if (batch > 0)
    LAUNCH_ON(stream, (gather<Rows>), static_cast<unsigned>(batch), kBlock, 0, x, labels, samples,
              rows);
}

// losses[step of the epoch] = *loss.
// Fixes : a host that reads every loss waits for every step.
// Idea  : the device writes the curve; the host reads an epoch of it at once.
// Thread: the only one does it all.
// Costs : one launch of one thread per step.
static __global__ void record_loss(float* losses, const float* loss, Course course,
                                   const Schedule* schedule) {
  losses[schedule->step % course.steps_per_epoch()] = *loss;
}

// ---- A model in training ----------------------------------------------------------------------

struct Settings {
  size_t hidden = 128, batch = 64;
  optimizers::Kind optimizer = optimizers::Kind::Adam;
  float learning_rate = 1e-3f;
  std::uint64_t seed = 1;  // of the first weights and of the order of the images
};

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

inline optimizers::Hyperparameters hyperparameters_of(const Settings& settings) {
  optimizers::Hyperparameters hyper;
  hyper.learning_rate = settings.learning_rate;
  return hyper;
}

inline Training::Training(const Settings& wanted, const Samples& images, Sequential network)
    : settings(wanted),
      samples(images),
      model(std::move(network)),
      schedule(1),
      curve(wanted.batch == 0 ? 0 : images.count / wanted.batch),
      x(wanted.batch * kPixels),
      grad_logits(wanted.batch * kClasses),
      loss(1),
      labels(wanted.batch),
      loss_buffers(wanted.batch) {
  if (wanted.batch == 0 || images.count < wanted.batch)
    throw std::invalid_argument("a batch of " + std::to_string(wanted.batch) +
                                " needs as many of " + std::to_string(images.count) +
                                " images, and at least one");
  reserve();
  HIP_CHECK(hipStreamCreate(&stream));
  restart();
}

inline void Training::reserve() {
  model.reserve(std::max(settings.batch, kEvaluationBatch));
  captured = nullptr;
}

inline void Training::begin(std::uint64_t steps_behind) {
  Schedule state;
  state.hyper = hyperparameters_of(settings), state.step = steps_behind;
  schedule.to_device(&state, 1);
  curve.poison();
  steps = steps_behind;
}

inline void Training::restart() {
  model.initialize(settings.seed);
  begin(0);
}

inline void Training::save(const std::string& path) const {
  sequential::TrainingState state;
  state.steps = steps, state.epochs = steps / course().steps_per_epoch();
  state.seed = settings.seed, state.optimizer = optimizers::name(settings.optimizer);
  state.more = {{"batch", std::to_string(settings.batch)},
                {"images", std::to_string(samples.count)}};
  sequential::save(path, model, &state);
}

inline void Training::resume(const std::string& path) {
  sequential::TrainingState found;
  try {
    found = sequential::state_of(safetensors::read(path).metadata);
  } catch (const std::invalid_argument& error) {
    throw std::runtime_error(path + " holds no training that could go on: " + error.what());
  }
  sequential::require_same(path, "optimizer", found.optimizer,
                           optimizers::name(settings.optimizer));
  sequential::require_same(path, "seed", std::to_string(found.seed), std::to_string(settings.seed));
  sequential::require_same(path, "batch", found.more["batch"], std::to_string(settings.batch));
  sequential::require_same(path, "images", found.more["images"], std::to_string(samples.count));
  begin(sequential::load(path, model).steps);
}

// The losses of this epoch's steps, NaN where this program has not run them. Waits for the device.
inline std::vector<float> epoch_losses(const Training& training) {
  HIP_CHECK(hipStreamSynchronize(training.stream));
  return training.curve.to_host();
}

// The model's parameters on the host, in the order of its tensors.
inline std::vector<std::vector<float>> parameters_of(const Training& training) {
  std::vector<std::vector<float>> parameters;
  for (const sequential::NamedTensor& tensor : training.model.tensors()) {
    parameters.emplace_back(tensor.n);
    HIP_CHECK(hipMemcpy(parameters.back().data(), tensor.w, tensor.n * sizeof(float),
                        hipMemcpyDeviceToHost));
  }
  return parameters;
}

// ---- Steps ------------------------------------------------------------------------------------

// Loss and gradient of logits: losses::cross_entropy, or another launcher of step 3.3.
using LaunchLoss = void (*)(float* loss, float* grad, const float* logits,
                            const losses::Targets& targets, const losses::Workspace& workspace,
                            hipStream_t stream);

// Queues one step, a kernel per operation: step 5.5's layers, step 3.3's loss and step 5.4's
// optimizer as they are.
inline void queue_step(Training& t, LaunchLoss loss) {
  const size_t batch = t.settings.batch;
  Schedule* schedule = t.schedule.data();
  // exercise: images, forward, loss, backward, the curve and the optimizer, on t.stream (about 8
  // lines)
  launch_gather(t.x.data(), t.labels.data(), t.samples, batch, Shuffled{t.course(), schedule},
                t.stream);
  const float* logits = t.model.forward(t.x.data(), batch, t.stream);
  loss(t.loss.data(), t.grad_logits.data(), logits, {t.labels.data(), batch, kClasses},
       t.loss_buffers.workspace(), t.stream);
  t.model.backward(t.grad_logits.data(), t.stream);
  LAUNCH_ON(t.stream, record_loss, 1, 1, 0, t.curve.data(), t.loss.data(), t.course(), schedule);
  optimizers::step(t.settings.optimizer, t.model.arena(), schedule, t.stream);
  // end exercise
}

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
inline void train(T& training, const Launch<T>& version, size_t steps) {
  version.queue(training, steps);
  HIP_CHECK(hipDeviceSynchronize());
  training.steps += steps;
}

// Queues steps from graphs. Launching a kernel takes the host longer than small kernels take the
// device. A graph is launched as a whole, and nothing in it depends on which step it is.
template <class T>
inline void run_captured(T& t, size_t steps, void (*queue)(T&)) {
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

// The logits (count, 10) of a set of images.
inline std::vector<float> logits_of(Sequential& model, const Samples& samples) {
  DeviceBuffer<float> x(kEvaluationBatch * kPixels);
  DeviceBuffer<int> labels(kEvaluationBatch);
  std::vector<float> logits(samples.count * kClasses);
  for (size_t first = 0; first < samples.count; first += kEvaluationBatch) {
    const size_t count = std::min(kEvaluationBatch, samples.count - first);
    launch_gather(x.data(), labels.data(), samples, count, InOrder{first});
    const float* part = model.forward(x.data(), count);
    HIP_CHECK(hipMemcpy(logits.data() + first * kClasses, part, count * kClasses * sizeof(float),
                        hipMemcpyDeviceToHost));
  }
  return logits;
}

struct Guess {
  unsigned label, prediction;
  double confidence;  // the probability of the prediction
};

// What the model says to each image.
inline std::vector<Guess> guess(Sequential& model, const Samples& samples,
                                const std::vector<std::uint8_t>& labels) {
  const std::vector<float> logits = logits_of(model, samples);
  std::vector<Guess> guesses(samples.count);
  for (size_t i = 0; i < samples.count; ++i) {
    const float* row = logits.data() + i * kClasses;
    const unsigned best = static_cast<unsigned>(std::max_element(row, row + kClasses) - row);
    double sum = 0;
    for (unsigned c = 0; c < kClasses; ++c)
      sum += std::exp(static_cast<double>(row[c]) - static_cast<double>(row[best]));
    guesses[i] = {labels[i], best, 1 / sum};
  }
  return guesses;
}

inline double accuracy(const std::vector<Guess>& guesses) {
  const auto right = std::count_if(guesses.begin(), guesses.end(),
                                   [](const Guess& g) { return g.label == g.prediction; });
  return static_cast<double>(right) / static_cast<double>(guesses.size());
}

}  // namespace mnist
