// The command line: what is understood, and the one line that answers what is not.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/options.h"
#include "common/testing.h"

namespace {

const ProgramInfo kGemm = {
    "2.3",
    "gemm",
    "C = A*B",
    {{"M", 4096, 512, 301}, {"N", 2048, 256, 67}, {"K", 1024, 128, 45}},
    {{"naive", "one thread per element of C"}, {"tiled", "tiles in shared memory"}}};
const ProgramInfo kAdd = {
    "1.1", "vector_add", "c = a + b", {{"n", 1 << 28, 1 << 22, 1003}}, {{"naive", "one each"}}};
const ProgramInfo kHello = {"0.1", "hello_gpu", "greets", {}, {}};

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

// Puts an environment variable back as it was.
class KeptVariable {
 public:
  explicit KeptVariable(const char* name) : name_(name) {
    if (const char* value = std::getenv(name)) before_ = value;
    unsetenv(name);
  }
  ~KeptVariable() {
    if (before_)
      setenv(name_, before_->c_str(), 1);
    else
      unsetenv(name_);
  }
  std::string value() const {
    const char* value = std::getenv(name_);
    return value == nullptr ? "unset" : value;
  }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

}  // namespace

TEST_CASE("options: defaults") {
  const Options options = parse(kGemm, {}).value();
  CHECK(options.sizes == Sizes{512, 256, 128});
  CHECK_FALSE(options.sizes_given);
  CHECK(options.versions.empty());
  CHECK(options.seed == 1);
  CHECK(options.repeat == 0);
  CHECK_FALSE(options.quick);
  CHECK(options.json.empty());
  CHECK(parse(kGemm, {}, "cuda").value().sizes == Sizes{4096, 2048, 1024});
  CHECK(parse(kGemm, {}, "hip").value().sizes == Sizes{4096, 2048, 1024});
  CHECK(parse(kHello, {}).value().sizes.empty());
}

TEST_CASE("options: --quick takes the small sizes, --size comes before it") {
  CHECK(parse(kGemm, {"--quick"}).value().quick);
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
  CHECK(one_size("2^63") == 9223372036854775808u);
  CHECK(one_size("10^3") == 1000);
  CHECK(one_size("1^999") == 1);
  CHECK(one_size("7^0") == 1);
  CHECK(one_size("64k") == 65536);
  CHECK(one_size("64K") == 65536);
  CHECK(one_size("1M") == 1048576);
  CHECK(one_size("3m") == 3145728);
  CHECK(one_size("2G") == 2147483648);
  CHECK(one_size("18446744073709551615") == 18446744073709551615u);
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

TEST_CASE("options: --wave and --order reach the CPU backend") {
  const KeptVariable wave("HIP_CPU_WAVE"), order("HIP_CPU_ORDER");
  parse(kAdd, {});
  CHECK(wave.value() == "unset");
  CHECK(order.value() == "unset");
  for (const char* threads : {"32", "64"}) {
    parse(kAdd, {"--wave", threads});
    CHECK(wave.value() == threads);
  }
  for (const char* turns : {"forward", "reverse", "random:0", "random:18446744073709551615"}) {
    parse(kAdd, {"--order", turns});
    CHECK(order.value() == turns);
  }
}

TEST_CASE("options: --wave and --order that can't be") {
  const KeptVariable wave("HIP_CPU_WAVE"), order("HIP_CPU_ORDER");
  for (const char* threads : {"16", "0", "-32", "", "032", "128"})
    CHECK(contains_text(complaint(kAdd, {"--wave", threads}), "neither 32 nor 64"));
  for (const char* turns :
       {"", "backward", "random", "random:", "random:x", "random:-1", "Forward"})
    CHECK(contains_text(complaint(kAdd, {"--order", turns}),
                        "none of forward, reverse, random:SEED"));
  for (const char* backend : {"cuda", "hip"}) {
    CHECK(
        contains_text(complaint(kAdd, {"--wave", "32"}, backend), "--wave is for the CPU backend"));
    CHECK(
        contains_text(complaint(kAdd, {"--order", "reverse"}, backend), "--order is for the CPU"));
    CHECK(contains_text(complaint(kAdd, {"--wave", "32"}, backend), backend));
  }
  CHECK(wave.value() == "unset");
  CHECK(order.value() == "unset");
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
    for (const char* part : {"gemm", "C = A*B", "--help", "--list", "--version", "--size", "MxNxK",
                             "--seed", "--repeat", "--quick", "--json", "--wave", "--order",
                             "301x67x45 with --quick", "one thread per element of C"})
      CHECK(contains_text(text, part));
    CHECK(contains_text(text, sizes));
  }
}
