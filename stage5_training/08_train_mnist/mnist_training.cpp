#include "stage5_training/08_train_mnist/mnist_training.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "common/safetensors.h"
#include "stage5_training/05_sequential/checkpoint.h"

namespace mnist {

optimizers::Hyperparameters hyperparameters_of(const Settings& settings) {
  optimizers::Hyperparameters hyper;
  hyper.learning_rate = settings.learning_rate;
  return hyper;
}

Training::Training(const Settings& wanted, const Samples& images, Sequential network)
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

void Training::reserve() {
  model.reserve(std::max(settings.batch, kEvaluationBatch));
  captured = nullptr;
}

void Training::begin(std::uint64_t steps_behind) {
  Schedule state;
  state.hyper = hyperparameters_of(settings), state.step = steps_behind;
  schedule.to_device(&state, 1);
  curve.poison();
  steps = steps_behind;
}

void Training::restart() {
  model.initialize(settings.seed);
  begin(0);
}

void Training::save(const std::string& path) const {
  sequential::TrainingState state;
  state.steps = steps, state.epochs = steps / course().steps_per_epoch();
  state.seed = settings.seed, state.optimizer = optimizers::name(settings.optimizer);
  state.more = {{"batch", std::to_string(settings.batch)},
                {"images", std::to_string(samples.count)}};
  sequential::save(path, model, &state);
}

void Training::resume(const std::string& path) {
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

std::vector<float> epoch_losses(const Training& training) {
  HIP_CHECK(hipStreamSynchronize(training.stream));
  return training.curve.to_host();
}

std::vector<std::vector<float>> parameters_of(const Training& training) {
  std::vector<std::vector<float>> parameters;
  for (const sequential::NamedTensor& tensor : training.model.tensors()) {
    parameters.emplace_back(tensor.n);
    HIP_CHECK(hipMemcpy(parameters.back().data(), tensor.w, tensor.n * sizeof(float),
                        hipMemcpyDeviceToHost));
  }
  return parameters;
}

std::vector<float> logits_of(Sequential& model, const Samples& samples) {
  DeviceBuffer<float> x(kEvaluationBatch * kPixels);
  DeviceBuffer<int> labels(kEvaluationBatch);
  std::vector<float> logits(samples.count * kClasses);
  for (size_t first = 0; first < samples.count; first += kEvaluationBatch) {
    const size_t count = std::min(kEvaluationBatch, samples.count - first);
    launch_gather_in_order(x.data(), labels.data(), samples, first, count);
    const float* part = model.forward(x.data(), count);
    HIP_CHECK(hipMemcpy(logits.data() + first * kClasses, part, count * kClasses * sizeof(float),
                        hipMemcpyDeviceToHost));
  }
  return logits;
}

std::vector<Guess> guess(Sequential& model, const Samples& samples,
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

double accuracy(const std::vector<Guess>& guesses) {
  const auto right = std::count_if(guesses.begin(), guesses.end(),
                                   [](const Guess& g) { return g.label == g.prediction; });
  return static_cast<double>(right) / static_cast<double>(guesses.size());
}

}  // namespace mnist
