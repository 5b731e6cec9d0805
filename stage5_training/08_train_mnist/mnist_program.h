// What the programs that train on step 5.8's images share, whatever their network: finding the
// data, the epochs with their progress, checkpoints and Ctrl-C, a row per version, and what the
// model still mistakes for what. Step 6.3's program uses it too. Host code only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/program.h"
#include "common/sizes.h"
#include "common/timer.h"
#include "common/training.h"
#include "stage5_training/08_train_mnist/mnist_training.h"

namespace mnist {

// Steps between two looks at the keyboard and two redrawings of the progress bar.
#if defined(GPU_BACKEND_CPU)
inline constexpr size_t kStepsAtATime = 16;
#else
inline constexpr size_t kStepsAtATime = 1024;
#endif
inline constexpr size_t kMistakes = 10;  // that are shown

inline std::string text(const char* format, double value) {
  char line[64];
  std::snprintf(line, sizeof line, format, value);
  return line;
}

// ---- Data -------------------------------------------------------------------------------------

struct Data {
  DataSet digits;
  std::string name;
};

inline void truncate(Digits& digits, size_t count) {
  if (count >= digits.count()) return;
  digits.labels.resize(count), digits.pixels.resize(count * kPixels);
}

// MNIST where it is. A folder that was asked for must have it; else digits are drawn.
inline Data find_data(const Options& options, Report& report) {
  const std::string folder = training::data_folder(options);
  const size_t count = options.sizes[1];
  Data data;
  if (missing_files(folder).empty() || !options.training.data.empty()) {
    try {
      data = {read(folder), "MNIST"};
    } catch (const std::runtime_error& error) {
      throw UsageError(error.what());
    }
    truncate(data.digits.train, count);
    truncate(data.digits.test, count);
  } else {
    // The drawn images on the host, and as many bytes on a device that may share its memory.
    sizes::require_host_memory(2.0 * kPixels * static_cast<double>(count));
    report.line("no MNIST in " + folder + "/mnist: training on digits that this program draws" +
                " (get MNIST with `python3 scripts/data.py`)");
    constexpr std::uint64_t kTrain = 1, kTest = 2;  // seeds
    constexpr size_t kMostTests = 10000;
    data = {{draw(count, kTrain), draw(std::min(count, kMostTests), kTest)}, "drawn digits"};
  }
  if (options.training.evaluate.empty() && options.training.batch > data.digits.train.count())
    throw UsageError("--batch: " + std::to_string(options.training.batch) + " of " +
                     std::to_string(data.digits.train.count()) + " images");
  return data;
}

// ---- What was learnt --------------------------------------------------------------------------

inline void show_confusion(const std::vector<Guess>& guesses, Report& report) {
  std::vector<std::vector<double>> counts(kClasses, std::vector<double>(kClasses));
  for (const Guess& g : guesses) ++counts[g.label][g.prediction];
  report.line("");
  std::string line = "a row per digit, a column per answer\n     ";
  for (unsigned c = 0; c < kClasses; ++c) line += "     " + std::to_string(c);
  report.line(line);
  std::vector<std::string> columns;
  for (unsigned label = 0; label < kClasses; ++label) {
    columns.push_back(std::to_string(label));
    line = "  " + std::to_string(label) + "  ";
    for (const double count : counts[label]) line += count == 0 ? "     ." : text("%6.0f", count);
    report.line(line);
  }
  report.series("confusion", columns, counts);
}

// The wrong answers that the model was surest of.
inline std::vector<size_t> worst_mistakes(const std::vector<Guess>& guesses) {
  std::vector<size_t> wrong;
  for (size_t i = 0; i < guesses.size(); ++i)
    if (guesses[i].label != guesses[i].prediction) wrong.push_back(i);
  std::stable_sort(wrong.begin(), wrong.end(), [&](size_t a, size_t b) {
    return guesses[a].confidence > guesses[b].confidence;
  });
  wrong.resize(std::min(wrong.size(), kMistakes));
  return wrong;
}

// Half as many lines as rows: characters are twice as high as wide.
inline std::vector<std::string> draw_image(const std::uint8_t* pixels) {
  const std::string shades = " .:-=+*#%@";
  std::vector<std::string> lines;
  for (size_t y = 0; y < kSide; y += 2) {
    std::string line;
    for (size_t x = 0; x < kSide; ++x) {
      const size_t ink = (size_t{pixels[y * kSide + x]} + pixels[(y + 1) * kSide + x]);
      line += shades[ink * shades.size() / 511];
    }
    lines.push_back(line);
  }
  return lines;
}

inline void show_mistakes(const std::vector<Guess>& guesses, const Digits& digits, Report& report) {
  const std::vector<size_t> worst = worst_mistakes(guesses);
  std::vector<std::string> columns{"label", "prediction", "confidence"};
  for (size_t k = 0; k < kPixels; ++k) columns.push_back("p" + std::to_string(k));
  std::vector<std::vector<double>> rows;
  for (const size_t i : worst) {
    const Guess& g = guesses[i];
    rows.push_back({static_cast<double>(g.label), static_cast<double>(g.prediction), g.confidence});
    const std::uint8_t* pixels = digits.pixels.data() + i * kPixels;
    rows.back().insert(rows.back().end(), pixels, pixels + kPixels);
  }
  report.series("worst", columns, rows);

  constexpr size_t kAcross = 3, kShown = 6, kWidth = kSide + 2;
  if (worst.empty()) return;
  report.line("");
  report.line("the mistakes it was surest of");
  for (size_t first = 0; first < std::min(worst.size(), kShown); first += kAcross) {
    const size_t last = std::min({first + kAcross, worst.size(), kShown});
    std::string heading;
    std::vector<std::string> lines(kSide / 2);
    for (size_t k = first; k < last; ++k) {
      const Guess& g = guesses[worst[k]];
      std::string title = "a " + std::to_string(g.label) + ", taken for " +
                          std::to_string(g.prediction) + text(" (%.1f%%)", 100 * g.confidence);
      title.resize(kWidth, ' ');
      heading += title;
      const auto image = draw_image(digits.pixels.data() + worst[k] * kPixels);
      for (size_t y = 0; y < lines.size(); ++y) lines[y] += image[y] + "  ";
    }
    report.line(heading);
    for (const std::string& line : lines) report.line(line);
  }
}

inline void show_what_was_learnt(const std::vector<Guess>& guesses, const Digits& digits,
                                 Report& report) {
  show_confusion(guesses, report);
  show_mistakes(guesses, digits, report);
}

// ---- Training ---------------------------------------------------------------------------------

// The training that the command line asks for; --size begins with the number of hidden units.
inline Settings settings_of(const Options& options) {
  Settings settings;
  settings.hidden = options.sizes[0];
  settings.batch = options.training.batch;
  settings.learning_rate = static_cast<float>(options.training.learning_rate);
  settings.seed = options.seed;
  for (const optimizers::Kind kind : optimizers::kKinds)
    if (options.training.optimizer == optimizers::name(kind)) settings.optimizer = kind;
  return settings;
}

inline std::string problem_text(const std::string& network, const Options& options,
                                const Data& data) {
  return network + "   " + data.name + " (" + std::to_string(data.digits.train.count()) +
         " images)   " + options.training.optimizer +
         " lr=" + text("%g", options.training.learning_rate) +
         " batch=" + std::to_string(options.training.batch) +
         " epochs=" + std::to_string(options.training.epochs);
}

// What a table says of its check.
inline std::string checked_text(const Trajectory& want) {
  const std::string steps = std::to_string(want.losses.size());
  return want.losses.empty()
             ? ""
             : "checked: the first gradient and the losses of the first " + steps + " steps";
}

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

// Tests the checkpoint of --evaluate in `model`, which becomes its own.
inline void evaluate(Sequential& model, const Options& options, const Data& data, Report& report) {
  const DeviceDigits tests(data.digits.test);
  training::load_or_refuse([&] { sequential::load(options.training.evaluate, model); });
  const auto guesses = guess(model, tests.samples(), data.digits.test.labels);
  report.line(options.training.evaluate + ", tested with " + std::to_string(guesses.size()) +
              " images (" + data.name + ")");
  report.fact("test accuracy", 100 * accuracy(guesses), "%");
  show_what_was_learnt(guesses, data.digits.test, report);
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
