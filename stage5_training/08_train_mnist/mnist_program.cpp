#include "stage5_training/08_train_mnist/mnist_program.h"

#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <string_view>

#include "common/sizes.h"
#include "stage5_training/05_sequential/checkpoint.h"

namespace mnist {

std::string text(const char* format, double value) {
  char line[64];
  std::snprintf(line, sizeof line, format, value);
  return line;
}

void truncate(Digits& digits, size_t count) {
  if (count >= digits.count()) return;
  digits.labels.resize(count), digits.pixels.resize(count * kPixels);
}

Data find_data(const Options& options, Report& report) {
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

namespace {

constexpr size_t kMistakes = 10;  // that are shown

void show_confusion(const std::vector<Guess>& guesses, Report& report) {
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
std::vector<size_t> worst_mistakes(const std::vector<Guess>& guesses) {
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
std::vector<std::string> draw_image(const std::uint8_t* pixels) {
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

void show_mistakes(const std::vector<Guess>& guesses, const Digits& digits, Report& report) {
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

}  // namespace

void show_what_was_learnt(const std::vector<Guess>& guesses, const Digits& digits, Report& report) {
  show_confusion(guesses, report);
  show_mistakes(guesses, digits, report);
}

void evaluate(Sequential& model, const Options& options, const Data& data, Report& report) {
  const DeviceDigits tests(data.digits.test);
  training::load_or_refuse([&] { sequential::load(options.training.evaluate, model); });
  const auto guesses = guess(model, tests.samples(), data.digits.test.labels);
  report.line(options.training.evaluate + ", tested with " + std::to_string(guesses.size()) +
              " images (" + data.name + ")");
  report.fact("test accuracy", 100 * accuracy(guesses), "%");
  show_what_was_learnt(guesses, data.digits.test, report);
}

// ---- What the command line asks for -----------------------------------------------------------

Settings settings_of(const Options& options) {
  return {train_toy::settings_of(options), options.sizes[0], options.training.batch};
}

std::string problem_text(const std::string& network, const Options& options, const Data& data) {
  return network + "   " + data.name + " (" + std::to_string(data.digits.train.count()) +
         " images)   " + options.training.optimizer +
         " lr=" + text("%g", options.training.learning_rate) +
         " batch=" + std::to_string(options.training.batch) +
         " epochs=" + std::to_string(options.training.epochs);
}

std::string goal_text(const Goal& goal) {
  return goal.is_set() ? text("   until %g%% of the tests", 100 * goal.accuracy) : "";
}

std::string checked_text(const Trajectory& want) {
  const std::string steps = std::to_string(want.losses.size());
  return want.losses.empty()
             ? ""
             : "checked: the first gradient and the losses of the first " + steps + " steps";
}

std::string missed(const Promised& promised, const Options& options, const Data& data,
                   double accuracy) {
  if (data.name != "MNIST" || !options.training.data.empty() ||
      !train_toy::as_promised(options, promised.defaults))
    return "";
  double least = 0;
  for (const Promise& promise : promised.after)
    if (data.digits.train.count() * options.training.epochs >= promise.images)
      least = promise.accuracy;
  if (accuracy >= least) return "";
  return text("test %.2f%%, ", 100 * accuracy) + text("promised %.2f%%", 100 * least);
}

std::string missed(const Goal& goal, double accuracy) {
  if (accuracy >= goal.accuracy) return "";
  return text("test %.2f%%", 100 * accuracy) + text(" is not %g%%", 100 * goal.accuracy);
}

train_toy::QueueSteps with_falling_rate(Training& training, const train_toy::QueueSteps& queue,
                                        const TrainingOptions& options) {
  return [&training, queue, &options, rate = 0.0](size_t steps) mutable {
    const size_t epoch = training.steps / training.steps_per_epoch();
    const double left = static_cast<double>(options.epochs - epoch);
    const double now = options.learning_rate * left / static_cast<double>(options.epochs);
    if (now != rate) training.set_learning_rate(static_cast<float>(rate = now));
    queue(steps);
  };
}

Trained train_and_test(Training& training, const train_toy::QueueSteps& queue, const Samples& tests,
                       const Digits& test_digits, const Options& options,
                       const training::Interrupt& interrupt, const Goal& goal) {
  // Steps between two looks at the keyboard and two redrawings of the progress bar.
  constexpr size_t kStepsAtATime = gpu::kBackend == std::string_view("cpu") ? 16 : 1024;
  Trained trained;
  train_toy::Epochs epochs{options.training.epochs, kStepsAtATime, training.steps_per_epoch(),
                           options.training.checkpoint};
  epochs.after_round = [&](size_t epoch, double loss, const training::Kept&) {
    trained.guesses = guess(training.model, tests, test_digits.labels);
    const double right = 100 * accuracy(trained.guesses);
    trained.epochs.push_back({static_cast<double>(epoch), loss, right});
    const bool shown = options.training.one_version() || options.versions.size() == 1;
    return shown ? text("loss %.4f", loss) + text("   test %.2f%%", right)
                 : "";  // a table grows there
  };
  epochs.is_enough = [&] { return trained.epochs.back()[2] >= 100 * goal.accuracy; };
  const HostTimer timer;
  trained.ms = train_toy::run_epochs(training, epochs, queue, interrupt);
  if (goal.is_set()) trained.ms = timer.ms();
  return trained;
}

}  // namespace mnist
