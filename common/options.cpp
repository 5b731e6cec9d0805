// The command line: which options there are, and what --help and --list print.
#include "common/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "common/option_values.h"

using option_values::check_input_path;
using option_values::check_name;
using option_values::check_output_path;
using option_values::parse_count;
using option_values::parse_number;
using option_values::usage_error;

namespace {

// What --help and --list print. Throws std::runtime_error where stdout does not take it.
void print_answer(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw std::runtime_error(std::string("stdout: ") + std::strerror(errno));
}

void check_version(const std::string& name, const ProgramInfo& program) {
  if (program.versions.empty())
    usage_error(fmt::format("--version: {} has no versions", program.name));
  std::vector<std::string> names;
  for (const VersionInfo& version : program.versions) names.push_back(version.name);
  check_name("--version", name, names);
}

// One line per version: its name and what it teaches.
std::string list_versions(const ProgramInfo& program) {
  std::size_t width = 0;
  for (const VersionInfo& version : program.versions) width = std::max(width, version.name.size());
  std::string text;
  for (const VersionInfo& version : program.versions)
    text += fmt::format("{:{}}  {}\n", version.name, width, version.lesson);
  return text;
}

// 268435456 reads as 2^28, 4000 as itself.
std::string extent_text(std::size_t extent) {
  for (int exponent = 10; exponent < 64; ++exponent)
    if (extent == std::size_t{1} << exponent) return fmt::format("2^{}", exponent);
  return std::to_string(extent);
}

// "default 4096x4096x4096, 301x67x45 with --quick"
std::string default_sizes(const ProgramInfo& program, const std::string& backend) {
  std::string usual, quick;
  for (const Size& size : program.sizes) {
    const char* separator = usual.empty() ? "" : "x";
    usual += separator + extent_text(backend == "cpu" ? size.cpu : size.gpu);
    quick += separator + extent_text(size.quick);
  }
  return fmt::format("default {}, {} with --quick", usual, quick);
}

// ---- Programs that train ------------------------------------------------------------------------

const std::vector<std::string> kOptimizers = {"sgd", "momentum", "adam", "adamw"};

// What is read as text first.
struct TrainingTexts {
  std::string epochs, batch, learning_rate;
};

std::size_t usual_epochs(const TrainingDefaults& defaults, bool is_cpu) {
  return is_cpu ? defaults.epochs_cpu : defaults.epochs;
}

void add_training_options(CLI::App* app, const TrainingDefaults& defaults, bool is_cpu,
                          TrainingTexts* texts, TrainingOptions* training) {
  const auto add = [&](const char* option, std::string& value, const char* type,
                       const std::string& help) {
    app->add_option(option, value, help)->type_name(type);
  };
  training->optimizer = defaults.optimizer;
  add(("--" + defaults.unit).c_str(), texts->epochs, "NUMBER",
      fmt::format("{} (default {}, {} with --quick)",
                  defaults.unit == "epochs" ? "times over the training data" : "optimizer steps",
                  usual_epochs(defaults, is_cpu), defaults.epochs_quick));
  if (defaults.batch > 0)
    add("--batch", texts->batch, "NUMBER",
        fmt::format("samples of one optimizer step (default {})", defaults.batch));
  add("--lr", texts->learning_rate, "NUMBER",
      fmt::format("learning rate (default {})", defaults.learning_rate));
  add("--optimizer", training->optimizer, "sgd|momentum|adam|adamw",
      fmt::format("rule of a step (default {})", defaults.optimizer));
  add("--checkpoint", training->checkpoint, "FILE",
      fmt::format("train one version and write its model here {} and on Ctrl-C",
                  defaults.unit == "epochs" ? "after every epoch" : "now and then"));
  app->add_flag("--resume", training->resume, "go on from the checkpoint");
  add("--evaluate", training->evaluate, "FILE", "test the model of this checkpoint, train nothing");
  if (defaults.data)
    add("--data", training->data, "DIR",
        "folder of the data sets (default: $COURSE_DATA, or data)");
  if (defaults.show)
    add("--show", training->show, "FILE.png", "draw what the model has learnt into this file");
}

// After the whole command line was read.
void check_training_options(const CLI::App& app, const TrainingDefaults& defaults, bool is_cpu,
                            const TrainingTexts& texts, Options* options) {
  TrainingOptions& training = options->training;
  const auto given = [&](const char* option) { return app.count(option) > 0; };
  const std::string epochs = "--" + defaults.unit;
  training.epochs_given = given(epochs.c_str()), training.learning_rate_given = given("--lr");
  training.epochs = training.epochs_given ? parse_count(epochs.c_str(), texts.epochs, 1000000000)
                    : options->quick      ? defaults.epochs_quick
                                          : usual_epochs(defaults, is_cpu);
  training.batch = defaults.batch > 0 && given("--batch")
                       ? parse_count("--batch", texts.batch, 1000000)
                       : defaults.batch;
  training.learning_rate = training.learning_rate_given
                               ? option_values::parse_learning_rate(texts.learning_rate)
                               : defaults.learning_rate;
  check_name("--optimizer", training.optimizer, kOptimizers);

  if (given("--checkpoint")) check_output_path("--checkpoint", training.checkpoint);
  if (given("--evaluate")) check_input_path("--evaluate", training.evaluate);
  if (defaults.show && given("--show")) check_output_path("--show", training.show);
  if (training.resume && !given("--checkpoint"))
    usage_error("--resume goes on from a checkpoint: add --checkpoint FILE");
  if (training.resume) check_input_path("--resume", training.checkpoint);
  if (given("--evaluate") && given("--checkpoint"))
    usage_error("--evaluate trains nothing: leave --checkpoint away");
  if (training.one_version() && options->versions.size() > 1)
    usage_error(fmt::format("{} is for one model: name one --version",
                            given("--evaluate") ? "--evaluate" : "--checkpoint"));
  std::error_code ignored;
  if (defaults.data && given("--data") && !std::filesystem::is_directory(training.data, ignored))
    usage_error(fmt::format("--data: there is no folder '{}'", training.data));
}

}  // namespace

