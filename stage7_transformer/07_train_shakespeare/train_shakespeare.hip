// Trains a small transformer on Tiny Shakespeare by every version: checks the first steps, times
// the training, says how well the model foresees text that it has not read, and lets it write.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/sizes.h"
#include "common/training.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage7_transformer/07_train_shakespeare/train_shakespeare.h"

using device_matrix::DeviceBuffer;
using shakespeare::Corpus;
using shakespeare::Sizes;
using shakespeare::Vocabulary;
using train_shakespeare::Sampling;
using train_shakespeare::Settings;
using train_shakespeare::Training;
using TrainVersion = Version<train_shakespeare::Launch>;

namespace {

// Steps between two looks at the keyboard.
#if defined(GPU_BACKEND_CPU)
constexpr size_t kStepsAtATime = 1;
#else
constexpr size_t kStepsAtATime = 50;
#endif
constexpr size_t kReports = 10;       // lines of a training, and checkpoints
constexpr size_t kMeanOf = 50;        // last steps, whose losses are averaged
constexpr size_t kWritten = 200;      // characters behind a training
constexpr size_t kOwnText = 200000;   // characters of the play that is made up
constexpr size_t kQuickText = 20000;  // characters of either text with --quick
// The host computes a step in a second; beyond, the first steps are checked in another way.
constexpr double kMostReferenceOperations = 4e9;

std::string text(const char* format, double value) {
  char line[64];
  std::snprintf(line, sizeof line, format, value);
  return line;
}

// ---- The command line -------------------------------------------------------------------------

// The value of an option that was given, or the default.
std::string given(const Options& options, const std::string& name, const std::string& otherwise) {
  const auto found = options.extra.find(name);
  return found == options.extra.end() ? otherwise : found->second;
}

size_t count_of(const Options& options, const std::string& name, size_t least, size_t otherwise) {
  const std::string value = given(options, name, std::to_string(otherwise));
  size_t count = 0;
  const char* const end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, count);
  if (error != std::errc() || stop != end || count < least || count > 1000000000)
    throw UsageError(name + ": '" + value + "' is not a number from " + std::to_string(least) +
                     " to 1000000000");
  return count;
}

Sampling sampling_of(const Options& options) {
  Sampling sampling;
  const std::string value = given(options, "--temperature", "0.8");
  const char* const end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, sampling.temperature);
  if (error != std::errc() || stop != end ||
      !(sampling.temperature >= 0 && sampling.temperature <= 100))
    throw UsageError("--temperature: '" + value + "' is not a number from 0 to 100");
  sampling.top_k = count_of(options, "--top-k", 0, 0);
  sampling.seed = options.seed;
  return sampling;
}

// --config, or --size, or what is usual where the program runs.
Settings settings_of(const Options& options) {
  Settings settings;
  const std::vector<size_t>& sizes = options.sizes;
  settings.sizes = {sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]};
  settings.steps = options.training.epochs, settings.seed = options.seed;
  settings.learning_rate = static_cast<float>(options.training.learning_rate);
  for (const optimizers::Kind kind : optimizers::kKinds)
    if (options.training.optimizer == optimizers::name(kind)) settings.optimizer = kind;
  if (options.extra.count("--config") > 0) {
    const std::string name = given(options, "--config", "");
    const auto* const found =
        std::find_if(std::begin(train_shakespeare::kConfigs), std::end(train_shakespeare::kConfigs),
                     [&](const train_shakespeare::Config& config) { return name == config.name; });
    if (found == std::end(train_shakespeare::kConfigs))
      throw UsageError("--config: '" + name + "' is neither small nor medium");
    if (options.sizes_given) throw UsageError("--config and --size say the same: leave one away");
    settings.sizes = found->sizes;
    if (!options.training.epochs_given) settings.steps = found->steps;
    if (!options.training.learning_rate_given)
      settings.learning_rate = static_cast<float>(found->learning_rate);
  }
  try {
    train_shakespeare::check(settings.sizes);
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
  return settings;
}

// A new line where nothing else is asked for; a text may have none.
std::string prompt_of(const Options& options, const Vocabulary& vocabulary) {
  const std::string& known = vocabulary.characters();
  const std::string usual = known.find('\n') == std::string::npos ? known.substr(0, 1) : "\n";
  const std::string prompt = given(options, "--prompt", usual);
  if (prompt.empty()) throw UsageError("--prompt: the text is empty");
  try {
    vocabulary.encode(prompt);
  } catch (const std::invalid_argument& error) {
    throw UsageError(std::string("--prompt: ") + error.what());
  }
  return prompt;
}

