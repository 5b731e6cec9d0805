// What the programs that train on step 5.8's images share, whatever their network: finding the
// data, the epochs with their progress, checkpoints and Ctrl-C, a row per version, and what the
// model still mistakes for what. Step 6.4's program uses it too.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "common/program.h"
#include "common/training.h"
#include "stage5_training/06_train_toy/epochs.h"
#include "stage5_training/08_train_mnist/mnist_training.h"

namespace mnist {

// `value` as printf's `format` says, of up to 63 characters.
std::string text(const char* format, double value);

// ---- Data -------------------------------------------------------------------------------------

struct Data {
  DataSet digits;
  std::string name;
};

// What a network reads of MNIST's test images after it has been trained on so many images, by the
// step's own optimizer, learning rate and batch: at least this share, from 0 to 1.
struct Promise {
  size_t images;  // of all epochs together
  double accuracy;
};
struct Promised {
  const TrainingDefaults& defaults;
  std::vector<Promise> after;  // from the fewest images to the most
};

// Keeps the first `count` digits, if there are more.
void truncate(Digits& digits, size_t count);

// MNIST where it is, its first --size images. A folder that was asked for must have it; else digits
// are drawn. Throws UsageError where it can't be read, or does not fill a batch.
Data find_data(const Options& options, Report& report);

// ---- What was learnt --------------------------------------------------------------------------

// Prints a row for each digit and a column for each answer, and the wrong answers that the model
// was surest of.
void show_what_was_learnt(const std::vector<Guess>& guesses, const Digits& digits, Report& report);

// Tests the checkpoint of --evaluate in `model`, which becomes its own.
void evaluate(Sequential& model, const Options& options, const Data& data, Report& report);

// ---- What the command line asks for -----------------------------------------------------------

// A training that ends with the first epoch after which so much of the test images is read. Its
// learning rate falls from epoch to epoch: in the first of N it is --lr's, in the last 1/N of it.
struct Goal {
  double accuracy = 2;  // from 0 to 1; above 1: it goes on to the last epoch, and keeps its rate
  bool shows = true;    // what it has learnt is shown: no other table does so

  bool is_set() const { return accuracy <= 1; }
};

// The training that the command line asks for; --size begins with the number of hidden units.
Settings settings_of(const Options& options);

// A table's problem: "784-128-10   MNIST (60000 images)   adam lr=0.001 batch=64 epochs=10".
std::string problem_text(const std::string& network, const Options& options, const Data& data);

// What follows it where there is a goal: "   until 99% of the tests", or nothing.
std::string goal_text(const Goal& goal);

// What a table says of its check.
std::string checked_text(const Trajectory& want);

// ---- Training ---------------------------------------------------------------------------------

// `queue` with the learning rates of a goal.
train_toy::QueueSteps with_falling_rate(Training& training, const train_toy::QueueSteps& queue,
                                        const TrainingOptions& options);

struct Trained {
  double ms = 0;                            // of the training alone; with a goal, of the tests, too
  std::vector<std::vector<double>> epochs;  // number, mean loss, accuracy
  std::vector<Guess> guesses;               // of the test images, after the last epoch
};

// From the epoch that the training is in to the last one, with a test after each, and a checkpoint
// where one is asked for (train_toy::run_epochs); or to the goal.
Trained train_and_test(Training& training, const train_toy::QueueSteps& queue, const Samples& tests,
                       const Digits& test_digits, const Options& options,
                       const training::Interrupt& interrupt, const Goal& goal);

// "test 96.10%, promised 97.50%", or nothing where the promise is kept or there is none.
std::string missed(const Promised& promised, const Options& options, const Data& data,
                   double accuracy);
// The same of a goal.
std::string missed(const Goal& goal, double accuracy);

// A row for each version that is wanted, of a goal's one; its first steps against the losses
// `want`, then the whole training, `work(steps)` being what so many steps have to do. Then what the
// last one has learnt.
template <class T, size_t kCount, class WorkOf>
void run_versions(T& training, const Version<Launch<T>> (&versions)[kCount],
                  const Version<Launch<T>>& best, const Trajectory& want, const Data& data,
                  const Promised& promised, const Options& options, Report& report, WorkOf work,
                  const Goal& goal = {}) {
  const DeviceDigits tests(data.digits.test);
  const size_t per_epoch = training.steps_per_epoch();
  const training::Interrupt interrupt;
  Trained last;
  for (const auto& version : versions) {
    const bool one = options.training.one_version() || goal.is_set();
    if (one && options.versions.empty() && &version != &best) continue;
    if (!options.wants(version.name)) continue;
    train_toy::QueueSteps queue = [&](size_t steps) { version.launch.queue(training, steps); };
    Row row;
    row.name = version.name, row.lesson = version.lesson;
    row.skipped = version.launch.obstacle(training);
    if (!row.skipped.empty() && options.training.one_version())
      throw UsageError(std::string("--version ") + version.name + ": " + row.skipped);
    if (row.skipped.empty()) {
      if (options.training.resume) {
        training::load_or_refuse([&] { training.resume(options.training.checkpoint); });
      } else {
        row.check = train_toy::check_first_steps(training, queue, want);
        training.restart();
      }
      if (kTimes && !options.no_times && row.check.ok) {
        const std::uint64_t before = training.steps;
        if (goal.is_set()) queue = with_falling_rate(training, queue, options.training);
        Trained trained = train_and_test(training, queue, tests.samples(), data.digits.test,
                                         options, interrupt, goal);
        if (trained.epochs.empty())
          throw UsageError(options.training.checkpoint + " has " +
                           std::to_string(before / per_epoch) +
                           " epochs behind it: --epochs says how many there shall be in all");
        row.ms = row.ms_p10 = row.ms_p90 = trained.ms;
        row.work = work(static_cast<double>(training.steps - before));
        row.note = text("test %.2f%%", trained.epochs.back()[2]) +
                   text(", loss %.4f", trained.epochs.back()[1]) +
                   (goal.is_set() ? text(", epoch %.0f", trained.epochs.back()[0]) : "");
        const double right = trained.epochs.back()[2] / 100;
        row.missed = goal.is_set() ? missed(goal, right) : missed(promised, options, data, right);
        last = std::move(trained);
      }
    }
    report.add(row);
    if (!row.check.ok && !options.training.checkpoint.empty())
      report.line(training::not_trained_text(options.training.checkpoint));
  }
  if (last.epochs.empty() || !goal.shows) return;
  report.series("training", {"epoch", "loss", "accuracy"}, last.epochs);
  show_what_was_learnt(last.guesses, data.digits.test, report);
}

}  // namespace mnist
