// Trains a small transformer on Tiny Shakespeare by every version: checks the first steps, times
// the training, says how well the model foresees text that it has not read, and lets it write.
#include "stage7_transformer/07_train_shakespeare/train_shakespeare.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/program.h"
#include "common/sizes.h"
#include "common/training.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage5_training/06_train_toy/epochs.h"
#include "stage5_training/06_train_toy/picture.h"
#include "stage7_transformer/07_train_shakespeare/first_steps.h"
#include "stage7_transformer/07_train_shakespeare/program.h"
#include "stage7_transformer/07_train_shakespeare/writer.h"

using train_shakespeare::Data;
using train_shakespeare::ModelSizes;
using train_shakespeare::Precision;
using train_shakespeare::Settings;
using train_shakespeare::Training;
using train_toy::text;
using TrainVersion = Version<train_shakespeare::Launch>;

namespace {

constexpr size_t kReports = 10;  // lines of a training, and checkpoints
constexpr size_t kMeanOf = 50;   // last steps, whose losses are averaged

// Steps between two looks at the keyboard.
size_t steps_at_a_time() { return std::string(gpu::kBackend) == "cpu" ? 1 : 50; }

std::string problem_text(const Data& data, const Training& training) {
  const Settings settings = training.wanted();
  const ModelSizes& s = settings.sizes;
  return "layers=" + std::to_string(s.layers) + " heads=" + std::to_string(s.heads) +
         " width=" + std::to_string(s.width) + " context=" + std::to_string(s.context) +
         " batch=" + std::to_string(s.batch) + " (" +
         std::to_string(training.model.parameter_count()) + " parameters)   " + data.name + "   " +
         optimizers::name(settings.kind) +
         " lr=" + text("%g", static_cast<double>(settings.hyper.learning_rate)) +
         " steps=" + std::to_string(settings.steps);
}

// The mean loss of the last steps, of those from step `first` on.
double last_losses(const Training& training, std::uint64_t first) {
  const std::uint64_t begin = training.steps - std::min<std::uint64_t>(training.steps, kMeanOf);
  return training::mean_of(training.losses(), std::max(begin, first), training.steps);
}

struct Trained {
  std::uint64_t first = 0;                     // steps that were behind it at the beginning
  double ms = 0;                               // of the training alone
  double loss = 0, validation = 0;             // at the end
  std::vector<std::vector<double>> validated;  // step, loss of the last steps, validation loss
};

// From the step that the training is in to the last one, with a validation now and then, and a
// checkpoint where one is asked for.
Trained run_steps(Training& training, const TrainVersion& version, const Options& options,
                  const training::Interrupt& interrupt) {
  const size_t steps = training.schedules.size();
  const bool speaks = options.training.one_version() || options.versions.size() == 1;
  Trained trained;
  trained.first = training.steps;
  train_toy::Epochs all{steps, steps_at_a_time(), gpu::ceil_div(steps, kReports),
                        options.training.checkpoint};
  all.unit = "step";
  all.after_round = [&](size_t step, double, const training::Kept&) -> std::string {
    if (!speaks && step < steps) return "";  // a table grows here
    trained.loss = last_losses(training, trained.first);
    trained.validation = train_shakespeare::validation_loss(training);
    trained.validated.push_back({static_cast<double>(step), trained.loss, trained.validation});
    if (!speaks) return "";
    return text("loss %.4f", trained.loss) + text("   validation %.4f", trained.validation);
  };
  trained.ms = train_toy::run_epochs(
      training, all, [&](size_t count) { version.launch(training, count); }, interrupt);
  return trained;
}

// The row's columns of a training that has taken `steps` steps.
void add_training(Row& row, const Trained& trained, const Training& training, double steps) {
  const ModelSizes& sizes = training.model.sizes();
  const double tokens =
      steps * static_cast<double>(sizes.batch) * static_cast<double>(sizes.context);
  const double rate = tokens / trained.ms * 1e3;
  row.ms = row.ms_p10 = row.ms_p90 = trained.ms;
  row.work = {0, train_shakespeare::operations_of(training.model, steps), Work::Limit::fma};
  row.note =
      text("loss %.3f", trained.loss) + text(", validation %.3f", trained.validation) +
      (rate < 1e5 ? text(", %.3g k tokens/s", rate / 1e3) : text(", %.3g M tokens/s", rate / 1e6));
}

// What the last version has learnt, and what it writes behind the prompt.
void show_what_was_learnt(const Training& training, const Trained& trained, const Data& data,
                          const std::string& prompt, const train_shakespeare::Sampling& sampling,
                          Report& report) {
  const std::vector<float> losses = training.losses();
  std::vector<std::vector<double>> curve;
  for (size_t step = trained.first; step < losses.size(); ++step)
    curve.push_back({static_cast<double>(step + 1), static_cast<double>(losses[step])});
  report.series("training", {"step", "loss"}, curve);
  report.series("validation", {"step", "loss", "validation"}, trained.validated);
  report.fact("training loss", trained.loss, "nats");
  report.fact("validation loss", trained.validation, "nats");
  report.fact("loss of knowing the characters' shares", shakespeare::unigram_loss(data.corpus),
              "nats");
  train_shakespeare::show_text(prompt,
                               train_shakespeare::write(training.model, training.vocabulary, prompt,
                                                        train_shakespeare::kWritten, sampling),
                               report);
}

void run(const Options& options, const Settings& settings, const Data& data, Report& report) {
  const train_shakespeare::Sampling sampling = train_shakespeare::sampling_of(options);
  const std::string prompt = train_shakespeare::prompt_of(options, data.corpus.vocabulary);
  const auto memory =
      training::load_or_refuse([&] { return std::make_unique<Training>(settings, data.corpus); });
  Training& training = *memory;
  const std::vector<train_shakespeare::ChosenVersion> versions =
      train_shakespeare::versions_of(options);
  for (const auto& chosen : versions)
    if (chosen.precision == Precision::bf16)
      training::load_or_refuse([&] {
        const ModelSizes& s = settings.sizes;
        transformer_block::check_bf16({s.batch, s.context, s.width, s.heads});
        return 0;
      });
  const bool resumes = options.training.resume;
  if (resumes) training::load_or_refuse([&] { training.resume(options.training.checkpoint); });
  if (training.steps == settings.steps)
    throw UsageError(options.training.checkpoint + " has all of its " +
                     std::to_string(settings.steps) + " steps behind it");

  HostTimer timer;
  std::map<Precision, std::unique_ptr<train_shakespeare::FirstSteps>> first_steps;
  for (const auto& [version, precision] : versions)
    if (!resumes && missing(version.needs).empty() && first_steps.count(precision) == 0)
      first_steps[precision] =
          std::make_unique<train_shakespeare::FirstSteps>(training, data.corpus, precision);
  report.table(problem_text(data, training), timer.ms(),
               first_steps.empty() ? "" : first_steps.begin()->second->checked_text());

  const training::Interrupt interrupt;
  Trained last;
  double of_fp32 = 0;  // the validation loss
  for (const auto& [version, precision] : versions) {
    Row row;
    row.name = version.name, row.lesson = version.lesson;
    row.skipped = missing(version.needs);
    if (!row.skipped.empty()) {
      report.add(row);
      continue;
    }
    if (!resumes) row.check = first_steps[precision]->check(version);
    if (kTimes && !options.no_times && row.check.ok) {
      const std::uint64_t before = training.steps;
      last = run_steps(training, version, options, interrupt);
      add_training(row, last, training, static_cast<double>(training.steps - before));
      row.missed = train_shakespeare::missed(options, settings, data, last.loss, last.validation);
      if (precision == Precision::fp32) of_fp32 = last.validation;
      if (precision == Precision::bf16 && row.missed.empty())
        row.missed =
            train_shakespeare::missed_beside(options, settings, data, last.validation, of_fp32);
    }
    report.add(row);
    if (!row.check.ok && !options.training.checkpoint.empty())
      report.line(training::not_trained_text(options.training.checkpoint));
  }
  if (last.validated.empty()) return;
  show_what_was_learnt(training, last, data, prompt, sampling, report);
}

// Throws UsageError where the training, or its reference, has no room.
void require_memory(const Settings& settings) {
  const ModelSizes& s = settings.sizes;
  const double layers = static_cast<double>(s.layers), heads = static_cast<double>(s.heads);
  const double width = static_cast<double>(s.width), length = static_cast<double>(s.context);
  // The schedule and the loss of every step, here and on the device.
  const double of_steps =
      static_cast<double>(settings.steps) * (sizeof(train_shakespeare::Schedule) + sizeof(float));
  require_device_memory(
      sizeof(float) * layers *
          (2 * 18.0 * static_cast<double>(s.batch * s.context) * width + 48.0 * width * width) +
      of_steps);
  // The reference keeps the same model in double, and one sequence's activations and scores.
  sizes::require_host_memory(
      sizeof(double) * layers *
          (length * (40 * width + 4 * heads * length) + 48.0 * width * width) +
      2 * of_steps);
}

}  // namespace