// ---- Data -------------------------------------------------------------------------------------

struct Data {
  Corpus corpus;
  std::string name;
};

// Tiny Shakespeare where it is. A folder that was asked for must have it; else a play is made up.
Data find_data(const Options& options, Report& report) {
  const std::string folder = training::data_folder(options);
  const std::string path = shakespeare::path_in(folder);
  std::error_code unreadable;
  if (std::filesystem::exists(path, unreadable) || !options.training.data.empty()) {
    const std::string whole = training::load_or_refuse([&] { return shakespeare::read(path); });
    if (!options.quick || whole.size() <= kQuickText) return {Corpus(whole), "Tiny Shakespeare"};
    return {Corpus(whole.substr(0, kQuickText)), "the beginning of Tiny Shakespeare"};
  }
  report.line("no " + path + ": training on a play that this program makes up" +
              " (get Tiny Shakespeare with `python3 scripts/data.py`)");
  return {Corpus(shakespeare::compose(options.quick ? kQuickText : kOwnText, 1)),
          "the course's own play"};
}

// ---- What was learnt --------------------------------------------------------------------------

void show_text(const std::string& prompt, const std::string& written, Report& report) {
  report.line("");
  report.line("the model writes:");
  std::string line = "  | ";
  for (const char c : prompt + written) {
    if (c == '\n') {
      report.line(line);
      line = "  | ";
    } else {
      line += c;
    }
  }
  report.line(line);
}

// What is written goes to stdout as it is, for whoever redirects it.
void generate(const Options& options, Report& report) {
  const std::string& path = options.training.checkpoint;
  if (path.empty()) throw UsageError("--generate needs a model: add --checkpoint FILE");
  const size_t count = count_of(options, "--generate", 1, kWritten);
  const Sampling sampling = sampling_of(options);
  training::load_or_refuse([&] {
    const train_shakespeare::Checkpoint checkpoint = train_shakespeare::read_checkpoint(path);
    train_shakespeare::Model model(checkpoint.sizes, checkpoint.vocabulary.size());
    sequential::load(path, model);
    const std::string prompt = prompt_of(options, checkpoint.vocabulary);
    report.line(path + ": " + model.description() + " behind " + std::to_string(checkpoint.steps) +
                " steps");
    const HostTimer timer;
    const std::string written =
        train_shakespeare::write(model, checkpoint.vocabulary, prompt, count, sampling);
    const double ms = timer.ms();
    report.line("");
    report.line(prompt + written);
    report.line("");
    report.fact("written", static_cast<double>(count) / ms * 1e3, "characters/s");
  });
}

void evaluate(const Options& options, const Data& data, Report& report) {
  const std::string& path = options.training.evaluate;
  training::load_or_refuse([&] {
    const train_shakespeare::Checkpoint checkpoint = train_shakespeare::read_checkpoint(path);
    if (checkpoint.vocabulary.characters() != data.corpus.vocabulary.characters())
      throw std::invalid_argument(path + " knows other characters than " + data.name);
    train_shakespeare::Model model(checkpoint.sizes, checkpoint.vocabulary.size());
    sequential::load(path, model);
    train_shakespeare::Pass pass(checkpoint.sizes, checkpoint.vocabulary.size(),
                                 transformer_block::kBest);
    const DeviceBuffer<std::uint8_t> text(data.corpus.validation);
    report.line(path + ": " + model.description() + " behind " + std::to_string(checkpoint.steps) +
                " steps, on " + data.name);
    report.fact("validation loss",
                train_shakespeare::loss_of(model, pass, {text.data(), text.size()}), "nats");
  });
  report.fact("loss of knowing the characters' shares", shakespeare::unigram_loss(data.corpus),
              "nats");
}

// ---- Training ---------------------------------------------------------------------------------

std::string problem_text(const Settings& settings, const Data& data, const Training& training) {
  const Sizes& s = settings.sizes;
  return "layers=" + std::to_string(s.layers) + " heads=" + std::to_string(s.heads) +
         " width=" + std::to_string(s.width) + " context=" + std::to_string(s.context) +
         " batch=" + std::to_string(s.batch) + " (" +
         std::to_string(training.model.parameter_count()) + " parameters)   " + data.name + "   " +
         optimizers::name(settings.optimizer) +
         " lr=" + text("%g", static_cast<double>(settings.learning_rate)) +
         " steps=" + std::to_string(settings.steps);
}

