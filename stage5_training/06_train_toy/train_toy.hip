// Trains a small network on XOR, blobs and a spiral by every version: checks the first steps, times
// the training, and draws what was learnt.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "common/training.h"
#include "stage5_training/06_train_toy/train_toy.h"

using train_toy::Points;
using train_toy::Trainer;

namespace {

constexpr unsigned kCheckedSteps = kTimes ? 20 : 2;
constexpr unsigned kCurvePoints = 100;            // of the loss curve
constexpr unsigned kEpochsPerPiece = 1000;        // at most, from checkpoint to checkpoint
constexpr std::uint64_t kMaxEpochs = 1000000000;  // as --epochs

// ---- What a model says ------------------------------------------------------------------------

// The logits (points, classes) for x (points, inputs).
std::vector<float> logits_of(Trainer& t, const std::vector<float>& x) {
  const size_t count = x.size() / t.widths().front();
  const train_toy::DeviceBuffer<float> d_x(x);
  const float* logits = t.model.forward(d_x.data(), count, t.stream);
  std::vector<float> host(count * t.widths().back());
  HIP_CHECK(hipStreamSynchronize(t.stream));
  HIP_CHECK(hipMemcpy(host.data(), logits, host.size() * sizeof(float), hipMemcpyDeviceToHost));
  return host;
}

// The class with the largest logit for each point.
std::vector<int> classes_of(const std::vector<float>& logits, size_t classes) {
  std::vector<int> result;
  for (auto row = logits.begin(); row != logits.end(); row += static_cast<std::ptrdiff_t>(classes))
    result.push_back(
        static_cast<int>(std::max_element(row, row + static_cast<std::ptrdiff_t>(classes)) - row));
  return result;
}

struct Score {
  double loss, accuracy;  // the mean loss, and the share of points whose class is right
};

Score score_of(Trainer& t, const Points& points) {
  const size_t classes = t.widths().back(), count = points.labels.size();
  const std::vector<float> logits = logits_of(t, points.x);
  const std::vector<int> predicted = classes_of(logits, classes);
  Score score{0, 0};
  for (size_t i = 0; i < count; ++i) {
    const float* row = logits.data() + i * classes;
    const double of_label = static_cast<double>(row[points.labels[i]]);
    const double max = static_cast<double>(row[predicted[i]]);
    double sum = 0;
    for (size_t c = 0; c < classes; ++c) sum += std::exp(static_cast<double>(row[c]) - max);
    score.loss += (std::log(sum) + max - of_label) / static_cast<double>(count);
    score.accuracy += (predicted[i] == points.labels[i]) / static_cast<double>(count);
  }
  return score;
}

std::string text(const char* format, double value) {
  char line[32];
  std::snprintf(line, sizeof line, format, value);
  return line;
}

std::string score_text(const Score& score) {
  return "loss " + text("%.2g", score.loss) + ", accuracy " + text("%.4g", 100 * score.accuracy) +
         "%";
}

// ---- Pictures of characters -------------------------------------------------------------------

// Whether the terminal's language can show more than ASCII.
bool has_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string language = value;
    return language.find("UTF-8") != std::string::npos ||
           language.find("utf8") != std::string::npos;
  }
  return false;
}

bool has_color() {
  const char* terminal = std::getenv("TERM");
  const char* plain = std::getenv("NO_COLOR");
  return isatty(STDOUT_FILENO) && terminal != nullptr && std::string(terminal) != "dumb" &&
         (plain == nullptr || *plain == '\0');
}

