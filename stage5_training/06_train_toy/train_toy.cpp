// Trains a small network on XOR, blobs and a spiral by every version: checks the first steps, times
// the training, and draws what was learnt.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "common/program.h"
#include "common/training.h"
#include "stage5_training/05_sequential/checkpoint.h"
#include "stage5_training/06_train_toy/epochs.h"
#include "stage5_training/06_train_toy/picture.h"
#include "stage5_training/06_train_toy/train_toy.h"

using train_toy::add_series;
using train_toy::draw_boundary;
using train_toy::draw_curve;
using train_toy::Points;
using train_toy::Score;
using train_toy::score_of;
using train_toy::score_text;
using train_toy::text;
using train_toy::Training;

namespace {

constexpr unsigned kCheckedSteps = kTimes ? 20 : 2;
constexpr unsigned kCurvePoints = 100;            // of the loss curve
constexpr unsigned kEpochsPerPiece = 1000;        // at most, from checkpoint to checkpoint
constexpr std::uint64_t kMaxEpochs = 1000000000;  // as --epochs

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
Timing time_training(Training& t, const train_toy::Launch& launch, unsigned epochs, unsigned every,
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

// Queues steps by a version.
train_toy::QueueSteps by(const train_toy::Launch& launch, Training& t) {
  return [&](size_t count) { launch.run(t, static_cast<unsigned>(count)); };
}

// What the training of a data set was promised to reach and has not; or nothing.
std::string missed(const train_toy::DataSet& data, const Score& score, const Options& options) {
  const bool promised = train_toy::as_promised(options, train_toy::kDefaults) &&
                        options.training.epochs >= train_toy::kPromisedEpochs;
  if (!promised || score.accuracy >= data.accuracy) return "";
  return "accuracy " + text("%.4g", 100 * score.accuracy) + "%, promised " +
         text("%.4g", 100 * data.accuracy) + "%";
}

// A table: the whole training by every version that was asked for.
void train(const train_toy::DataSet& data, const Options& options, Report& report) {
  const Points points = data.make(options.seed);
  const unsigned epochs = static_cast<unsigned>(options.training.epochs);
  const unsigned every = std::max(1u, epochs / kCurvePoints);
  Training t(data.widths, points, train_toy::settings_of(options));
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
      t.set_curve({kCheckedSteps});
      row.check = train_toy::check_first_steps(t, by(version.launch, t), want);
    }
    if (kTimes && !options.no_times && row.skipped.empty() && row.check.ok) {
      const Timing timing = time_training(t, version.launch, epochs, every, options.repeat);
      train_toy::finite_loss(t, 0, {});
      row.ms = timing.median, row.ms_p10 = timing.p10, row.ms_p90 = timing.p90;
      const double us = 1e3 * row.ms / epochs;
      const Score score = score_of(t, points);
      row.missed = missed(data, score, options);
      row.note =
          text(us < 100 ? "%.3g us per epoch, " : "%.0f us per epoch, ", us) + score_text(score);
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
  Training t(kept().widths, points, train_toy::settings_of(options));
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

// The epochs behind the checkpoint that the training goes on from.
unsigned resume(Training& t, const Options& options) {
  const std::string& path = options.training.checkpoint;
  training::load_or_refuse([&] { t.resume(path); });
  if (t.steps > kMaxEpochs)
    throw UsageError("--resume: " + path + " is no checkpoint of train_toy");
  if (t.steps >= options.training.epochs)
    throw UsageError("--resume: " + path + " has " + std::to_string(t.steps) +
                     " epochs behind it; ask for more with --epochs");
  return static_cast<unsigned>(t.steps);
}

void train_and_keep(const Options& options, Report& report) {
  const Points points = kept().make(options.seed);
  Training t(kept().widths, points, train_toy::settings_of(options));
  const Version<train_toy::Launch>* version = &train_toy::best(t);
  for (const auto& candidate : train_toy::kVersions)
    if (!options.versions.empty() && options.versions[0] == candidate.name) version = &candidate;
  if (const std::string why_not = version->launch.why_not(t); !why_not.empty())
    throw UsageError(std::string("--version ") + version->name + ": " + why_not);

  const unsigned epochs = static_cast<unsigned>(options.training.epochs);
  const unsigned every = std::max(1u, epochs / kCurvePoints);
  const unsigned begin = options.training.resume ? resume(t, options) : 0;
  t.set_curve({epochs / every, every});
  const unsigned piece = std::clamp(epochs / 10, 1u, kEpochsPerPiece);
  report.table(problem_text(kept(), points, options));
  const training::Interrupt interrupt;
  train_toy::Epochs run{epochs, piece, piece, options.training.checkpoint};
  run.after_round = [&](size_t done, double, const training::Kept& last_good) {
    const Score now = score_of(t, points);
    if (!std::isfinite(now.loss))
      training::stop_diverged("the loss after epoch " + std::to_string(done), last_good);
    return score_text(now);
  };
  const double ms = train_toy::run_epochs(t, run, by(version->launch, t), interrupt);

  Row row;
  row.name = version->name, row.lesson = version->lesson, row.ms = ms;
  row.work = work_of(kept(), points, epochs - begin);
  const Score score = score_of(t, points);
  row.check = train_toy::compare_losses({static_cast<float>(score.loss)},
                                        train_toy::trajectory_cpu(t, points, 1));
  row.missed = missed(kept(), score, options);
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
