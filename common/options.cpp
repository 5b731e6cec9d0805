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

// ---- What is there ------------------------------------------------------------------------------

const std::vector<std::string> kOptimizers = {"sgd", "momentum", "adam", "adamw"};

// Values are read as text and parsed later, so that every message says what would be right.
struct Texts {
  std::vector<std::string> versions;
  std::string size, seed, repeat, rounds, json, wave, devices, order, guard;
  bool list = false, quick = false, no_limits = false, no_times = false;
  std::string epochs, batch, learning_rate, optimizer, checkpoint, evaluate, data, show;
  bool resume = false;
};

// What follows an option that counts something: a number from 1 to `most`.
int parse_count(const char* option, const std::string& text, int most) {
  const auto number = parse_number(text);
  if (!number || *number < 1 || *number > static_cast<std::uint64_t>(most))
    usage_error(fmt::format("{}: '{}' is not a number from 1 to {}", option, text, most));
  return static_cast<int>(*number);
}

std::size_t usual_epochs(const TrainingDefaults& defaults, bool is_cpu) {
  return is_cpu ? defaults.epochs_cpu : defaults.epochs;
}

// Adds an option of this type to a parser.
void add(CLI::App& app, const std::string& name, std::string& value, const std::string& type,
         const std::string& help) {
  app.add_option(name, value, help)->type_name(type);
}

void add_training_options(CLI::App& app, const TrainingDefaults& defaults, bool is_cpu,
                          Texts& texts) {
  add(app, "--" + defaults.unit, texts.epochs, "NUMBER",
      fmt::format("{} (default {}, {} with --quick)",
                  defaults.unit == "epochs" ? "times over the training data" : "optimizer steps",
                  usual_epochs(defaults, is_cpu), defaults.epochs_quick));
  if (defaults.batch > 0)
    add(app, "--batch", texts.batch, "NUMBER",
        fmt::format("samples of one optimizer step (default {})", defaults.batch));
  add(app, "--lr", texts.learning_rate, "NUMBER",
      fmt::format("learning rate (default {})", defaults.learning_rate));
  add(app, "--optimizer", texts.optimizer, "sgd|momentum|adam|adamw",
      fmt::format("rule of a step (default {})", defaults.optimizer));
  add(app, "--checkpoint", texts.checkpoint, "FILE",
      fmt::format("train one version and write its model here {} and on Ctrl-C",
                  defaults.unit == "epochs" ? "after every epoch" : "now and then"));
  app.add_flag("--resume", texts.resume, "go on from the checkpoint");
  add(app, "--evaluate", texts.evaluate, "FILE",
      "test the model of this checkpoint, train nothing");
  if (defaults.data)
    add(app, "--data", texts.data, "DIR",
        "folder of the data sets (default: $COURSE_DATA, or data)");
  if (defaults.show)
    add(app, "--show", texts.show, "FILE.png", "draw what the model has learnt into this file");
}

// ---- What was said ------------------------------------------------------------------------------

// The value of an option that only the CPU backend has goes to it by a variable.
struct CpuOption {
  const char* name;
  const char* variable;
  std::string Texts::*text;
  bool (*is_right)(const std::string&);
  const char* what_is_wrong;
};
const CpuOption kCpuOptions[] = {
    {"--wave", "HIP_CPU_WAVE", &Texts::wave,
     [](const std::string& text) { return text == "32" || text == "64"; }, "is neither 32 nor 64"},
    {"--devices", "HIP_CPU_DEVICES", &Texts::devices,
     [](const std::string& text) { return text.size() == 1 && text[0] >= '1' && text[0] <= '8'; },
     "is not a number from 1 to 8"},
    {"--order", "HIP_CPU_ORDER", &Texts::order, option_values::is_order,
     "is none of forward, reverse, waves, random:SEED"},
    {"--guard", "HIP_CPU_GUARD", &Texts::guard,
     [](const std::string& text) { return text == "end" || text == "exact" || text == "begin"; },
     "is none of end, exact, begin"}};

