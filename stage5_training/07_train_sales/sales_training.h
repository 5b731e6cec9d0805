// 5.7  What every version of train_sales works on, and the host's side of a training: which rows a
// step takes, the model, how good it is, and its checkpoints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/graph.h"
#include "common/random.h"
#include "stage3_ml_ops/03_losses/losses.h"
#include "stage5_training/04_optimizers/optimizers.h"
#include "stage5_training/05_sequential/checkpoint.h"
#include "stage5_training/05_sequential/sequential.h"
#include "stage5_training/07_train_sales/sales_features.h"

namespace train_sales {

using optimizers::Hyperparameters;
using optimizers::Kind;
using optimizers::ParameterArena;
using optimizers::Schedule;
using sequential::Sequential;

inline constexpr unsigned kMaxBlocks = 32;       // of fused and persistent
inline constexpr size_t kGraphSteps = 64;        // steps in a graph
inline constexpr size_t kPredictionRows = 8192;  // of a forward pass that is not trained on

// ---- Batches ----------------------------------------------------------------------------------

// Which rows of the training split a step trains on.
struct Batches {
  size_t rows, batch;  // batch is at most rows
  std::uint64_t seed;

  __host__ __device__ size_t steps() const { return rows / batch; }  // of an epoch
  __host__ __device__ std::uint32_t epoch(std::uint64_t step) const {
    return static_cast<std::uint32_t>(step / steps());
  }
  // Of the mean of squared errors: 2 / batch.
  __host__ __device__ float gradient_scale() const { return 2.0f / static_cast<float>(batch); }
  // The row of `sample` of the batch of step number `step`, the first being 0.
  __host__ __device__ size_t row(std::uint64_t step, size_t sample) const {
    const size_t place = step % steps() * batch + sample;
    return random_numbers::permute(place, rows, seed, epoch(step));
  }
};

// What all versions train; they leave it as any other would, up to rounding.
struct Settings {
  Kind kind = Kind::Adam;
  Hyperparameters hyper{};
  size_t batch = 1024;
  std::uint64_t seed = 1;
};

inline constexpr unsigned kHidden = 32;  // units; a wave's size is a multiple of it

Sequential make_model();

// What the steps of every version work on; they leave it as any other would, up to rounding. One
// host thread uses it.
struct Training {
  // Trains on train_rows (count, kParts) in device memory, which must outlive it. Throws
  // std::invalid_argument where they do not fill one batch.
  Training(const float4* train_rows, size_t count, const Settings& wanted);
  ~Training() { static_cast<void>(hipStreamDestroy(stream)); }
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  // New weights from the seed, and no step behind them.
  void restart();
  // Writes a checkpoint: the model, the optimizer's state, and how the sales were encoded. `source`
  // says which sales they were. Throws as sequential::save does.
  void save(const std::string& path, const Encoding& encoding, const std::string& source) const;
  // Goes on from a checkpoint. Throws as sequential::load does, and std::runtime_error where it is
  // of a training with another optimizer, seed, batch or other sales; then nothing has changed.
  void resume(const std::string& path, const std::string& source);

  const float4* rows;
  Settings settings;
  Batches batches;
  Sequential model = make_model();
  DeviceBuffer<Schedule> schedule;
  DeviceBuffer<float> curve;  // the losses of the steps of an epoch
  hipStream_t stream = nullptr;
  std::uint64_t steps = 0;  // behind us

  // Of one batch, of operations and graph.
  DeviceBuffer<float4> x;
  DeviceBuffer<float> target, grad_y, loss;
  losses::Buffers loss_buffers{1};
  // A graph of kGraphSteps steps and one of a single step, of the version that was run last.
  void (*captured)(Training&) = nullptr;
  std::unique_ptr<gpu::Graph> many, one;
  dense_backward::Branches branches;  // of the stream, while it is captured
  // Of fused and persistent: what the blocks leave for one another, and an epoch's rows.
  DeviceBuffer<float4> sums, shuffled;
  DeviceBuffer<Schedule> schedules;

 private:
  void begin(std::uint64_t steps_behind);
};

// ---- What the versions share ------------------------------------------------------------------

// Queues one step: the layers of step 5.5, the loss of 3.3 and the optimizer of 5.4 as they are.
void queue_operations(Training& t);

// Queues `steps` steps as launches of graphs that `queue` was captured in.
void replay(Training& t, size_t steps, void (*queue)(Training&));

// x[i] = features of row first + i, target[i] = its target    x (count, kFeatures), target (count).
void launch_gather_in_order(float4* x, float* target, const float4* rows, size_t first,
                            size_t count);

// ---- How good the model is --------------------------------------------------------------------

// The model's parameters one behind the other, in the order of its tensors. Waits for the device.
std::vector<float> parameters_of(const Sequential& model);

// The model's totals, normalised, of rows [0, count). Waits for the device.
std::vector<float> predict(Sequential& model, const float4* rows, size_t count);

// The mean absolute error over the test split, in the currency of the file: of a model's normalised
// totals, and of always saying the same, the training split's mean or its median.
double error_of(const std::vector<float>& normalized, const DataSet& data);
double error_of_mean(const DataSet& data);
double error_of_median(const DataSet& data);

}  // namespace train_sales