// The loss over the epochs, its logarithm upwards: columns of eighths of a character.
void draw_curve(const std::vector<float>& losses, unsigned every, Report& report) {
  constexpr size_t kRows = 6, kColumns = 60, kEighths = 8;
  std::vector<double> logs;
  for (const float loss : losses)
    if (loss > 0 && std::isfinite(loss)) logs.push_back(std::log10(static_cast<double>(loss)));
  if (logs.size() < 2 || logs.size() != losses.size()) return;
  const double top = *std::max_element(logs.begin(), logs.end());
  const double range = std::fmax(top - *std::min_element(logs.begin(), logs.end()), 1e-3);
  const char* blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const bool utf8 = has_utf8();
  const size_t columns = std::min(kColumns, logs.size());
  for (size_t row = kRows; row-- > 0;) {
    std::string line;
    for (size_t column = 0; column < columns; ++column) {
      const double log = logs[column * (logs.size() - 1) / (columns - 1)];
      const double height =
          (1 + std::floor((log - (top - range)) / range * (kRows * kEighths - 1)));
      const double eighths = std::clamp(height - static_cast<double>(row * kEighths), 0.0, 8.0);
      line += utf8 ? blocks[static_cast<size_t>(eighths)] : eighths >= 4 ? "#" : " ";
    }
    std::string label(10, ' ');
    if (row == kRows - 1) label = "   " + text("%7.1e", std::pow(10, top));
    if (row == 0) label = "   " + text("%7.1e", std::pow(10, top - range));
    report.line(label + (utf8 ? " ▏" : " |") + line);
  }
  report.line("           loss, from epoch " + std::to_string(every) + " to " +
              std::to_string(every * logs.size()));
}

// The part of the plane that the points lie in, with a margin.
struct Frame {
  double left, right, bottom, top;
};

Frame frame_of(const Points& points) {
  Frame f{1e9, -1e9, 1e9, -1e9};
  for (size_t i = 0; i < points.labels.size(); ++i) {
    const double x = static_cast<double>(points.x[2 * i]);
    const double y = static_cast<double>(points.x[2 * i + 1]);
    f.left = std::fmin(f.left, x), f.right = std::fmax(f.right, x);
    f.bottom = std::fmin(f.bottom, y), f.top = std::fmax(f.top, y);
  }
  const double margin = 0.15 * std::fmax(f.right - f.left, f.top - f.bottom);
  return {f.left - margin, f.right + margin, f.bottom - margin, f.top + margin};
}

// The centres of rows x columns cells of the frame, the top row first.
std::vector<float> grid_of(const Frame& f, size_t rows, size_t columns) {
  std::vector<float> x;
  for (size_t row = 0; row < rows; ++row)
    for (size_t column = 0; column < columns; ++column) {
      const double across = (static_cast<double>(column) + 0.5) / static_cast<double>(columns);
      const double down = (static_cast<double>(row) + 0.5) / static_cast<double>(rows);
      x.push_back(static_cast<float>(f.left + across * (f.right - f.left)));
      x.push_back(static_cast<float>(f.top - down * (f.top - f.bottom)));
    }
  return x;
}

// Where the model sees which class, and the points on top.
void draw_boundary(Trainer& t, const Points& points, Report& report) {
  constexpr size_t kRows = 18, kColumns = 48;
  const bool color = has_color();
  const char* regions[] = {" ", has_utf8() ? "·" : ".", has_utf8() ? "░" : ":"};
  const char* marks[] = {"o", "x", "+"};
  const char* colors[] = {"34", "33", "35"};  // blue, yellow, magenta: told apart by most eyes
  const Frame f = frame_of(points);
  const std::vector<int> seen =
      classes_of(logits_of(t, grid_of(f, kRows, kColumns)), t.widths().back());
  std::vector<int> labels(kRows * kColumns, -1);  // of the point in the cell
  for (size_t i = 0; i < points.labels.size(); ++i) {
    const double x = static_cast<double>(points.x[2 * i]);
    const double y = static_cast<double>(points.x[2 * i + 1]);
    const size_t column = static_cast<size_t>((x - f.left) / (f.right - f.left) * kColumns);
    const size_t row = static_cast<size_t>((f.top - y) / (f.top - f.bottom) * kRows);
    labels[row * kColumns + column] = points.labels[i];
  }
  for (size_t row = 0; row < kRows; ++row) {
    std::string line = "  ";
    for (size_t column = 0; column < kColumns; ++column) {
      const size_t cell = row * kColumns + column;
      const bool is_point = labels[cell] >= 0;
      const size_t c = static_cast<size_t>(is_point ? labels[cell] : seen[cell]);
      const char* sign = is_point ? marks[c] : regions[c];
      line += color ? std::string("\x1b[") + (is_point ? "1;" : "") + colors[c] + "m" + sign : sign;
    }
    report.line(line + (color ? "\x1b[0m" : ""));
  }
}