void read_training_options(const CLI::App& app, const TrainingDefaults& defaults, bool is_cpu,
                           const Texts& texts, Options* options) {
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
  training.optimizer = given("--optimizer") ? texts.optimizer : defaults.optimizer;
  check_name("--optimizer", training.optimizer, kOptimizers);
  training.checkpoint = texts.checkpoint, training.evaluate = texts.evaluate;
  training.resume = texts.resume, training.data = texts.data, training.show = texts.show;

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

struct CommandLine::Parser {
  ProgramInfo program;
  std::string backend;
  CLI::App app;
  Texts texts;                               // where `app` puts what it finds
  std::map<std::string, std::string> extra;  // likewise, of program.extra
};

CommandLine::CommandLine(const ProgramInfo& program, const std::string& backend)
    : parser_(std::make_unique<Parser>()) {
  parser_->program = program, parser_->backend = backend;
  const bool is_cpu = backend == "cpu";
  CLI::App& app = parser_->app;
  Texts& texts = parser_->texts;
  app.name(program.name);
  app.description(fmt::format("{} {}: {}", program.step, program.name, program.summary));
  app.set_help_flag("-h,--help", "print this help, then end");
  app.add_flag("--list", texts.list, "list the versions and what each one teaches, then end");
  app.add_option("--version", texts.versions, "run only this version; may be repeated")
      ->type_name("NAME")
      ->take_all()
      ->allow_extra_args(false);
  if (!program.sizes.empty())
    add(app, "--size", texts.size, option_values::size_names(program),
        fmt::format("each as in 1000, 64k, 1M or 2^28 ({})", default_sizes(program, backend)));
  add(app, "--seed", texts.seed, "NUMBER", "seed of the random inputs (default 1)");
  add(app, "--repeat", texts.repeat, "NUMBER",
      "timed launches of each version (default: 5 to 100, by time)");
  add(app, "--rounds", texts.rounds, "NUMBER",
      "rounds in which versions take turns (default 3); fewer rounds have fewer launches");
  app.add_flag("--quick", texts.quick, "small, awkward sizes: checks, where times say little");
  app.add_flag("--no-limits", texts.no_limits, "don't measure the machine's limits first");
  app.add_flag("--no-times", texts.no_times,
               "check every version and time none; train no further than is checked");
  add(app, "--json", texts.json, "FILE", "write the results to this file too");
  const std::string cpu_only = is_cpu ? "" : " (CPU backend only)";
  add(app, "--wave", texts.wave, "32|64", "threads per wave" + cpu_only);
  add(app, "--devices", texts.devices, "1..8",
      "devices that share this machine (default 1)" + cpu_only);
  add(app, "--order", texts.order, "forward|reverse|waves|random:SEED",
      "turns of blocks and threads" + cpu_only);
  add(app, "--guard", texts.guard, "end|exact|begin", "where guard pages lie" + cpu_only);
  if (program.training) add_training_options(app, *program.training, is_cpu, texts);
  for (const ExtraOption& option : program.extra)
    add(app, option.name, parser_->extra[option.name], option.type, option.help);
}

CommandLine::~CommandLine() = default;

bool CommandLine::parse(int argc, char** argv, Options* options) {
  const ProgramInfo& program = parser_->program;
  const bool is_cpu = parser_->backend == "cpu";
  CLI::App& app = parser_->app;
  Texts& texts = parser_->texts;
  texts = {};
  *options = {};
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
  if (texts.list) {
    print_answer(list_versions(program));
    return false;
  }

  const auto given = [&](const char* option) { return app.count(option) > 0; };
  options->versions = texts.versions;
  options->quick = texts.quick, options->no_limits = texts.no_limits;
  options->no_times = texts.no_times, options->json = texts.json;
  for (const std::string& name : options->versions) check_version(name, program);

  options->sizes_given = !program.sizes.empty() && given("--size");
  if (options->sizes_given) {
    options->sizes = option_values::parse_sizes(texts.size, program);
  } else {
    options->sizes = usual_sizes(program.sizes, options->quick, parser_->backend);
  }
  if (given("--seed")) {
    const auto number = parse_number(texts.seed);
    if (!number)
      usage_error(fmt::format("--seed: '{}' is not a number from 0 to 2^64 - 1", texts.seed));
    options->seed = *number;
  }
  if (given("--repeat")) options->repeat = parse_count("--repeat", texts.repeat, 1000000);
  if (given("--rounds")) options->rounds = parse_count("--rounds", texts.rounds, 1000);
  if (given("--json")) check_output_path("--json", options->json);
  if (program.training) read_training_options(app, *program.training, is_cpu, texts, options);
  for (const auto& [name, value] : parser_->extra)
    if (given(name.c_str())) options->extra[name] = value;

  for (const CpuOption& option : kCpuOptions)
    if (!is_cpu && given(option.name))
      usage_error(fmt::format("{} is for the CPU backend; this program was built for {}",
                              option.name, parser_->backend));
  for (const CpuOption& option : kCpuOptions) {
    if (!given(option.name)) continue;
    const std::string& text = texts.*option.text;
    if (!option.is_right(text))
      usage_error(fmt::format("{}: '{}' {}", option.name, text, option.what_is_wrong));
    setenv(option.variable, text.c_str(), 1);
  }
  return true;
}

bool parse_options(int argc, char** argv, const ProgramInfo& program, const std::string& backend,
                   Options* options) {
  return CommandLine(program, backend).parse(argc, argv, options);
}
