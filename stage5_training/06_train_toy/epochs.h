// What the programs of trainings share: the settings of the command line, the check of the first
// steps, and the loop over the epochs, with its checkpoints, its progress and Ctrl-C.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/options.h"
#include "common/training.h"
#include "stage5_training/06_train_toy/trainer.h"
#include "stage5_training/06_train_toy/trajectory.h"

namespace train_toy {

// Optimizer, learning rate and seed as the command line has them.
Settings settings_of(const Options& options);

// Whether the command line asks for a training as the step has it: of its data, with its optimizer,
// learning rate and batch. What a step promises, it promises of such trainings.
bool as_promised(const Options& options, const TrainingDefaults& defaults);

// Queues so many steps by some version.
using QueueSteps = std::function<void(size_t count)>;

// The losses of the next steps, which `queue` queues. Every loss goes to the curve, which may be
// shorter.
std::vector<float> next_losses(Trainer& t, const QueueSteps& queue, size_t steps);

// The gradient of a training's first step, and the losses of as many steps as the trajectory has,
// held against it. Every loss goes to the curve. Restarts the training before each of the two.
Comparison check_first_steps(Trainer& t, const QueueSteps& queue, const Trajectory& want);

// The mean of the losses that the steps behind number `begin` have left on the curve. Throws
// training::Diverged, which says what is kept, where one of them, a parameter or a state of the
// optimizer is not finite. Waits for the device.
double finite_loss(const Trainer& t, std::uint64_t begin, const training::Kept& kept);

struct Epochs {
  size_t in_all;                // with those that are behind the training
  size_t steps_at_a_time;       // between two looks at Ctrl-C
  size_t steps_per_round;       // after so many comes after_round(), and a checkpoint
  std::string checkpoint = {};  // its file; empty: none
  std::map<std::string, std::string> more = {};  // what Trainer::save() writes beside it
  const char* unit = "epoch";                    // as progress calls it
  // Gets the epochs behind the training, the mean of the losses that the round has left on the
  // curve (NaN for none), and what stop_diverged() wants to know. Returns the line that says how
  // far the training is, or nothing.
  std::function<std::string(size_t epochs, double loss, const training::Kept& kept)> after_round =
      {};
  // Asked after each round: whether the training ends there, before the last epoch.
  std::function<bool()> is_enough = [] { return false; };
};

// Trains from where the training is to the end of the last epoch. Returns the milliseconds of the
// steps alone. Throws training::Diverged, with the last checkpoint as it was, where a loss, a
// parameter or a state of the optimizer is no longer finite. Ctrl-C ends the program within
// steps_at_a_time steps, behind which the checkpoint is.
double run_epochs(Trainer& t, const Epochs& epochs, const QueueSteps& queue,
                  const training::Interrupt& interrupt);

}  // namespace train_toy