int main(int argc, char** argv) {
  const ModelSizes& small = train_shakespeare::kConfigs[0].sizes;
  ProgramInfo program{
      "7.7",
      "train_shakespeare",
      "a transformer learns to write, character by character",
      {{"layers", small.layers, small.layers, 1},
       {"heads", small.heads, small.heads, 2},
       {"width", small.width, small.width, 24},
       {"context", small.context, small.context, 24},
       {"batch", small.batch, small.batch, 5}},
      version_infos(train_shakespeare::kVersions, train_shakespeare::kBf16Versions)};
  program.training = train_shakespeare::kDefaults;
  program.extra = {
      {"--config", "small|medium", "the published sizes, in place of --size (default small)"},
      {"--precision", "fp32|bf16|both",
       "what blocks multiply; parameters stay fp32 (default fp32, with --config medium both)"},
      {"--generate", "NUMBER",
       "write so many characters with the model of --checkpoint, train not"},
      {"--prompt", "TEXT", "what the written text follows (default: a new line)"},
      {"--temperature", "NUMBER", "0: the most probable character; 1: as probable (default 0.8)"},
      {"--top-k", "NUMBER", "choose among so many of the most probable ones (default 0: all)"}};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    if (options.extra.count("--generate") > 0) return train_shakespeare::generate(options, report);
    const Settings settings = train_shakespeare::settings_of(options);
    const Data data = train_shakespeare::find_data(options, report);
    if (!options.training.evaluate.empty())
      return train_shakespeare::evaluate(options, data, report);
    require_memory(settings);
    report.limits(timing::measure_limits(options));
    run(options, settings, data, report);
  });
}
