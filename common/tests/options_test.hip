// The command line: what is understood, and the one line that answers what is not.
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/options.h"
#include "common/testing.h"
#include "common/tests/environment.h"
#include "common/tests/programs.h"

namespace {

namespace fs = std::filesystem;

const ProgramInfo kGemm = {
    "2.3",
    "gemm",
    "C = A*B",
    {{"M", 4096, 512, 301}, {"N", 2048, 256, 67}, {"K", 1024, 128, 45}},
    {{"naive", "one thread per element of C"}, {"tiled", "tiles in shared memory"}}};
const ProgramInfo kAdd = {
    "1.1", "vector_add", "c = a + b", {{"n", 1 << 28, 1 << 22, 1003}}, {{"naive", "one each"}}};
const ProgramInfo kHello = {"0.1", "hello_gpu", "greets", {}, {}};
const ProgramInfo kTrain = {"5.8",
                            "train_mnist",
                            "reads digits",
                            {},
                            {{"eager", "one kernel each"}, {"graph", "one launch"}},
                            TrainingDefaults{10, 2, 1, 64, 0.001, "adam", true, true}};
const ProgramInfo kTrainToy = {"5.6",
                               "train_toy",
                               "learns XOR",
                               {},
                               {{"eager", "one kernel each"}},
                               TrainingDefaults{5000, 500, 50, 4, 0.01, "sgd", false}};

using Arguments = std::vector<std::string>;
using Sizes = std::vector<std::size_t>;

// parse_options on these arguments; empty where it says that the program should end.
std::optional<Options> parse(const ProgramInfo& program, Arguments arguments,
                             const std::string& backend = "cpu") {
  arguments.insert(arguments.begin(), program.name);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(&argument[0]);
  Options options;
  const int argc = static_cast<int>(argv.size());
  if (!parse_options(argc, argv.data(), program, backend, &options)) return {};
  return options;
}

// The line of the UsageError, which must be there and be one line.
std::string complaint(const ProgramInfo& program, const Arguments& arguments,
                      const std::string& backend = "cpu") {
  try {
    parse(program, arguments, backend);
  } catch (const UsageError& error) {
    const std::string line = error.what();
    CHECK(line.find('\n') == std::string::npos);
    return line;
  }
  return "understood";
}

std::size_t one_size(const std::string& text) {
  return parse(kAdd, {"--size", text}).value().sizes.at(0);
}

// Standard output while it lives, read back with text().
class CapturedOutput {
 public:
  CapturedOutput() : file_(std::tmpfile()) {
    std::fflush(stdout);
    saved_ = dup(STDOUT_FILENO);
    dup2(fileno(file_), STDOUT_FILENO);
  }
  ~CapturedOutput() {
    restore();
    std::fclose(file_);
  }
  std::string text() {
    restore();
    std::string content;
    std::rewind(file_);
    for (int c; (c = std::fgetc(file_)) != EOF;) content += static_cast<char>(c);
    return content;
  }

 private:
  void restore() {
    if (saved_ < 0) return;
    std::fflush(stdout);
    dup2(saved_, STDOUT_FILENO);
    close(saved_);
    saved_ = -1;
  }
  std::FILE* file_;
  int saved_ = -1;
};

// The words of a text with one space between: CLI11 breaks the lines of --help as it sees fit.
std::string words(const std::string& text) {
  std::istringstream stream(text);
  std::string result;
  for (std::string word; stream >> word;) result += (result.empty() ? "" : " ") + word;
  return result;
}

}  // namespace

TEST_CASE("options: defaults") {
  const Options options = parse(kGemm, {}).value();
  CHECK(options.sizes == Sizes{512, 256, 128});
  CHECK_FALSE(options.sizes_given);
  CHECK(options.versions.empty());
  CHECK(options.seed == 1);
  CHECK(options.repeat == 0);
  CHECK_FALSE((options.quick || options.no_times));
  CHECK(options.json.empty());
  CHECK(parse(kGemm, {}, "cuda").value().sizes == Sizes{4096, 2048, 1024});
  CHECK(parse(kGemm, {}, "hip").value().sizes == Sizes{4096, 2048, 1024});
  CHECK(parse(kHello, {}).value().sizes.empty());
}

