// CommandLine: a line is read as if it were the first, whatever was read before it.
#include <sstream>
#include <string>
#include <vector>

#include "common/options.h"
#include "common/testing.h"

namespace {

using Arguments = std::vector<std::string>;

ProgramInfo program() {
  ProgramInfo program;
  program.step = "9.9", program.name = "program", program.summary = "learns";
  program.sizes = {{"M", 64, 32, 5}, {"N", 1000, 10, 7}};
  program.versions = {{"naive", "one thread does it"}, {"tiled", "a block does it"}};
  program.training = TrainingDefaults{3, 2, 1, 16, 1e-3, "adam", true, true, "epochs"};
  program.extra = {{"--prompt", "TEXT", "what the text begins with"}};
  return program;
}

const std::vector<Arguments> kLines = {
    {},
    {"--version", "tiled", "--version", "naive", "--quick", "--no-limits"},
    {"--size", "3x4", "--seed", "7", "--repeat", "9", "--rounds", "2"},
    {"--epochs", "5", "--batch", "8", "--lr", "0.5", "--optimizer", "sgd", "--prompt", "x"},
    {"--json", "results", "--checkpoint", "model", "--data", ".", "--show", "picture"},
    {"--seed", "1", "--seed", "2"},
    {"--seed", "x"},
    {"--optimizer", "ADAM"},
    {"--checkpoint", "none/model"},
    {"--resume"},
    {"--unknown"},
    {"one", "more"}};

// What a line was read as, or why it was refused.
template <class Parse>
std::string outcome(Arguments arguments, Parse parse) {
  arguments.insert(arguments.begin(), "program");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  Options o;
  try {
    if (!parse(static_cast<int>(argv.size()), argv.data(), &o)) return "ended";
  } catch (const UsageError& error) {
    return error.what();
  }
  const TrainingOptions& t = o.training;
  std::ostringstream text;
  text << o.sizes_given << ' ' << o.seed << ' ' << o.repeat << ' ' << o.rounds << ' ' << o.quick
       << ' ' << o.no_limits << ' ' << o.json << ' ' << o.extra.count("--prompt") << ' ' << t.epochs
       << ' ' << t.batch << ' ' << t.learning_rate << ' ' << t.epochs_given << ' '
       << t.learning_rate_given << ' ' << t.optimizer << ' ' << t.data << ' ' << t.checkpoint << ' '
       << t.evaluate << ' ' << t.resume << ' ' << t.show;
  for (const std::string& version : o.versions) text << ' ' << version;
  for (const std::size_t size : o.sizes) text << ' ' << size;
  return text.str();
}

}  // namespace

TEST_CASE("a line is read as if it were the first") {
  for (const char* backend : {"cpu", "cuda"}) {
    CommandLine again(program(), backend);
    for (const Arguments& before : kLines)
      for (const Arguments& line : kLines) {
        CAPTURE(backend, before, line);
        outcome(before, [&](auto... of) { return again.parse(of...); });
        CHECK(outcome(line, [&](auto... of) { return again.parse(of...); }) ==
              outcome(line, [&](int argc, char** argv, Options* options) {
                return parse_options(argc, argv, program(), backend, options);
              }));
      }
  }
}

TEST_CASE("command line: --rounds is a number from 1 to 1000, and 3 where nobody asks") {
  const auto parse = [](int argc, char** argv, Options* options) {
    return parse_options(argc, argv, program(), "cpu", options);
  };
  const auto with = [&](const char* rounds) { return outcome({"--rounds", rounds}, parse); };
  CHECK(outcome({}, parse) == with("3"));
  for (const char* right : {"1", "2", "1000"}) {
    CHECK(with(right) != with("3"));
    CHECK_FALSE(contains_text(with(right), "--rounds"));
  }
  for (const char* wrong : {"0", "-1", "x", "", "1.5", "1001", "4294967297"})
    CHECK(with(wrong) == "--rounds: '" + std::string(wrong) + "' is not a number from 1 to 1000");
}
