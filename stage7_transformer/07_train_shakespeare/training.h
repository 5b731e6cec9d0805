// A training: all that its steps work on beside what every training has (step 5.6).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/device_buffer.h"
#include "stage5_training/06_train_toy/trainer.h"
#include "stage7_transformer/07_train_shakespeare/bf16_pass.h"
#include "stage7_transformer/07_train_shakespeare/model.h"
#include "stage7_transformer/07_train_shakespeare/pass.h"
#include "stage7_transformer/07_train_shakespeare/pieces.h"
#include "stage7_transformer/07_train_shakespeare/settings.h"
#include "stage7_transformer/07_train_shakespeare/shakespeare_data.h"

namespace train_shakespeare {

using shakespeare::Corpus;
using shakespeare::Vocabulary;

inline constexpr size_t kGraphSteps = 10;  // in a graph: a step has a hundred kernels

// What the steps of every version work on, all of it in device memory. The curve has a place for
// each step of the whole training, and each step has a learning rate of its own.
class Training : public train_toy::Trainer {
 public:
  // Throws std::invalid_argument where there is no such model, or the text is too short for it.
  Training(const Settings& wanted, const Corpus& corpus);

  sequential::Stored stored() const override { return sequential::stored(model); }
  void initialize() override { model.initialize(settings.seed); }
  std::map<std::string, std::string> facts() const override;

  // The settings, with those of the model.
  Settings wanted() const;
  Text train() const { return {train_text.data(), train_text.size()}; }
  Text validation() const { return {validation_text.data(), validation_text.size()}; }
  Drawn drawn() const {
    return {schedule.data(), settings.seed, train_text.size() - model.sizes().context,
            model.sizes().batch};
  }

  // The passes of the versions in bf16, whose memory is taken with the first of these calls. Throws
  // std::invalid_argument for a model that bf16 can't train.
  Bf16Pass& bf16_pass() {
    if (bf16_ == nullptr) bf16_ = std::make_unique<Bf16Pass>(model);
    return *bf16_;
  }

  Vocabulary vocabulary;
  Model model;
  DeviceBuffer<std::uint8_t> train_text, validation_text;
  DeviceBuffer<Schedule> schedules;  // of all steps
  Pass plain, fused;  // of the version `operations`, and of the others: blocks `flash`, `grouped`
  // What runs beside the chain of fused beside what the loss has on `branches`: the gradients of
  // the weights of even blocks, and of odd ones.
  dense_backward::Branches of_blocks[2];

 private:
  std::unique_ptr<Bf16Pass> bf16_;
};

// The loss of the step that has been launched goes to the curve, and the optimizer's schedule
// becomes that of the step: versions/operations.hip.
void launch_begin_update(Training& t, hipStream_t stream);
// The end of a step that leaves work beside its chain: the optimizer waits for all of it.
void join_and_update(Training& t);

// Queues `steps` steps, the first of which has t.steps steps behind it.
using Launch = void (*)(Training& t, size_t steps);

// Trains `steps` steps more and waits for them. Throws std::invalid_argument for more than the
// schedule has.
void train(Training& training, Launch version, size_t steps);

// The mean loss per character of the text that is not trained on. Waits for the device.
double validation_loss(Training& t);

}  // namespace train_shakespeare