TEST_CASE("options: --quick takes the small sizes, --size comes before it") {
  CHECK(parse(kGemm, {"--quick"}).value().quick);
  CHECK(parse(kGemm, {"--no-times"}).value().no_times);
  CHECK(parse(kGemm, {"--quick"}).value().sizes == Sizes{301, 67, 45});
  CHECK(parse(kGemm, {"--quick"}, "cuda").value().sizes == Sizes{301, 67, 45});
  CHECK(parse(kGemm, {"--quick", "--size", "1x2x3"}).value().sizes == Sizes{1, 2, 3});
  CHECK(parse(kGemm, {"--quick", "--size", "1x2x3"}).value().sizes_given);
}

TEST_CASE("options: sizes") {
  CHECK(parse(kGemm, {"--size", "4096x4096x64"}).value().sizes == Sizes{4096, 4096, 64});
  CHECK(parse(kGemm, {"--size=2^10x64kx0"}).value().sizes == Sizes{1024, 65536, 0});
  CHECK(one_size("0") == 0);
  CHECK(one_size("1003") == 1003);
  CHECK(one_size("2^28") == 268435456);
  CHECK(one_size("2^40") == 1099511627776);
  CHECK(one_size("2^56") == 72057594037927936u);
  CHECK(one_size("10^3") == 1000);
  CHECK(one_size("1^999") == 1);
  CHECK(one_size("7^0") == 1);
  CHECK(one_size("64k") == 65536);
  CHECK(one_size("64K") == 65536);
  CHECK(one_size("1M") == 1048576);
  CHECK(one_size("3m") == 3145728);
  CHECK(one_size("2G") == 2147483648);
}

TEST_CASE("options: what is not a size") {
  for (const char* text : {"-4", "-1", "", " ", "abc", "1.5", "1e6", "+3", " 7", "7 ", "k", "4kk"})
    CHECK(contains_text(complaint(kAdd, {"--size", text}), "' is not a size"));
  for (const char* text : {"4T", "^", "2^", "^8", "2^-1", "2^8k", "2^2^2"})
    CHECK(contains_text(complaint(kAdd, {"--size", text}), "' is not a size"));
  CHECK(contains_text(complaint(kAdd, {"--size=-4"}), "'-4' is not a size"));
}

TEST_CASE("options: a size of more than 64 bits is refused, not wrapped") {
  for (const char* text : {"2^64", "3^41", "2^18446744073709551616", "17179869184G",
                           "18446744073709551616", "99999999999999999999999"})
    CHECK(contains_text(complaint(kAdd, {"--size", text}), "at most 2^64 - 1"));
}

TEST_CASE("options: sizes whose product no device could go through are refused") {
  for (const char* text : {"2^57", "2^63", "18446744073709551615"})
    CHECK(contains_text(complaint(kAdd, {"--size", text}),
                        "product of the dimensions is above 2^56"));
  for (const char* text : {"2^32x2^32x1", "2^63x2x0", "1x2^29x2^28"})
    CHECK(contains_text(complaint(kGemm, {"--size", text}), "product of the dimensions is above"));
}

TEST_CASE("options: a size of the wrong rank says what is wanted") {
  CHECK(contains_text(complaint(kGemm, {"--size", "4096"}),
                      "gemm takes MxNxK (3 numbers), '4096' has 1"));
  CHECK(contains_text(complaint(kGemm, {"--size", "1x2x3x4"}), "has 4"));
  CHECK(contains_text(complaint(kAdd, {"--size", "2x3"}),
                      "vector_add takes n (1 number), '2x3' has 2"));
  CHECK(contains_text(complaint(kGemm, {"--size", "1x2x"}), "'' is not a size"));
  CHECK(contains_text(complaint(kHello, {"--size", "3"}), "--size"));
}

TEST_CASE("options: versions") {
  const Options options = parse(kGemm, {"--version", "tiled"}).value();
  CHECK(options.versions == Arguments{"tiled"});
  CHECK(options.wants("tiled"));
  CHECK_FALSE(options.wants("naive"));
  CHECK(parse(kGemm, {}).value().wants("naive"));
  CHECK(parse(kGemm, {"--version", "tiled", "--version", "naive"}).value().versions ==
        Arguments{"tiled", "naive"});
  const std::string line = complaint(kGemm, {"--version", "tilde"});
  CHECK(contains_text(line, "'tilde' is unknown"));
  CHECK(contains_text(line, "did you mean 'tiled'?"));
  CHECK(contains_text(line, "naive, tiled"));
  CHECK(contains_text(complaint(kGemm, {"--version", "naiv"}), "did you mean 'naive'?"));
  CHECK(contains_text(complaint(kGemm, {"--version", "tiled", "naive"}), "naive"));  // one each
  CHECK(contains_text(complaint(kGemm, {"--version"}), "--version"));
  CHECK(contains_text(complaint(kHello, {"--version", "x"}), "has no versions"));
}

