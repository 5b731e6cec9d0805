#include "stage5_training/08_train_mnist/mnist_training.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace mnist {

Training::Training(const Settings& wanted, const Samples& images, Sequential network)
    : Training(wanted, images, std::move(network),
               train_toy::require_batch({images.count, wanted.batch, wanted.seed}, "images")) {}

Training::Training(const Settings& wanted, const Samples& images, Sequential network,
                   const Sampler& of_images)
    : SequentialTrainer(std::move(network), wanted, wanted.batch, {of_images.steps_per_epoch()}),
      hidden(wanted.hidden),
      samples(images),
      sampler(of_images),
      x(wanted.batch * kPixels),
      labels(wanted.batch),
      loss_buffers(wanted.batch) {
  reserve();
}

void Training::reserve() { model.reserve(std::max(batch, kEvaluationBatch)); }

std::map<std::string, std::string> Training::facts() const {
  return {{"batch", std::to_string(batch)}, {"images", std::to_string(samples.count)}};
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
