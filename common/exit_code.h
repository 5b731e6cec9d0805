// How a program ends: its exit codes, and the exceptions that run_program turns into them.
#pragma once

#include <stdexcept>
#include <string>

// Exit codes of every program.
enum ExitCode {
  kExitOk = 0,
  kExitFailed = 1,
  kExitUsage = 2,
  kExitNoDevice = 3,
  // What a shell reports of a program that Ctrl-C (SIGINT) or SIGTERM has ended.
  kExitInterrupted = 130,
  kExitTerminated = 143
};

struct NoDevice : std::runtime_error {
  using std::runtime_error::runtime_error;
};

namespace training {

// A signal stopped the training: run_program prints the text as one line and returns the code, 130
// or 143. The text says what is saved and how to go on.
struct Interrupted : std::runtime_error {
  explicit Interrupted(const std::string& text, ExitCode exit_code = kExitInterrupted)
      : std::runtime_error(text), code(exit_code) {}
  ExitCode code;
};

}  // namespace training