TEST_CASE("options: --seed and --repeat") {
  CHECK(parse(kAdd, {"--seed", "0"}).value().seed == 0);
  CHECK(parse(kAdd, {"--seed", "18446744073709551615"}).value().seed == 18446744073709551615u);
  CHECK(parse(kAdd, {"--repeat", "1"}).value().repeat == 1);
  CHECK(parse(kAdd, {"--repeat", "1000000"}).value().repeat == 1000000);
  for (const char* text : {"-1", "x", "", "1.5", "18446744073709551616"})
    CHECK(contains_text(complaint(kAdd, {"--seed", text}), "--seed: '"));
  for (const char* text : {"0", "-1", "x", "", "1.5", "1000001", "4294967297"})
    CHECK(contains_text(complaint(kAdd, {"--repeat", text}), "--repeat: '"));
}

TEST_CASE("options: what is unknown is named") {
  CHECK(contains_text(complaint(kAdd, {"--frobnicate"}), "--frobnicate"));
  CHECK(contains_text(complaint(kAdd, {"--frobnicate"}), "--help"));
  CHECK(contains_text(complaint(kAdd, {"12345"}), "12345"));
  CHECK(contains_text(complaint(kAdd, {"--size", "1", "--size", "2"}), "--size"));
  CHECK(contains_text(complaint(kAdd, {"--ver", "naive"}), "--ver"));
}

TEST_CASE("options: --json wants a folder that is there") {
  const std::string folder = std::filesystem::temp_directory_path().string();
  CHECK(parse(kAdd, {"--json", "a.json"}).value().json == "a.json");
  CHECK(parse(kAdd, {"--json", folder + "/a.json"}).value().json == folder + "/a.json");
  CHECK(contains_text(complaint(kAdd, {"--json", ""}), "--json: "));
  CHECK(contains_text(complaint(kAdd, {"--json", folder}), "is a folder"));
  CHECK(
      contains_text(complaint(kAdd, {"--json", "/no/such/a.json"}), "there is no folder /no/such"));
}

TEST_CASE("options: --wave, --devices, --order and --guard reach the CPU backend") {
  const KeptVariable wave("HIP_CPU_WAVE"), devices("HIP_CPU_DEVICES"), order("HIP_CPU_ORDER"),
      guard("HIP_CPU_GUARD");
  parse(kAdd, {});
  CHECK(wave.value() == "unset");
  CHECK(devices.value() == "unset");
  CHECK(order.value() == "unset");
  CHECK(guard.value() == "unset");
  for (const char* threads : {"32", "64"}) {
    parse(kAdd, {"--wave", threads});
    CHECK(wave.value() == threads);
  }
  for (const char* count : {"1", "2", "8"}) {
    parse(kAdd, {"--devices", count});
    CHECK(devices.value() == count);
  }
  for (const char* turns :
       {"forward", "reverse", "waves", "random:0", "random:18446744073709551615"}) {
    parse(kAdd, {"--order", turns});
    CHECK(order.value() == turns);
  }
  for (const char* where : {"end", "exact", "begin"}) {
    parse(kAdd, {"--guard", where});
    CHECK(guard.value() == where);
  }
}

