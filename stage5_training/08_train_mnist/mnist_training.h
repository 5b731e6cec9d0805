// What trainings on step 5.8's images share, whatever their network: the images on the device, the
// batches of a training, and the test of what was learnt. Step 6.4 trains a network of its own with
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/device_buffer.h"
#include "stage3_ml_ops/03_losses/losses.h"
#include "stage5_training/05_sequential/sequential.h"
#include "stage5_training/06_train_toy/sampler.h"
#include "stage5_training/06_train_toy/sequential_trainer.h"
#include "stage5_training/06_train_toy/trajectory.h"
#include "stage5_training/08_train_mnist/mnist_data.h"

namespace mnist {

using gpu::DeviceBuffer;
using optimizers::Schedule;
using sequential::Sequential;
using train_toy::compare_losses;
using train_toy::Sampler;
using train_toy::Trajectory;

inline constexpr float kPixelScale = 1.0f / 255;  // pixels are multiplied by it
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

// x[i] = pixels of image first + i, times kPixelScale, labels[i] = its label
// x (count, 784), labels (count).
void launch_gather_in_order(float* x, int* labels, const Samples& samples, size_t first,
                            size_t count);

// ---- A model in training ----------------------------------------------------------------------

struct Settings : train_toy::Settings {
  size_t hidden = 128, batch = 64;
};

// Loss and gradient of logits: losses::cross_entropy, or another launcher of step 3.3.
using LaunchLoss = void (*)(float* loss, float* grad, const float* logits,
                            const losses::Targets& targets, const losses::Workspace& workspace,
                            hipStream_t stream);

// What the steps of every version work on, whatever the network.
class Training : public train_toy::SequentialTrainer {
 public:
  // Throws std::invalid_argument where the images do not fill one batch.
  Training(const Settings& wanted, const Samples& images, Sequential network);

  const float* queue_batch() override;
  void queue_loss(const float* logits) override;
  size_t steps_per_epoch() const override { return sampler.steps_per_epoch(); }
  std::map<std::string, std::string> facts() const override;
  // Memory for all steps and tests: no graph has to be captured anew later.
  void reserve();

  size_t hidden;  // units
  Samples samples;
  Sampler sampler;
  LaunchLoss launch_loss = losses::cross_entropy;
  // Of one batch.
  DeviceBuffer<float> x;
  DeviceBuffer<int> labels;
  losses::Buffers loss_buffers;

 private:
  Training(const Settings& wanted, const Samples& images, Sequential network,
           const Sampler& of_images);
};

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