// Of the products of so many steps: two operations per weight and token forwards and four
// backwards; and those of attention, half of which the mask spares.
double operations_of(const Training& training, double steps) {
  const Sizes& s = training.settings.sizes;
  const double C = static_cast<double>(s.width), T = static_cast<double>(s.context);
  const double tokens = static_cast<double>(s.batch) * T, layers = static_cast<double>(s.layers);
  const double weights = 12 * layers * C * C + C * static_cast<double>(training.model.vocabulary());
  return steps * tokens * (6 * weights + 6 * layers * T * C);
}

// The mean loss of the last steps, of those from step `first` on.
double last_losses(const Training& training, std::uint64_t first) {
  const std::uint64_t begin = training.steps - std::min<std::uint64_t>(training.steps, kMeanOf);
  return training::mean_of(train_shakespeare::losses_of(training), std::max(begin, first),
                           training.steps);
}

struct Trained {
  std::uint64_t first = 0;                     // steps that were behind it at the beginning
  double ms = 0;                               // of the training alone
  double loss = 0, validation = 0;             // at the end
  std::vector<std::vector<double>> validated;  // step, loss of the last steps, validation loss
};

// From the step that the training is in to the last one, with a validation now and then, and a
// checkpoint where one is asked for. Nothing is saved whose losses or parameters are not finite.
Trained run_steps(Training& training, const TrainVersion& version, const Options& options,
                  const training::Interrupt& interrupt) {
  const std::string& path = options.training.checkpoint;
  const size_t steps = training.settings.steps;
  const bool speaks = options.training.one_version() || options.versions.size() == 1;
  const size_t interval = gpu::ceil_div(steps, kReports);
  Trained trained;
  trained.first = training.steps;
  training::Kept kept{path, trained.first};
  const auto require_finite = [&] {
    training::require_finite(train_shakespeare::losses_of(training), trained.first, training.steps,
                             0, 0, kept);
    sequential::require_finite(training.model, training.settings.optimizer, training.steps, kept);
  };
  while (training.steps < steps) {
    const size_t next = std::min(steps, (training.steps / interval + 1) * interval);
    while (training.steps < next) {
      const HostTimer timer;
      train_shakespeare::train(training, version.launch,
                               std::min<size_t>(kStepsAtATime, next - training.steps));
      trained.ms += timer.ms();
      if (!interrupt.asked()) continue;
      if (path.empty())
        interrupt.stop("stopped after " + std::to_string(training.steps) +
                       " steps; with --checkpoint FILE the work would have been saved");
      require_finite();
      training.save(path);
      interrupt.stop("stopped after " + std::to_string(training.steps) + " steps, saved in " +
                     path + ": go on with --resume");
    }
    require_finite();
    if (!path.empty()) training.save(path), kept.steps = training.steps;
    if (!speaks && training.steps < steps) continue;  // a table grows here
    trained.loss = last_losses(training, trained.first);
    trained.validation = train_shakespeare::validation_loss(training);
    trained.validated.push_back(
        {static_cast<double>(training.steps), trained.loss, trained.validation});
    if (speaks) {
      std::printf("step %zu/%zu   loss %.4f   validation %.4f\n", next, steps, trained.loss,
                  trained.validation);
      std::fflush(stdout);
    }
  }
  return trained;
}

// What the first steps of a version are held against: the same training in double, where the host
// is quick enough for it; else, of `operations` the forward pass of one piece of text in double,
// and of the others the losses of `operations`, its twin being `operations` too.
struct Check {
  bool whole = false;
  train_shakespeare::Trajectory want;
  std::string sampled;
};

Comparison check_forward(Training& training, const Corpus& corpus) {
  const size_t T = training.settings.sizes.context;
  const auto begin = corpus.train.begin();
  const shakespeare::Batch piece{{begin, begin + static_cast<std::ptrdiff_t>(T)},
                                 {begin + 1, begin + static_cast<std::ptrdiff_t>(T) + 1}};
  shakespeare::Reference reference(training.settings.sizes,
                                   train_shakespeare::parameters_of(training.model));
  shakespeare::Reference twin(
      training.settings.sizes,
      train_toy::Twins::beside(train_shakespeare::parameters_of(training.model), 1));
  train_shakespeare::Trajectory want;
  train_shakespeare::twins().add(want, reference.loss_of(piece), {twin.loss_of(piece)});
  const float got = static_cast<float>(
      train_shakespeare::loss_of(training.model, training.plain, training.train(), 1));
  return train_toy::compare_losses({got}, want);
}

