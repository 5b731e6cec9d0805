#include "stage7_transformer/07_train_shakespeare/training.h"

#include <algorithm>
#include <stdexcept>

#include "stage7_transformer/07_train_shakespeare/checkpoint.h"

namespace train_shakespeare {

Training::Training(const Settings& wanted, const Corpus& corpus)
    : settings(wanted),
      vocabulary(corpus.vocabulary),
      model(wanted.sizes, corpus.vocabulary.size()),
      train_text(corpus.train),
      validation_text(corpus.validation),
      schedule(1),
      schedules(train_shakespeare::schedules(wanted)),
      curve(wanted.steps),
      plain(wanted.sizes, corpus.vocabulary.size(), transformer_block::kVersions[1].launch),
      fused(wanted.sizes, corpus.vocabulary.size(), transformer_block::kBest) {
  const size_t shortest = std::min(corpus.train.size(), corpus.validation.size());
  if (shortest <= wanted.sizes.context)
    throw std::invalid_argument("a context of " + std::to_string(wanted.sizes.context) +
                                " characters needs a longer text: a tenth of this one has " +
                                std::to_string(shortest));
  if (wanted.steps == 0) throw std::invalid_argument("a training has at least one step");
  HIP_CHECK(hipStreamCreate(&stream));
  restart();
}

void Training::begin(std::uint64_t steps_behind) {
  Schedule state;
  state.step = steps_behind;
  schedule.to_device(&state, 1);
  curve.poison();
  HIP_CHECK(hipDeviceSynchronize());
  steps = steps_behind;
}

void Training::restart() {
  model.initialize(settings.seed);
  begin(0);
}

sequential::TrainingState Training::state() const {
  sequential::TrainingState state;
  state.steps = steps, state.seed = settings.seed;
  state.optimizer = optimizers::name(settings.kind);
  state.more = facts_of(settings.sizes, vocabulary);
  state.more["schedule"] = std::to_string(settings.steps) + " steps up to " +
                           std::to_string(settings.hyper.learning_rate);
  state.more["characters"] = std::to_string(train_text.size());
  return state;
}

void Training::save(const std::string& path) const {
  const sequential::TrainingState kept = state();
  sequential::save(path, model, &kept);
}

void Training::resume(const std::string& path) {
  const safetensors::File file = safetensors::read(path);
  sequential::require_training(path, file, state());
  begin(sequential::load(path, file, model).steps);
}

void train(Training& training, Launch version, size_t steps) {
  if (steps > training.settings.steps - training.steps)
    throw std::invalid_argument("this training has " + std::to_string(training.settings.steps) +
                                " steps, and " + std::to_string(training.steps) +
                                " of them are behind it");
  version(training, steps);
  HIP_CHECK(hipDeviceSynchronize());
  training.steps += steps;
}

std::vector<float> losses_of(const Training& training) {
  HIP_CHECK(hipStreamSynchronize(training.stream));
  return training.curve.to_host();
}

double validation_loss(Training& t) { return loss_of(t.model, t.fused, t.validation()); }

}  // namespace train_shakespeare