bool Options::wants(const std::string& version) const {
  return versions.empty() || std::find(versions.begin(), versions.end(), version) != versions.end();
}

std::vector<std::size_t> usual_sizes(const std::vector<Size>& sizes, bool quick,
                                     const std::string& backend) {
  std::vector<std::size_t> usual;
  for (const Size& size : sizes)
    usual.push_back(quick ? size.quick : backend == "cpu" ? size.cpu : size.gpu);
  return usual;
}

bool parse_options(int argc, char** argv, const ProgramInfo& program, const std::string& backend,
                   Options* options) {
  const bool is_cpu = backend == "cpu";
  // Values are read as text and parsed here, so that every message says what would be right.
  std::string size, seed, repeat, wave, devices, order, guard;
  bool list = false;

  CLI::App app(fmt::format("{} {}: {}", program.step, program.name, program.summary), program.name);
  app.set_help_flag("-h,--help", "print this help, then end");
  app.add_flag("--list", list, "list the versions and what each one teaches, then end");
  auto* version =
      app.add_option("--version", options->versions, "run only this version; may be repeated");
  version->type_name("NAME")->take_all()->allow_extra_args(false);
  CLI::Option* size_option = nullptr;
  if (!program.sizes.empty())
    size_option = app.add_option("--size", size,
                                 fmt::format("each as in 1000, 64k, 1M or 2^28 ({})",
                                             default_sizes(program, backend)))
                      ->type_name(option_values::size_names(program));
  auto* seed_option =
      app.add_option("--seed", seed, "seed of the random inputs (default 1)")->type_name("NUMBER");
  auto* repeat_option =
      app.add_option("--repeat", repeat,
                     "timed launches of each version (default: 5 to 100, by time)")
          ->type_name("NUMBER");
  app.add_flag("--quick", options->quick, "small, awkward sizes: checks, where times say little");
  app.add_flag("--no-limits", options->no_limits, "don't measure the machine's limits first");
  auto* json = app.add_option("--json", options->json, "write the results to this file too")
                   ->type_name("FILE");
  const char* cpu_only = is_cpu ? "" : " (CPU backend only)";
  auto* wave_option = app.add_option("--wave", wave, fmt::format("threads per wave{}", cpu_only))
                          ->type_name("32|64");
  auto* devices_option =
      app.add_option("--devices", devices,
                     fmt::format("devices that share this machine (default 1){}", cpu_only))
          ->type_name("1..8");
  auto* order_option =
      app.add_option("--order", order, fmt::format("turns of blocks and threads{}", cpu_only))
          ->type_name("forward|reverse|waves|random:SEED");
  auto* guard_option =
      app.add_option("--guard", guard, fmt::format("where guard pages lie{}", cpu_only))
          ->type_name("end|exact|begin");
  TrainingTexts training_texts;
  if (program.training)
    add_training_options(&app, *program.training, is_cpu, &training_texts, &options->training);
  std::map<std::string, std::string> extra;
  for (const ExtraOption& option : program.extra)
    app.add_option(option.name, extra[option.name], option.help)->type_name(option.type);

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    print_answer(app.help() +
                 (program.versions.empty() ? "" : "\nVersions:\n" + list_versions(program)));
    return false;
  } catch (const CLI::ParseError& error) {
    std::string line = error.what();
    std::replace(line.begin(), line.end(), '\n', ' ');
    usage_error(line + "; --help lists the options");
  }
  if (list) {
    print_answer(list_versions(program));
    return false;
  }

  for (const std::string& name : options->versions) check_version(name, program);

  options->sizes_given = size_option != nullptr && size_option->count() > 0;
  if (options->sizes_given) {
    options->sizes = option_values::parse_sizes(size, program);
  } else {
    options->sizes = usual_sizes(program.sizes, options->quick, backend);
  }
  if (seed_option->count() > 0) {
    const auto number = parse_number(seed);
    if (!number) usage_error(fmt::format("--seed: '{}' is not a number from 0 to 2^64 - 1", seed));
    options->seed = *number;
  }
  if (repeat_option->count() > 0) {
    const auto number = parse_number(repeat);
    if (!number || *number < 1 || *number > 1000000)
      usage_error(fmt::format("--repeat: '{}' is not a number from 1 to 1000000", repeat));
    options->repeat = static_cast<int>(*number);
  }
  if (json->count() > 0) check_output_path("--json", options->json);
  if (program.training)
    check_training_options(app, *program.training, is_cpu, training_texts, options);
  for (const auto& [name, value] : extra)
    if (app.count(name) > 0) options->extra[name] = value;

  for (const CLI::Option* option : {wave_option, devices_option, order_option, guard_option})
    if (!is_cpu && option->count() > 0)
      usage_error(fmt::format("{} is for the CPU backend; this program was built for {}",
                              option->get_name(), backend));
  if (wave_option->count() > 0) {
    if (wave != "32" && wave != "64")
      usage_error(fmt::format("--wave: '{}' is neither 32 nor 64", wave));
    setenv("HIP_CPU_WAVE", wave.c_str(), 1);
  }
  if (devices_option->count() > 0) {
    if (devices.size() != 1 || devices[0] < '1' || devices[0] > '8')
      usage_error(fmt::format("--devices: '{}' is not a number from 1 to 8", devices));
    setenv("HIP_CPU_DEVICES", devices.c_str(), 1);
  }
  if (order_option->count() > 0) {
    if (!option_values::is_order(order))
      usage_error(
          fmt::format("--order: '{}' is none of forward, reverse, waves, random:SEED", order));
    setenv("HIP_CPU_ORDER", order.c_str(), 1);
  }
  if (guard_option->count() > 0) {
    if (guard != "end" && guard != "exact" && guard != "begin")
      usage_error(fmt::format("--guard: '{}' is none of end, exact, begin", guard));
    setenv("HIP_CPU_GUARD", guard.c_str(), 1);
  }
  return true;
}