Check prepare_check(Training& training, const Corpus& corpus) {
  const size_t steps = std::min(train_shakespeare::kCheckedSteps, training.settings.steps);
  Check check;
  check.whole = operations_of(training, 1) <= kMostReferenceOperations;
  if (check.whole)
    check.want = train_shakespeare::trajectory_cpu(
        training.settings, corpus.train, train_shakespeare::parameters_of(training.model), steps);
  check.sampled = check.whole ? "checked: the first gradient and the losses of the first " +
                                    std::to_string(check.want.losses.size()) + " steps"
                              : "checked: the losses of the first " + std::to_string(steps) +
                                    " steps against `operations`, of which one piece was checked";
  return check;
}

// The losses of a version's first steps, from the training's parameters.
std::vector<float> first_losses(Training& training, train_shakespeare::Launch launch,
                                size_t steps) {
  train_shakespeare::train(training, launch, steps);
  std::vector<float> losses = train_shakespeare::losses_of(training);
  losses.resize(steps);
  return losses;
}

// The losses of `operations` as a trajectory.
train_shakespeare::Trajectory trajectory_of_operations(Training& training, size_t steps) {
  const train_shakespeare::Launch launch = train_shakespeare::kVersions[0].launch;
  training.restart();
  const std::vector<float> losses = first_losses(training, launch, steps);
  training.restart();
  const auto weights =
      train_toy::Twins::beside(train_shakespeare::parameters_of(training.model), 1);
  for (size_t k = 0; k < weights.size(); ++k)
    HIP_CHECK(hipMemcpy(training.model.tensors()[k].w, weights[k].data(),
                        weights[k].size() * sizeof(float), hipMemcpyHostToDevice));
  const std::vector<float> twin = first_losses(training, launch, steps);
  train_shakespeare::Trajectory want;
  train_toy::Twins twins = train_shakespeare::twins();
  for (size_t i = 0; i < steps; ++i)
    if (!twins.add(want, static_cast<double>(losses[i]), {static_cast<double>(twin[i])})) break;
  return want;
}

// The gradient of a version's first step.
Comparison check_gradient(Training& training, const TrainVersion& version, const Check& check) {
  training.restart();
  const std::vector<float> before =
      train_toy::flat(train_shakespeare::parameters_of(training.model));
  train_shakespeare::train(training, version.launch, 1);
  return train_toy::compare_gradient(training.model, training.settings.optimizer,
                                     train_shakespeare::schedules(training.settings)[0].hyper,
                                     before, check.want);
}

Comparison check_version(Training& training, const TrainVersion& version, const Corpus& corpus,
                         Check& check) {
  const bool is_first = &version == &train_shakespeare::kVersions[0];
  const size_t steps = std::min(train_shakespeare::kCheckedSteps, training.settings.steps);
  std::vector<Comparison> verdicts;
  if (check.whole) verdicts.push_back(check_gradient(training, version, check));
  if (!check.whole && check.want.losses.empty()) {
    check.want = trajectory_of_operations(training, steps);
    training.restart();
    verdicts.push_back(check_forward(training, corpus));
  }
  if (check.whole || !is_first) {
    training.restart();
    verdicts.push_back(train_toy::compare_losses(
        first_losses(training, version.launch, check.want.losses.size()), check.want));
  }
  training.restart();
  return together(verdicts);
}