TEST_CASE("options: --wave, --devices, --order and --guard that can't be") {
  const KeptVariable wave("HIP_CPU_WAVE"), devices("HIP_CPU_DEVICES"), order("HIP_CPU_ORDER"),
      guard("HIP_CPU_GUARD");
  for (const char* count : {"0", "9", "-1", "", "02", "10", "two"})
    CHECK(contains_text(complaint(kAdd, {"--devices", count}), "not a number from 1 to 8"));
  for (const char* threads : {"16", "0", "-32", "", "032", "128"})
    CHECK(contains_text(complaint(kAdd, {"--wave", threads}), "neither 32 nor 64"));
  for (const char* turns :
       {"", "backward", "random", "random:", "random:x", "random:-1", "Forward"})
    CHECK(contains_text(complaint(kAdd, {"--order", turns}),
                        "none of forward, reverse, waves, random:SEED"));
  for (const char* where : {"", "both", "End", "begin "})
    CHECK(contains_text(complaint(kAdd, {"--guard", where}), "none of end, exact, begin"));
  for (const char* backend : {"cuda", "hip"}) {
    CHECK(
        contains_text(complaint(kAdd, {"--wave", "32"}, backend), "--wave is for the CPU backend"));
    CHECK(
        contains_text(complaint(kAdd, {"--order", "reverse"}, backend), "--order is for the CPU"));
    CHECK(contains_text(complaint(kAdd, {"--devices", "2"}, backend), "--devices is for the CPU"));
    CHECK(contains_text(complaint(kAdd, {"--guard", "end"}, backend), "--guard is for the CPU"));
    CHECK(contains_text(complaint(kAdd, {"--wave", "32"}, backend), backend));
  }
  CHECK(wave.value() == "unset");
  CHECK(devices.value() == "unset");
  CHECK(order.value() == "unset");
  CHECK(guard.value() == "unset");
}

TEST_CASE("options: --list prints the versions and their lessons") {
  CapturedOutput output;
  const bool ended = !parse(kGemm, {"--list"});
  const std::string text = output.text();
  CHECK(ended);
  CHECK(text == "naive  one thread per element of C\ntiled  tiles in shared memory\n");
}

TEST_CASE("options: --help shows every option and this backend's sizes") {
  for (const auto& [backend, sizes] :
       {std::pair<std::string, std::string>{"cpu", "default 512x256x128"},
        {"cuda", "default 2^12x2^11x2^10"}}) {
    CapturedOutput output;
    const bool ended = !parse(kGemm, {"--help"}, backend);
    const std::string text = words(output.text());
    CHECK(ended);
    for (const char* part :
         {"gemm", "C = A*B", "--help", "--list", "--version", "--size", "MxNxK", "--repeat",
          "--rounds", "--quick", "--no-limits", "--no-times", "--json", "--wave", "--devices",
          "--order", "--guard", "301x67x45 with --quick", "one thread per element of C"})
      CHECK(contains_text(text, part));
    CHECK((contains_text(text, sizes) && contains_text(text, "--seed")));
  }
}

TEST_CASE("options: a program that trains has defaults") {
  const TrainingOptions training = parse(kTrain, {}).value().training;
  CHECK(training.epochs == 2);
  CHECK(training.batch == 64);
  CHECK(training.learning_rate == 0.001);
  CHECK(training.optimizer == "adam");
  CHECK(training.data.empty());
  CHECK(training.checkpoint.empty());
  CHECK(training.evaluate.empty());
  CHECK(training.show.empty());
  CHECK_FALSE(training.resume);
  CHECK_FALSE(training.one_version());
  CHECK(parse(kTrain, {}, "cuda").value().training.epochs == 10);
  CHECK(parse(kTrain, {}, "hip").value().training.epochs == 10);
  CHECK(parse(kTrain, {"--quick"}).value().training.epochs == 1);
  CHECK(parse(kTrain, {"--quick"}, "cuda").value().training.epochs == 1);
  CHECK(parse(kTrain, {"--quick", "--epochs", "7"}).value().training.epochs == 7);
}

TEST_CASE("options: how to train") {
  const TrainingOptions training = parse(kTrain, {"--epochs", "1000000000", "--batch", "1000000",
                                                  "--lr", "5e-4", "--optimizer", "momentum"})
                                       .value()
                                       .training;
  CHECK(training.epochs == 1000000000);
  CHECK(training.batch == 1000000);
  CHECK(training.learning_rate == 5e-4);
  CHECK(training.optimizer == "momentum");
  for (const char* optimizer : {"sgd", "momentum", "adam", "adamw"})
    CHECK(parse(kTrain, {"--optimizer", optimizer}).value().training.optimizer == optimizer);
}

