// CommandLine::parse(): the first byte of an input chooses the program and the backend, and each
// line behind it is an argument. Only UsageError is thrown; what is accepted is within its limits,
// and sizes that are written out give the same again.
#include "common/options.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/option_values.h"
#include "common/sizes.h"
#include "tests/fuzz/fuzz.h"

namespace {

// One with every kind of option, and one with none but the common ones.
ProgramInfo training_program() {
  ProgramInfo program;
  program.step = "9.9", program.name = "program", program.summary = "learns";
  program.sizes = {{"M", 64, 32, 5}, {"N", 1000, 10, 7}};
  program.versions = {{"naive", "one thread does it"}, {"tiled", "a block does it"}};
  program.training = TrainingDefaults{3, 2, 1, 16, 1e-3, "adam", true, true, "epochs"};
  program.extra = {{"--prompt", "TEXT", "what the text begins with"}};
  return program;
}
ProgramInfo plain_program() {
  ProgramInfo program;
  program.step = "0.0", program.name = "plain", program.summary = "says hello";
  return program;
}

// A program's command line on one backend. What is declared is declared once: that takes much
// longer than to read a line.
struct Program {
  Program(const ProgramInfo& program, const std::string& backend)
      : info(program), line(program, backend) {}
  ProgramInfo info;
  CommandLine line;
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

bool parse(std::vector<std::string> arguments, Program& program, Options* options) {
  arguments.insert(arguments.begin(), program.info.name);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  return program.line.parse(static_cast<int>(arguments.size()), argv.data(), options);
}

void check(const Options& options, const ProgramInfo& program) {
  fuzz::expect(options.sizes.size() == program.sizes.size(), "a size for each dimension");
  fuzz::expect(sizes::product(options.sizes, sizes::kMostProduct).has_value(),
               "sizes have a limit");
  fuzz::expect(options.repeat >= 0 && options.repeat <= 1000000, "repeat has its range");
  for (const std::string& name : options.versions)
    fuzz::expect(std::any_of(program.versions.begin(), program.versions.end(),
                             [&](const VersionInfo& version) { return version.name == name; }),
                 "each version is one of the program's");
  if (program.training) {
    const TrainingOptions& training = options.training;
    const float rate = static_cast<float>(training.learning_rate);
    fuzz::expect(rate > 0 && std::isfinite(rate), "the learning rate is a float above 0");
    fuzz::expect(training.epochs >= 1 && training.batch >= 1, "there is something to train");
    fuzz::expect(!training.resume || !training.checkpoint.empty(), "resume has its checkpoint");
  }
  if (!options.sizes_given) return;
  std::string text;
  for (const std::size_t extent : options.sizes)
    text += (text.empty() ? "" : "x") + std::to_string(extent);
  fuzz::expect(option_values::parse_sizes(text, program) == options.sizes,
               "sizes that are written out are the same");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::Folder folder;  // the parser asks whether it could write --checkpoint's file
  static const bool there = chdir(folder.path().c_str()) == 0;
  fuzz::expect(there, "the target can enter its folder");
  if (size == 0) return 0;
  std::string text(fuzz::bytes_of(data + 1, size - 1));
  std::replace(text.begin(), text.end(), '/', '_');   // nothing outside the folder
  std::replace(text.begin(), text.end(), '\0', '_');  // an argument can't hold it
  static Program programs[2][2] = {{{training_program(), "cpu"}, {training_program(), "cuda"}},
                                   {{plain_program(), "cpu"}, {plain_program(), "cuda"}}};
  Program& program = programs[data[0] & 1][data[0] >> 1 & 1];
  try {
    Options options;
    if (parse(lines_of(text), program, &options)) check(options, program.info);
  } catch (const UsageError& error) {
    const std::string message = error.what();
    fuzz::expect(!message.empty(), "a message says something");
    // Of an argument it may hold any byte: run_program() escapes them.
    const auto is_ascii = [](char c) { return (c >= 0x20 && c < 0x7F) || c == '\n'; };
    if (std::all_of(text.begin(), text.end(), is_ascii))
      fuzz::expect(printable(message) == message, "a message is one line");
  }
  return 0;
}