// The same for `course plot`: the points, and what the model says on a grid.
void add_series(const std::string& name, Trainer& t, const Points& points, Report& report) {
  constexpr size_t kCells = 48;
  const size_t classes = t.widths().back();
  const std::vector<float> x = grid_of(frame_of(points), kCells, kCells);
  const std::vector<float> logits = logits_of(t, x);
  const std::vector<int> seen = classes_of(logits, classes);
  std::vector<std::vector<double>> cells, dots;
  for (size_t i = 0; i < seen.size(); ++i) {
    const float* row = logits.data() + i * classes;
    double sum = 0;
    for (size_t c = 0; c < classes; ++c)
      sum += std::exp(static_cast<double>(row[c]) - static_cast<double>(row[seen[i]]));
    cells.push_back({static_cast<double>(x[2 * i]), static_cast<double>(x[2 * i + 1]),
                     static_cast<double>(seen[i]), 1 / sum});
  }
  for (size_t i = 0; i < points.labels.size(); ++i)
    dots.push_back({static_cast<double>(points.x[2 * i]), static_cast<double>(points.x[2 * i + 1]),
                    static_cast<double>(points.labels[i])});
  report.series(name + "_boundary", {"x", "y", "class", "probability"}, cells);
  report.series(name + "_points", {"x", "y", "class"}, dots);
}

// ---- Training ---------------------------------------------------------------------------------

optimizers::Kind kind_of(const std::string& name) {
  for (const optimizers::Kind kind : optimizers::kKinds)
    if (name == optimizers::name(kind)) return kind;
  throw UsageError("--optimizer: '" + name + "' is unknown");
}

train_toy::Settings settings_of(const Options& options) {
  train_toy::Settings settings;
  settings.kind = kind_of(options.training.optimizer);
  settings.hyper.learning_rate = static_cast<float>(options.training.learning_rate);
  settings.seed = options.seed;
  return settings;
}

std::string problem_text(const train_toy::DataSet& data, const Points& points,
                         const Options& options) {
  std::string network;
  for (const size_t width : data.widths)
    network += (network.empty() ? "" : "-") + std::to_string(width);
  return std::string(data.name) + "   points=" + std::to_string(points.labels.size()) +
         " network=" + network + " " + options.training.optimizer +
         " lr=" + text("%g", options.training.learning_rate) +
         " epochs=" + std::to_string(options.training.epochs);
}

// What the products of one training need at least: forward, and backward twice.
Work work_of(const train_toy::DataSet& data, const Points& points, double epochs) {
  double weights = 0;
  for (size_t l = 0; l + 1 < data.widths.size(); ++l)
    weights += static_cast<double>(data.widths[l] * data.widths[l + 1]);
  return {0, 6 * weights * static_cast<double>(points.labels.size()) * epochs, Work::Limit::none};
}

// Trains from the beginning until a third of a second has been spent, five times at most, or as
// often as --repeat says. The last training's model and curve remain.
Timing time_training(Trainer& t, const train_toy::Launch& launch, unsigned epochs, unsigned every,
                     int repeat) {
  std::vector<double> ms;
  double spent = 0;
  do {
    t.reset(epochs, every);
    HostTimer timer;
    launch.run(t, epochs);
    HIP_CHECK(hipStreamSynchronize(t.stream));
    ms.push_back(timer.ms());
    spent += ms.back();
  } while (repeat > 0 ? ms.size() < static_cast<size_t>(repeat) : spent < 300 && ms.size() < 5);
  return summarize(ms);
}