TEST_CASE("options: no epochs and no samples are refused, and so are too many") {
  for (const char* text : {"0", "-1", "x", "", "1.5", "1e3", " 1", "1000000001"})
    CHECK(contains_text(complaint(kTrain, {"--epochs", text}), "--epochs: '"));
  for (const char* text : {"0", "-1", "x", "", "1.5", "1e3", " 1", "1000001"})
    CHECK(contains_text(complaint(kTrain, {"--batch", text}), "--batch: '"));
  CHECK(contains_text(complaint(kTrain, {"--epochs", "0"}), "from 1 to 1000000000"));
  CHECK(contains_text(complaint(kTrain, {"--batch", "18446744073709551616"}), "from 1 to 1000000"));
}

TEST_CASE("options: a learning rate is above 0 and a float can hold it") {
  const std::vector<std::pair<std::string, double>> rates = {
      {"0.1", 0.1}, {".5", 0.5}, {"2", 2}, {"1e-3", 1e-3}, {"1E-3", 1e-3}, {"3e38", 3e38}};
  for (const auto& [text, rate] : rates)
    CHECK(parse(kTrain, {"--lr", text}).value().training.learning_rate == rate);
  for (const char* text : {"0", "-0.1", "-0", "nan", "inf", "-inf", "1e39", "1e-39", "1e-999",
                           "1e999", "", " 1", "1 ", "0,1", "0.1x", "x", "0x1p-3", "+1", "1e"})
    CHECK(contains_text(complaint(kTrain, {"--lr", text}),
                        "' is not a learning rate; write a number above 0 such as 0.001 or 1e-3"));
}

TEST_CASE("options: a learning rate reads and prints the same in every locale") {
  const std::string before = std::setlocale(LC_ALL, nullptr);
  // One with a decimal comma, if the machine has it.
  for (const char* name : {"de_DE.UTF-8", "fr_FR.UTF-8"})
    if (std::setlocale(LC_ALL, name) != nullptr) break;
  CHECK(parse(kTrain, {"--lr", "0.25"}).value().training.learning_rate == 0.25);
  CHECK(contains_text(complaint(kTrain, {"--lr", "0,25"}), "'0,25' is not a learning rate"));
  CapturedOutput output;
  parse(kTrain, {"--help"});
  CHECK(contains_text(words(output.text()), "learning rate (default 0.001)"));
  std::setlocale(LC_ALL, before.c_str());
}

TEST_CASE("options: an optimizer that is unknown") {
  const std::string line = complaint(kTrain, {"--optimizer", "adamv"});
  CHECK(contains_text(line,
                      "--optimizer: 'adamv' is unknown, did you mean 'adam'? There are sgd, "
                      "momentum, adam, adamw"));
  CHECK(contains_text(complaint(kTrain, {"--optimizer", "SGD"}), "'SGD' is unknown"));
  CHECK(contains_text(complaint(kTrain, {"--optimizer", ""}), "'' is unknown"));
}

TEST_CASE("options: --checkpoint, --resume and --evaluate") {
  const tests::Folder folder;
  const std::string model = folder / "model.safetensors";
  const std::string nowhere = folder / "none/model.safetensors";

  TrainingOptions training = parse(kTrain, {"--checkpoint", model}).value().training;
  CHECK(training.checkpoint == model);
  CHECK(training.one_version());
  CHECK(contains_text(complaint(kTrain, {"--checkpoint", nowhere}), "there is no folder "));
  CHECK(contains_text(complaint(kTrain, {"--checkpoint", folder.name()}), "is a folder"));
  CHECK(contains_text(complaint(kTrain, {"--checkpoint", ""}), "the file has no name"));

  CHECK(complaint(kTrain, {"--resume"}) ==
        "--resume goes on from a checkpoint: add --checkpoint FILE");
  CHECK(contains_text(complaint(kTrain, {"--checkpoint", model, "--resume"}),
                      "--resume: there is no file " + model));
  CHECK(contains_text(complaint(kTrain, {"--evaluate", model}),
                      "--evaluate: there is no file " + model));
  std::ofstream(model) << "a model";
  training = parse(kTrain, {"--checkpoint", model, "--resume"}).value().training;
  CHECK(training.resume);
  training = parse(kTrain, {"--evaluate", model}).value().training;
  CHECK(training.evaluate == model);
  CHECK(training.one_version());
  CHECK(contains_text(complaint(kTrain, {"--evaluate", folder.name()}), "is a folder"));
  CHECK(contains_text(complaint(kTrain, {"--evaluate", model, "--checkpoint", model}),
                      "--evaluate trains nothing"));

  CHECK(parse(kTrain, {"--evaluate", model, "--version", "graph"}).has_value());
  for (const char* option : {"--checkpoint", "--evaluate"})
    CHECK(contains_text(
        complaint(kTrain, {option, model, "--version", "graph", "--version", "eager"}),
        std::string(option) + " is for one model: name one --version"));
}

