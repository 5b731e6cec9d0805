// What all programs refuse before they allocate or print anything, and how they end.
#include "common/program.h"

#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>

#include "common/testing.h"
#include "common/tests/child.h"

namespace {

const ProgramInfo kProgram = {"5.8", "train_mnist", "reads digits", {}, {}};

template <class Error>
int exit_code_of(const std::string& text) {
  char name[] = "train_mnist";
  char* arguments[] = {name};
  return run_program(1, arguments, kProgram, [&](const Options&, Report& report) {
    report.line("one line");
    throw Error(text);
  });
}

struct Terminated : training::Interrupted {
  explicit Terminated(const std::string& text) : Interrupted(text, kExitTerminated) {}
};

struct NoMemory : std::bad_alloc {
  explicit NoMemory(const std::string&) {}
};

}  // namespace

TEST_CASE("a dimension of 0 is refused, wherever it stands") {
  using Sizes = std::vector<size_t>;
  Options options;
  for (const Sizes& sizes : {Sizes{0}, Sizes{0, 5}, Sizes{5, 0}, Sizes{5, 5, 0}}) {
    options.sizes = sizes;
    REQUIRE_THROWS_AS(require_work(options), UsageError);
  }
  options.sizes = {1, 1, 1};
  REQUIRE_NOTHROW(require_work(options));
}

TEST_CASE("more memory than the device has is refused") {
  REQUIRE_NOTHROW(require_device_memory(1));
  REQUIRE_THROWS_AS(require_device_memory(1e18), UsageError);
}

TEST_CASE("a program that ends early (child)", "[.child]") {
  const std::string how = std::getenv("HOW");
  std::exit(how == "interrupted"  ? exit_code_of<training::Interrupted>("interrupted in epoch 3")
            : how == "terminated" ? exit_code_of<Terminated>("terminated in epoch 3")
            : how == "usage"      ? exit_code_of<UsageError>("no such version")
            : how == "no_device"  ? exit_code_of<NoDevice>("no device")
            : how == "memory"     ? exit_code_of<NoMemory>("")
            : how == "length"     ? exit_code_of<std::length_error>("vector::reserve")
            : how == "file"       ? exit_code_of<std::runtime_error>("a\nb\x1b[2J has no end")
                                  : exit_code_of<std::runtime_error>("the disk is full"));
}

TEST_CASE("whatever ends a program is one line and an exit code") {
  const auto ends = [](const std::string& how, int exit_code, const std::string& line) {
    const Outcome outcome = run_child("a program that ends early (child)", "HOW=" + how);
    CHECK(outcome.exit_code == exit_code);
    // What was printed before stands before it.
    CHECK(contains_text(outcome.text, "one line\ntrain_mnist: " + line + "\n"));
  };
  ends("interrupted", 130, "interrupted in epoch 3");
  ends("terminated", 143, "terminated in epoch 3");
  ends("usage", 2, "no such version");
  ends("no_device", 3, "no device");
  ends("error", 1, "the disk is full");
  ends("memory", 2, "what was asked for needs more memory than this machine gives");
  ends("length", 2, "what was asked for needs more memory than this machine gives");
  ends("file", 1, "a\\x0ab\\x1b[2J has no end");
}
