// 5.6  train_toy: a small network learns XOR, two blobs and a spiral, thousands of steps over all
// points at once.
//
//   2 -> Linear -> tanh -> ... -> Linear -> softmax, cross-entropy -> gradients -> optimizer
//
// Nothing in it is new: the layers are step 5.5's, the loss 3.3's, the rule of the optimizer 5.4's.
// But such a step has a few thousand operations to do, and each kernel of it is over before the
// next one has been launched. The ladder is how a step is launched: a kernel per operation, the
// same kernels as a graph, one kernel for the step, one for all steps, a point in the registers of
// its lanes, and at last a wave that keeps the whole network in registers.
//
// x (points, inputs), row-major; a label in [0, classes) for each point. An epoch is one step:
// every step takes all points. One training at a time uses a Training; launches only queue work.
#pragma once

#include <string>

#include "common/version.h"
#include "stage5_training/06_train_toy/network.h"
#include "stage5_training/06_train_toy/training.h"

namespace train_toy {

// Each queues so many steps on the training's stream; the losses of every t.every-th go to
// its curve. Throws std::invalid_argument for more steps than the curve has room for, and where the
// version can't do this training.
void launch_operations(Training& t, unsigned steps);
void launch_graph(Training& t, unsigned steps);
void launch_one_kernel(Training& t, unsigned steps);
void launch_persistent(Training& t, unsigned steps);
void launch_registers(Training& t, unsigned steps);
void launch_wave(Training& t, unsigned steps);

// The kernels of the last three by themselves: they do the steps of `span` and change what `arrays`
// points to.
void queue_persistent(const Network& n, Kind kind, const Arrays& arrays, const Span& span,
                      hipStream_t stream);
void queue_registers(const Network& n, Kind kind, const Arrays& arrays, const Span& span,
                     hipStream_t stream);
void queue_wave(const Network& n, Kind kind, const Arrays& arrays, const Span& span,
                hipStream_t stream);

// Shared memory that queue_registers() needs.
size_t registers_shared_bytes(const Network& n, Kind kind);

// Why one block, lanes per point, or one wave can't do this training; empty where they can.
std::string why_not_block(const Training& t);
std::string why_not_registers(const Training& t);
std::string why_not_wave(const Training& t);
std::string nothing_against(const Training& t);

// Throws std::invalid_argument unless the refusal is empty.
void require(const std::string& refusal);

struct Launch {
  void (*run)(Training& t, unsigned steps);
  std::string (*why_not)(const Training& t);
};

inline constexpr Version<Launch> kVersions[] = {
    {"operations", {launch_operations, nothing_against}, "a kernel per operation"},
    {"graph", {launch_graph, nothing_against}, "the same kernels, 50 steps of them in a launch"},
    {"one_kernel", {launch_one_kernel, why_not_block}, "a whole step in one block of one kernel"},
    {"persistent", {launch_persistent, why_not_block}, "all steps in one launch"},
    {"registers", {launch_registers, why_not_registers}, "a point in the registers of its lanes"},
    {"wave", {launch_wave, why_not_wave}, "no barrier: the network in the registers of a wave"},
};

// The last version that can do this training.
const Version<Launch>& best(const Training& t);

}  // namespace train_toy
