// 5.7  What every version of train_sales works on: the model, its training, and how good it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "stage3_ml_ops/03_losses/losses.h"
#include "stage5_training/05_sequential/sequential.h"
#include "stage5_training/06_train_toy/sampler.h"
#include "stage5_training/06_train_toy/sequential_trainer.h"
#include "stage5_training/07_train_sales/sales_features.h"

namespace train_sales {

using optimizers::Hyperparameters;
using optimizers::Kind;
using optimizers::ParameterArena;
using optimizers::Schedule;
using sequential::Sequential;
using train_toy::Sampler;

inline constexpr unsigned kMaxBlocks = 32;       // of fused and persistent
inline constexpr size_t kPredictionRows = 8192;  // of a forward pass that is not trained on

// What all versions train; they leave it as any other would, up to rounding.
struct Settings : train_toy::Settings {
  size_t batch = 1024;
};

inline constexpr unsigned kHidden = 32;  // units; a wave's size is a multiple of it

Sequential make_model();

// What the steps of every version work on.
class Training : public train_toy::SequentialTrainer {
 public:
  // Trains on train_rows (count, kParts) in device memory, which must outlive it. `sales_source`
  // says which sales they are. Throws std::invalid_argument where they do not fill one batch.
  Training(const float4* train_rows, size_t count, const Settings& wanted,
           const std::string& sales_source = "");

  const float* queue_batch() override;
  void queue_loss(const float* y) override;
  size_t steps_per_epoch() const override { return sampler.steps_per_epoch(); }
  std::map<std::string, std::string> facts() const override;
  // As Trainer::resume; it also throws where the checkpoint has no encoding of the sales.
  void resume(const std::string& path);

  const float4* rows;
  Sampler sampler;
  // Of one batch, of operations and graph.
  DeviceBuffer<float4> x;
  DeviceBuffer<float> target;
  // Of fused and persistent: what the blocks leave for one another, and an epoch's rows.
  DeviceBuffer<float4> sums, shuffled;
  DeviceBuffer<Schedule> schedules;

 private:
  Training(const float4* train_rows, const Settings& wanted, const std::string& sales_source,
           const Sampler& of_rows);

  std::string source_;
  losses::Buffers loss_buffers_{1};
};

// x[i] = features of row first + i, target[i] = its target    x (count, kFeatures), target (count).
void launch_gather_in_order(float4* x, float* target, const float4* rows, size_t first,
                            size_t count);

// ---- How good the model is --------------------------------------------------------------------

// The model's totals, normalised, of rows [0, count). Waits for the device.
std::vector<float> predict(Sequential& model, const float4* rows, size_t count);

// The mean absolute error over the test split, in the currency of the file: of a model's normalised
// totals, and of always saying the same, the training split's mean or its median.
double error_of(const std::vector<float>& normalized, const DataSet& data);
double error_of_mean(const DataSet& data);
double error_of_median(const DataSet& data);

}  // namespace train_sales
