// A training: all that its steps work on, where it goes on from a checkpoint, and its losses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/device_buffer.h"
#include "common/graph.h"
#include "stage5_training/05_sequential/checkpoint.h"
#include "stage7_transformer/07_train_shakespeare/model.h"
#include "stage7_transformer/07_train_shakespeare/pass.h"
#include "stage7_transformer/07_train_shakespeare/pieces.h"
#include "stage7_transformer/07_train_shakespeare/settings.h"
#include "stage7_transformer/07_train_shakespeare/shakespeare_data.h"

namespace train_shakespeare {

using shakespeare::Corpus;
using shakespeare::Vocabulary;

inline constexpr size_t kGraphSteps = 10;  // in a graph

// What the steps of every version work on, all of it in device memory. One host thread uses it.
//
// Step 5.6's Trainer does not fit: it owns a Sequential, runs a version's backward pass on one
// stream, and has one learning rate for all steps. What does not depend on that is shared:
// settings, checkpoints, graphs, and the check of the first steps.
struct Training {
  // Throws std::invalid_argument where there is no such model, or the text is too short for it.
  Training(const Settings& wanted, const Corpus& corpus);
  ~Training() { static_cast<void>(hipStreamDestroy(stream)); }
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  // New weights from the seed, and no step behind them.
  void restart();
  // Goes on from a checkpoint. Throws as sequential::load does, and std::runtime_error where the
  // file is of a training with other settings or of another text; then nothing has changed.
  void resume(const std::string& path);
  void save(const std::string& path) const;

  Text train() const { return {train_text.data(), train_text.size()}; }
  Text validation() const { return {validation_text.data(), validation_text.size()}; }
  Drawn drawn() const {
    return {schedule.data(), settings.seed, train_text.size() - settings.sizes.context,
            settings.sizes.batch};
  }

  Settings settings;
  Vocabulary vocabulary;
  Model model;
  DeviceBuffer<std::uint8_t> train_text, validation_text;
  DeviceBuffer<Schedule> schedule, schedules;  // of the step that begins, and of all
  DeviceBuffer<float> curve;                   // the losses of all steps, NaN where none was run
  hipStream_t stream = nullptr;
  std::uint64_t steps = 0;  // behind us
  Pass plain, fused;        // of the version `operations`, and of the others

  // A graph of kGraphSteps steps and one of a single step.
  std::unique_ptr<gpu::Graph> many, one;

 private:
  sequential::TrainingState state() const;  // as it is now
  void begin(std::uint64_t steps_behind);
};

// The loss of the step that has been launched goes to the curve, and the optimizer's schedule
// becomes that of the step: versions/operations.hip.
void launch_begin_update(Training& t, const float* loss, hipStream_t stream);

// Queues `steps` steps, the first of which has t.steps steps behind it.
using Launch = void (*)(Training& t, size_t steps);

// Trains `steps` steps more and waits for them. Throws std::invalid_argument for more than the
// schedule has.
void train(Training& training, Launch version, size_t steps);

// The losses of all steps, NaN where this program has not run them. Waits for the device.
std::vector<float> losses_of(const Training& training);

// The mean loss per character of the text that is not trained on. Waits for the device.
double validation_loss(Training& t);

}  // namespace train_shakespeare