// Throws training::Diverged where the losses that the curve has from step `begin` on, or the
// parameters, are not finite.
void require_finite(const Trainer& t, unsigned begin, const training::Kept& kept) {
  const std::vector<float> curve = t.curve.to_host();
  for (size_t i = begin / t.every; i < t.done / t.every; ++i)
    training::require_finite(curve, i, i + 1, (i + 1) * t.every - 1 - i, 0, kept);
  sequential::require_finite(t.model, t.settings().kind, t.done, kept);
}

// The first steps of a version against the trajectory, and the gradient of the very first.
Comparison check_first_steps(Trainer& t, const train_toy::Launch& launch,
                             const train_toy::Trajectory& want) {
  t.reset(kCheckedSteps, 1);
  const std::vector<float> before = train_toy::parameters_of(t);
  launch.run(t, 1);
  HIP_CHECK(hipStreamSynchronize(t.stream));
  const Comparison gradient =
      train_toy::compare_gradient(t.model, t.settings().kind, t.settings().hyper, before, want);
  t.reset(kCheckedSteps, 1);
  launch.run(t, kCheckedSteps);
  HIP_CHECK(hipStreamSynchronize(t.stream));
  return together({train_toy::compare_losses(t.curve.to_host(), want), gradient});
}

// A table: the whole training by every version that was asked for.
void train(const train_toy::DataSet& data, const Options& options, Report& report) {
  const Points points = data.make(options.seed);
  const unsigned epochs = static_cast<unsigned>(options.training.epochs);
  const unsigned every = std::max(1u, epochs / kCurvePoints);
  Trainer t(data.widths, points, settings_of(options));
  const train_toy::Trajectory want = train_toy::trajectory_cpu(t, points, kCheckedSteps);
  report.table(problem_text(data, points, options), 0,
               "checked: the first gradient and the losses of the first " +
                   std::to_string(want.losses.size()) + " steps");

  std::vector<std::string> columns{"epoch"};
  std::vector<std::vector<double>> curves(epochs / every);
  for (size_t i = 0; i < curves.size(); ++i)
    curves[i].push_back(static_cast<double>((i + 1) * every));
  std::vector<float> curve;
  for (const auto& version : train_toy::kVersions) {
    if (!options.wants(version.name)) continue;
    Row row;
    row.name = version.name, row.lesson = version.lesson;
    row.work = work_of(data, points, epochs);
    row.skipped = version.launch.why_not(t);
    if (row.skipped.empty()) {
      row.check = check_first_steps(t, version.launch, want);
    }
    if (kTimes && row.skipped.empty() && row.check.ok) {
      const Timing timing = time_training(t, version.launch, epochs, every, options.repeat);
      require_finite(t, 0, {});
      row.ms = timing.median, row.ms_p10 = timing.p10, row.ms_p90 = timing.p90;
      const double us = 1e3 * row.ms / epochs;
      row.note = text(us < 100 ? "%.3g us per epoch, " : "%.0f us per epoch, ", us) +
                 score_text(score_of(t, points));
      curve = t.curve.to_host();
      columns.push_back(version.name);
      for (size_t i = 0; i < curves.size(); ++i) curves[i].push_back(static_cast<double>(curve[i]));
    }
    report.add(row);
  }
  if (curve.empty()) return;
  draw_curve(curve, every, report);
  draw_boundary(t, points, report);
  report.series(std::string(data.name) + "_loss", columns, curves);
  add_series(data.name, t, points, report);
}

// ---- One model that is kept -------------------------------------------------------------------

// Checkpoints are of the spiral's model: the only one of the three that is worth a file.
const train_toy::DataSet& kept() { return train_toy::data_sets().back(); }

void evaluate(const Options& options, Report& report) {
  const Points points = kept().make(options.seed);
  Trainer t(kept().widths, points, settings_of(options));
  const auto state = training::load_or_refuse(
      [&] { return sequential::load(options.training.evaluate, t.model); });
  const Score score = score_of(t, points);
  report.line(std::string(kept().name) + ": " + options.training.evaluate + ", " +
              std::to_string(state.epochs) + " epochs");
  report.fact("loss", score.loss, "");
  report.fact("accuracy", 100 * score.accuracy, "%");
  draw_boundary(t, points, report);
  add_series(kept().name, t, points, report);
}

