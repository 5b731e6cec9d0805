// 6.4  train_cnn: a convolutional network learns to read handwritten digits.
//
//   image       1 x 28 x 28   pixels / 255
//   Conv2d      8 x 28 x 28   3x3, padding 1; ReLU
//   MaxPool2d   8 x 14 x 14   2x2
//   Conv2d     16 x 14 x 14   3x3, padding 1; ReLU
//   MaxPool2d  16 x  7 x  7   2x2
//   Linear     64             of the 784 values; ReLU
//   Linear     10             logits, cross-entropy
//
// The layers are those of steps 5.5, 6.1 and 6.3, the loss is 3.3's, the optimizers are 5.4's, and
// all that is not the network is step 5.8's: the images on the device, their order, checkpoints and
// graphs (mnist_training.h). A step of 64 images is two microseconds of a large GPU, in some thirty
// kernels: the ladder takes them together. The same seed gives the same bits on each run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/version.h"
#include "stage5_training/06_train_toy/trajectory.h"
#include "stage5_training/08_train_mnist/mnist_program.h"
#include "stage5_training/08_train_mnist/mnist_training.h"
#include "stage6_cnn/04_train_cnn/layers.h"

namespace train_cnn {

using mnist::kClasses;
using mnist::kPixels;
using mnist::kSide;
using sequential::Sequential;

// ---- The network ------------------------------------------------------------------------------

inline constexpr unsigned kChannels1 = 8, kChannels2 = 16;          // that the convolutions make
inline constexpr unsigned kSide1 = kSide / 2, kSide2 = kSide1 / 2;  // behind the pools
inline constexpr unsigned kFeatures = kChannels2 * kSide2 * kSide2;
inline constexpr size_t kHidden = 64;  // units, unless asked for others
inline constexpr size_t kLayers = 10;

struct Settings : mnist::Settings {
  Settings() { hidden = kHidden; }
  explicit Settings(const mnist::Settings& asked_for) : mnist::Settings(asked_for) {}
};

// What a training of kDefaults reaches (mnist_program.h).
inline const TrainingDefaults kDefaults{10, 1, 1, 64, 1e-3, "adam", true, true};
inline constexpr mnist::Promise kPromises[] = {{10000, 0.9}, {600000, 0.983}};

// What the first losses may be off, of what the twins of the reference drift apart: the first one
// takes every way that a gradient may take where two values of a window are nearly equal.
inline const train_toy::Twins kDrift(3);

// The layers, of which the first `count` are wanted: versions/operations.hip.
std::vector<std::unique_ptr<sequential::Layer>> make_layers(size_t hidden, size_t count);
Sequential make_model(size_t hidden);

// What steps of the network must multiply and add: forward, backward to the weights, and backward
// to the inputs of all layers but the first. Two operations each.
double operations_of(const mnist::Settings& settings, double steps);

// Roughly the bytes of device memory of a training.
double memory_of(const mnist::Settings& settings);

// What the first `count` layers of a model make of an image. Waits for the device.
std::vector<float> outputs_of(const Sequential& model, size_t hidden, size_t count,
                              const std::vector<std::uint8_t>& pixels);

// ---- A training -------------------------------------------------------------------------------

inline constexpr sequential::Mode kSeparate{true, false}, kFused{true, true};

struct Training : mnist::Training {
  // Throws as mnist::Training does.
  Training(const mnist::Settings& wanted, const mnist::Samples& images);

  // How the model runs its layers from now on, and what takes its loss. May wait for the device.
  void use(const sequential::Mode& mode, mnist::LaunchLoss loss_of_mode = losses::cross_entropy);

  // What the images of per_image leave for one another: detail/image_memory.h.
  gpu::DeviceBuffer<unsigned> rows;
  gpu::DeviceBuffer<float> features, parts, row_losses;

 private:
  bool fuses_ = true;  // as every new model does
};

// ---- The versions -----------------------------------------------------------------------------

// Each queues `steps` more steps.
void run_operations(Training& t, size_t steps);
void run_fused(Training& t, size_t steps);
void run_graph(Training& t, size_t steps);
void run_per_image(Training& t, size_t steps);

// Queues one step of per_image, of the images that t.rows names.
void queue_per_image(Training& t);

// Empty, or why a version can't run this training on this device.
std::string takes_any(const Training& t);
std::string takes_few_units(const Training& t);

using Launch = mnist::Launch<Training>;

inline constexpr Version<Launch> kVersions[] = {
    {"operations", {run_operations, takes_any}, "a kernel per operation, launched by the host"},
    {"fused", {run_fused, takes_any}, "ReLU and loss in their neighbours' kernels"},
    {"graph", {run_graph, takes_any}, "the same kernels, replayed from a graph of steps"},
    {"per_image",
     {run_per_image, takes_few_units},
     "two kernels: an image there and back; all sums"},
};

// The version to take where one is enough: on a GPU the last that can run.
const Version<Launch>& best(const Training& t);

}  // namespace train_cnn