TEST_CASE("options: --data names a folder") {
  const tests::Folder folder;
  CHECK(parse(kTrain, {"--data", folder.name()}).value().training.data == folder.name());
  CHECK(contains_text(complaint(kTrain, {"--data", (folder / "none")}),
                      "--data: there is no folder '" + (folder / "none")));
  CHECK(contains_text(complaint(kTrain, {"--data", ""}), "--data: there is no folder ''"));
  std::ofstream(folder / "file") << "text";
  CHECK(contains_text(complaint(kTrain, {"--data", (folder / "file")}), "there is no folder"));
  CHECK(contains_text(complaint(kTrainToy, {"--data", folder.name()}), "--data"));
}

TEST_CASE("options: --show names a file that can be written, where there is something to show") {
  const tests::Folder folder;
  const std::string picture = folder / "picture.png";
  CHECK(parse(kTrain, {"--show", picture}).value().training.show == picture);
  CHECK(contains_text(complaint(kTrain, {"--show", folder.name()}), "is a folder"));
  CHECK(contains_text(complaint(kTrain, {"--show", ""}), "--show: the file has no name"));
  CHECK(contains_text(complaint(kTrain, {"--show", "/no/such/a.png"}), "there is no folder"));
  CHECK(contains_text(complaint(kTrainToy, {"--show", picture}), "--show"));
}

TEST_CASE("options: only programs that train take the options of training") {
  for (const char* option :
       {"--epochs", "--batch", "--lr", "--optimizer", "--checkpoint", "--evaluate", "--data"})
    CHECK(contains_text(complaint(kGemm, {option, "1"}), option));
  CHECK(contains_text(complaint(kGemm, {"--resume"}), "--resume"));
}

TEST_CASE("options: --help shows the options of training and their defaults") {
  for (const auto& [backend, epochs] :
       {std::pair<std::string, std::string>{"cpu", "(default 2, 1 with --quick)"},
        {"cuda", "(default 10, 1 with --quick)"}}) {
    CapturedOutput output;
    parse(kTrain, {"--help"}, backend);
    const std::string text = words(output.text());
    CHECK(contains_text(text, epochs));
    for (const char* part :
         {"--epochs", "--batch", "(default 64)", "--lr", "(default 0.001)", "--optimizer",
          "sgd|momentum|adam|adamw", "(default adam)", "--checkpoint", "--resume", "--evaluate",
          "--data", "$COURSE_DATA", "--show"})
      CHECK(contains_text(text, part));
  }
  CapturedOutput output;
  parse(kTrainToy, {"--help"});
  CHECK(output.text().find("--data") == std::string::npos);
}

TEST_CASE("options: a program may count steps, and has options of its own") {
  ProgramInfo program = kTrain;
  program.training->unit = "steps";
  program.extra = {{"--prompt", "TEXT", "what it begins with"},
                   {"--top-k", "NUMBER", "of so many"}};
  const Options options =
      parse(program, {"--steps", "7", "--lr", "0.5", "--prompt", "-a b\n"}).value();
  CHECK(options.training.epochs == 7);
  CHECK(options.training.epochs_given);
  CHECK(options.training.learning_rate_given);
  CHECK(options.extra == std::map<std::string, std::string>{{"--prompt", "-a b\n"}});
  const Options plain = parse(program, {}).value();
  CHECK(plain.training.epochs == 2);
  CHECK_FALSE(plain.training.epochs_given);
  CHECK_FALSE(plain.training.learning_rate_given);
  CHECK(plain.extra.empty());
  CHECK(contains_text(complaint(program, {"--steps", "0"}), "--steps: '0'"));
  CHECK(contains_text(complaint(program, {"--epochs", "1"}), "--epochs"));
  CHECK(contains_text(complaint(kTrain, {"--prompt", "x"}), "--prompt"));
  CapturedOutput output;
  parse(program, {"--help"});
  const std::string text = words(output.text());
  for (const char* part :
       {"--steps", "optimizer steps (default 2", "--prompt", "what it begins with"})
    CHECK(contains_text(text, part));
}
