// 5.8  train_mnist: a network of two layers learns to read handwritten digits.
//
//   pixels (784) / 255 -> Linear -> ReLU -> hidden units -> Linear -> 10 logits -> cross-entropy
//
// The model is step 5.5's, the loss 3.3's, the optimizers are 5.4's. A step of 64 images is 26
// million operations, half a microsecond of a large GPU: what a training takes is decided by how
// its steps are launched, and by where the weights are between them. That is the ladder.
//
//   operations   a kernel per operation, launched by the host
//   graph        the same kernels, replayed from a graph
//   fused        two kernels per step, where the backward pass has to wait for all hidden units
//   persistent   one kernel for a whole epoch, where that wait is a barrier of the grid
//
// The data set stays on the device as bytes. No kernel is told which step it is: it reads the
// number of steps behind it from the optimizer's Schedule, and the images of the next one follow
// from it (random_numbers::permute): nothing to shuffle, nothing to copy, arguments that never
// change. An epoch drops what does not fill its last batch.
//
// All versions are deterministic: the same bits on every run of one device, from the same seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/version.h"
#include "stage5_training/08_train_mnist/mnist_program.h"
#include "stage5_training/08_train_mnist/mnist_training.h"

namespace train_mnist {

using mnist::kClasses;
using mnist::kPixels;
using mnist::Sampler;
using mnist::Samples;
using mnist::Settings;
using mnist::Trajectory;
using optimizers::Schedule;
using sequential::Sequential;

// Of the blocks of fused and persistent: see detail/block.h.
inline constexpr unsigned kSamples = 64;                    // the largest batch
inline constexpr unsigned kMostUnits = 4;                   // hidden units of a block
inline constexpr unsigned kPadded = 12;                     // classes, in float4s
inline constexpr unsigned kExchanged = kSamples + kPadded;  // floats per hidden unit: h, w2

// Linear(784, hidden), ReLU, Linear(hidden, 10).
Sequential make_model(size_t hidden);

// A training of that model, and what the blocks of fused and persistent leave for one another.
struct Training : mnist::Training {
  // Throws as mnist::Training does.
  Training(const Settings& wanted, const Samples& images);

  gpu::DeviceBuffer<float> exchange;
  gpu::DeviceBuffer<unsigned> rows;           // of fused: the images of a batch
  gpu::DeviceBuffer<std::uint64_t> position;  // of fused: the number of the step that begins
};

// What a training of kDefaults reaches (mnist_program.h).
inline const TrainingDefaults kDefaults{10, 1, 2, 64, 1e-3, "adam", true};
inline constexpr mnist::Promise kPromises[] = {{20000, 0.9}, {60000, 0.93}, {600000, 0.975}};

// ---- The versions -----------------------------------------------------------------------------

// Each queues `steps` more steps.
void run_operations(Training& t, size_t steps);
void run_graph(Training& t, size_t steps);
void run_fused(Training& t, size_t steps);
void run_persistent(Training& t, size_t steps);

// Queues one step of fused, from where t.position says.
void queue_fused(Training& t);

// Empty, or why a version can't run this training on this device.
std::string takes_any(const Training& t);
std::string takes_small_batches(const Training& t);
std::string needs_residency(const Training& t);

using Launch = mnist::Launch<Training>;

inline constexpr Version<Launch> kVersions[] = {
    {"operations", {run_operations, takes_any}, "a kernel per operation, launched by the host"},
    {"graph", {run_graph, takes_any}, "the same kernels, replayed from a graph of steps"},
    {"fused", {run_fused, takes_small_batches}, "two kernels per step, in a graph"},
    {"persistent", {run_persistent, needs_residency}, "one kernel per epoch, weights on the chip"},
};

// The version to take where one is enough: the last that can run. A processor does not care how
// kernels are launched, and has the fastest ones of them in the first version.
const Version<Launch>& best(const Training& t);

}  // namespace train_mnist
