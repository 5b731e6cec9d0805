// What the programs that train on step 5.8's images share, whatever their network: finding the
// data, the epochs with their progress, checkpoints and Ctrl-C, a row per version, and what the
// model still mistakes for what. Step 6.3's program uses it too.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/program.h"
#include "common/timer.h"
#include "common/training.h"
#include "stage5_training/05_sequential/checkpoint.h"
#include "stage5_training/08_train_mnist/mnist_training.h"

namespace mnist {

// Steps between two looks at the keyboard and two redrawings of the progress bar.
#if defined(GPU_BACKEND_CPU)
inline constexpr size_t kStepsAtATime = 16;
#else
inline constexpr size_t kStepsAtATime = 1024;
#endif

// `value` as printf's `format` says, of up to 63 characters.
std::string text(const char* format, double value);

// ---- Data -------------------------------------------------------------------------------------

struct Data {
  DataSet digits;
  std::string name;
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

// The training that the command line asks for; --size begins with the number of hidden units.
Settings settings_of(const Options& options);

// A table's problem: "784-128-10   MNIST (60000 images)   adam lr=0.001 batch=64 epochs=10".
std::string problem_text(const std::string& network, const Options& options, const Data& data);

// What a table says of its check.
std::string checked_text(const Trajectory& want);

// ---- Training ---------------------------------------------------------------------------------

// The first steps of a version against the trajectory, and the gradient of the very first.
template <class T>
Comparison check_first_steps(T& training, const Launch<T>& launch, const Trajectory& want) {
  training.restart();
  const std::vector<float> before = train_toy::flat(parameters_of(training));
  train(training, launch, 1);
  const Comparison gradient =
      train_toy::compare_gradient(training.model, training.settings.optimizer,
                                  hyperparameters_of(training.settings), before, want);
  training.restart();
  train(training, launch, want.losses.size());
  return together({compare_losses(epoch_losses(training), want), gradient});
}

struct Trained {
  double ms = 0;                            // of the training alone
  std::vector<std::vector<double>> epochs;  // number, mean loss, accuracy
  std::vector<Guess> guesses;               // of the test images, after the last epoch
};

// From the epoch that the training is in to the last one, with a test after each, and a checkpoint
// where one is asked for. Nothing is saved whose losses or parameters are not finite.
template <class T>
Trained run_epochs(T& training, const Launch<T>& launch, const Samples& tests,
                   const Digits& test_digits, const Options& options,
                   const training::Interrupt& interrupt) {
  const std::string& path = options.training.checkpoint;
  const size_t per_epoch = training.course().steps_per_epoch(), epochs = options.training.epochs;
  const std::uint64_t first = training.steps;
  training::Kept kept{path, options.training.resume ? first : 0};
  // The mean loss of the epoch so far. A training that was resumed within it knows the losses from
  // there on.
  const auto finite_loss = [&](std::uint64_t epoch_begin) {
    const size_t begin = std::max(first, epoch_begin) - epoch_begin;
    const size_t end = training.steps - epoch_begin;
    const std::vector<float> losses = epoch_losses(training);
    training::require_finite(losses, begin, end, epoch_begin, per_epoch, kept);
    sequential::require_finite(training.model, training.settings.optimizer, training.steps, kept);
    return training::mean_of(losses, begin, end);
  };
  training::Progress progress(epochs);
  Trained trained;
  while (training.steps < epochs * per_epoch) {
    const size_t epoch = training.steps / per_epoch + 1;
    const std::uint64_t epoch_begin = (epoch - 1) * per_epoch;
    do {
      const size_t done = training.steps % per_epoch;
      const HostTimer timer;
      train(training, launch, std::min(kStepsAtATime, per_epoch - done));
      trained.ms += timer.ms();
      if (interrupt.asked()) {
        if (path.empty())
          interrupt.stop("stopped in epoch " + std::to_string(epoch) +
                         "; with --checkpoint FILE the work would have been saved");
        finite_loss(epoch_begin);
        training.save(path);
        interrupt.stop("stopped after " + std::to_string(training.steps) + " steps, saved in " +
                       path + ": go on with --resume");
      }
      progress.update(epoch, training.steps - epoch_begin, per_epoch, "");
    } while (training.steps % per_epoch != 0);

    const double loss = finite_loss(epoch_begin);
    if (!path.empty()) training.save(path), kept.steps = training.steps;
    trained.guesses = guess(training.model, tests, test_digits.labels);
    const double right = 100 * accuracy(trained.guesses);
    trained.epochs.push_back({static_cast<double>(epoch), loss, right});
    if (options.training.one_version() || options.versions.size() == 1)  // else a table grows here
      progress.finish_epoch(epoch, text("loss %.4f", loss) + text("   test %.2f%%", right));
  }
  return trained;
}

// A row for each version that is wanted: its first steps against the losses `want`, then the whole
// training, `work(steps)` being what so many steps have to do. Then what the last one has learnt.
template <class T, size_t kCount, class WorkOf>
void run_versions(T& training, const Version<Launch<T>> (&versions)[kCount],
                  const Version<Launch<T>>& best, const Trajectory& want, const Data& data,
                  const Options& options, Report& report, WorkOf work) {
  const DeviceDigits tests(data.digits.test);
  const size_t per_epoch = training.course().steps_per_epoch();
  const training::Interrupt interrupt;
  Trained last;
  for (const auto& version : versions) {
    if (options.training.one_version() && options.versions.empty() && &version != &best) continue;
    if (!options.wants(version.name)) continue;
    Row row;
    row.name = version.name, row.lesson = version.lesson;
    row.skipped = version.launch.obstacle(training);
    if (!row.skipped.empty() && options.training.one_version())
      throw UsageError(std::string("--version ") + version.name + ": " + row.skipped);
    if (row.skipped.empty()) {
      if (options.training.resume) {
        training::load_or_refuse([&] { training.resume(options.training.checkpoint); });
      } else {
        row.check = check_first_steps(training, version.launch, want);
        training.restart();
      }
      if (kTimes && row.check.ok) {
        const std::uint64_t before = training.steps;
        Trained trained = run_epochs(training, version.launch, tests.samples(), data.digits.test,
                                     options, interrupt);
        if (trained.epochs.empty())
          throw UsageError(options.training.checkpoint + " has " +
                           std::to_string(before / per_epoch) +
                           " epochs behind it: --epochs says how many there shall be in all");
        row.ms = row.ms_p10 = row.ms_p90 = trained.ms;
        row.work = work(static_cast<double>(training.steps - before));
        row.note = text("test %.2f%%", trained.epochs.back()[2]) +
                   text(", loss %.4f", trained.epochs.back()[1]);
        last = std::move(trained);
      }
    }
    report.add(row);
    if (!row.check.ok && !options.training.checkpoint.empty())
      report.line(training::not_trained_text(options.training.checkpoint));
  }
  if (last.epochs.empty()) return;
  report.series("training", {"epoch", "loss", "accuracy"}, last.epochs);
  show_what_was_learnt(last.guesses, data.digits.test, report);
}

}  // namespace mnist