// Loads the checkpoint into the trainer's model. What it was trained with must be what the options
// say: otherwise it would be no continuation.
unsigned resume(Trainer& t, const Options& options) {
  const std::string& path = options.training.checkpoint;
  const auto state = training::load_or_refuse([&] { return sequential::load(path, t.model); });
  if (state.optimizer != options.training.optimizer || state.seed != options.seed)
    throw UsageError("--resume: " + path + " was trained with --optimizer " +
                     (state.optimizer.empty() ? "none" : state.optimizer) + " --seed " +
                     std::to_string(state.seed));
  if (state.epochs != state.steps || state.epochs > kMaxEpochs)
    throw UsageError("--resume: " + path + " is no checkpoint of train_toy");
  if (state.epochs >= options.training.epochs)
    throw UsageError("--resume: " + path + " has " + std::to_string(state.epochs) +
                     " epochs behind it; ask for more with --epochs");
  return static_cast<unsigned>(state.epochs);
}

void train_and_keep(const Options& options, Report& report) {
  const std::string& path = options.training.checkpoint;
  const Points points = kept().make(options.seed);
  Trainer t(kept().widths, points, settings_of(options));
  const Version<train_toy::Launch>* version = &train_toy::best(t);
  for (const auto& candidate : train_toy::kVersions)
    if (!options.versions.empty() && options.versions[0] == candidate.name) version = &candidate;
  if (const std::string why_not = version->launch.why_not(t); !why_not.empty())
    throw UsageError(std::string("--version ") + version->name + ": " + why_not);

  const unsigned epochs = static_cast<unsigned>(options.training.epochs);
  const unsigned every = std::max(1u, epochs / kCurvePoints);
  const unsigned begin = options.training.resume ? resume(t, options) : 0;
  t.go_on(begin, epochs, every);
  const unsigned piece = std::clamp(epochs / 10, 1u, kEpochsPerPiece);
  report.table(problem_text(kept(), points, options));
  const training::Interrupt interrupt;
  training::Progress progress(epochs);
  training::Kept last_good{path, begin};
  double ms = 0;
  while (t.done < epochs) {
    const HostTimer timer;
    version->launch.run(t, std::min(piece, epochs - t.done));
    HIP_CHECK(hipStreamSynchronize(t.stream));
    ms += timer.ms();
    require_finite(t, begin, last_good);
    const Score now = score_of(t, points);
    if (!std::isfinite(now.loss))
      training::stop_diverged("the loss after epoch " + std::to_string(t.done), last_good);
    const sequential::TrainingState state{
        t.done, t.done, options.seed, options.training.optimizer, {}};
    sequential::save(path, t.model, &state);
    last_good.steps = t.done;
    progress.finish_epoch(t.done, score_text(now));
    if (interrupt.asked() && t.done < epochs)
      interrupt.stop("stopped after epoch " + std::to_string(t.done) + ": " + path +
                     " is written, and --resume goes on from it");
  }

  Row row;
  row.name = version->name, row.lesson = version->lesson, row.ms = ms;
  row.work = work_of(kept(), points, epochs - begin);
  const Score score = score_of(t, points);
  row.check = train_toy::compare_losses({static_cast<float>(score.loss)},
                                        train_toy::trajectory_cpu(t, points, 1));
  row.note = score_text(score);
  report.add(row);
  draw_boundary(t, points, report);
  add_series(kept().name, t, points, report);
}

}  // namespace

int main(int argc, char** argv) {
  ProgramInfo program{"5.6",
                      "train_toy",
                      "XOR, blobs and a spiral: how a step is launched",
                      {},
                      version_infos(train_toy::kVersions)};
  program.training = train_toy::kDefaults;
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    if (!options.training.evaluate.empty()) return evaluate(options, report);
    if (!options.training.checkpoint.empty()) return train_and_keep(options, report);
    for (const auto& data : train_toy::data_sets()) {
      train(data, options, report);
      if (!kTimes) break;  // the same kernels for all
    }
  });
}