void run(const Options& options, const Settings& settings, const Data& data, Report& report) {
  const Sampling sampling = sampling_of(options);
  const std::string prompt = prompt_of(options, data.corpus.vocabulary);
  const auto memory =
      training::load_or_refuse([&] { return std::make_unique<Training>(settings, data.corpus); });
  Training& training = *memory;
  const bool resumes = options.training.resume;
  if (resumes) training::load_or_refuse([&] { training.resume(options.training.checkpoint); });
  if (training.steps == settings.steps)
    throw UsageError(options.training.checkpoint + " has all of its " +
                     std::to_string(settings.steps) + " steps behind it");

  HostTimer timer;
  Check check;
  if (!resumes) check = prepare_check(training, data.corpus);
  report.table(problem_text(settings, data, training), timer.ms(), check.sampled);

  const training::Interrupt interrupt;
  Trained last;
  for (const TrainVersion& version : train_shakespeare::kVersions) {
    const bool is_best = &version == &train_shakespeare::best();
    if (options.training.one_version() && options.versions.empty() && !is_best) continue;
    if (!options.wants(version.name)) continue;
    Row row;
    row.name = version.name, row.lesson = version.lesson;
    if (!resumes) row.check = check_version(training, version, data.corpus, check);
    if (kTimes && row.check.ok) {
      const std::uint64_t before = training.steps;
      last = run_steps(training, version, options, interrupt);
      const double steps = static_cast<double>(training.steps - before);
      const double tokens = steps * static_cast<double>(settings.sizes.batch) *
                            static_cast<double>(settings.sizes.context);
      row.ms = row.ms_p10 = row.ms_p90 = last.ms;
      row.work = {0, operations_of(training, steps), Work::Limit::fma};
      const double rate = tokens / last.ms * 1e3;
      row.note = text("loss %.3f", last.loss) + text(", validation %.3f", last.validation) +
                 (rate < 1e5 ? text(", %.3g k tokens/s", rate / 1e3)
                             : text(", %.3g M tokens/s", rate / 1e6));
    }
    report.add(row);
    if (!row.check.ok && !options.training.checkpoint.empty())
      report.line(training::not_trained_text(options.training.checkpoint));
  }
  if (last.validated.empty()) return;

  const std::vector<float> losses = train_shakespeare::losses_of(training);
  std::vector<std::vector<double>> curve;
  for (size_t step = last.first; step < losses.size(); ++step)
    curve.push_back({static_cast<double>(step + 1), static_cast<double>(losses[step])});
  report.series("training", {"step", "loss"}, curve);
  report.series("validation", {"step", "loss", "validation"}, last.validated);
  report.fact("training loss", last.loss, "nats");
  report.fact("validation loss", last.validation, "nats");
  report.fact("loss of knowing the characters' shares", shakespeare::unigram_loss(data.corpus),
              "nats");
  show_text(
      prompt,
      train_shakespeare::write(training.model, training.vocabulary, prompt, kWritten, sampling),
      report);
}

}  // namespace

int main(int argc, char** argv) {
  ProgramInfo program{"7.7",
                      "train_shakespeare",
                      "a transformer learns to write, character by character",
                      {{"layers", 2, 2, 1},
                       {"heads", 4, 4, 2},
                       {"width", 64, 64, 24},
                       {"context", 128, 128, 24},
                       {"batch", 32, 32, 5}},
                      version_infos(train_shakespeare::kVersions)};
  program.training = TrainingDefaults{1000, 100, 20, 0, 3e-3, "adamw", true, false, "steps"};
  program.extra = {
      {"--config", "small|medium", "the published sizes, in place of --size (default small)"},
      {"--generate", "NUMBER",
       "write so many characters with the model of --checkpoint, train not"},
      {"--prompt", "TEXT", "what the written text follows (default: a new line)"},
      {"--temperature", "NUMBER", "0: the most probable character; 1: as probable (default 0.8)"},
      {"--top-k", "NUMBER", "choose among so many of the most probable ones (default 0: all)"}};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    if (options.extra.count("--generate") > 0) return generate(options, report);
    const Settings settings = settings_of(options);
    const Data data = find_data(options, report);
    if (!options.training.evaluate.empty()) return evaluate(options, data, report);
    const Sizes& s = settings.sizes;
    // The schedule and the loss of every step, here and on the device.
    const double of_steps =
        static_cast<double>(settings.steps) * (sizeof(train_shakespeare::Schedule) + sizeof(float));
    require_device_memory(
        sizeof(float) * static_cast<double>(s.layers) *
            (2 * 18.0 * static_cast<double>(s.batch * s.context) * static_cast<double>(s.width) +
             48.0 * static_cast<double>(s.width) * static_cast<double>(s.width)) +
        of_steps);
    // The reference keeps the same model in double, and one sequence's activations and scores.
    const double length = static_cast<double>(s.context);
    sizes::require_host_memory(
        sizeof(double) * static_cast<double>(s.layers) *
            (length *
                 (40 * static_cast<double>(s.width) + 4 * static_cast<double>(s.heads) * length) +
             48.0 * static_cast<double>(s.width) * static_cast<double>(s.width)) +
        2 * of_steps);
    report.limits(timing::measure_limits(options));
    run(options, settings, data, report);
  });
}
