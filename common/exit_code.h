// How a program ends: its exit codes, and the exceptions that run_program turns into them.
#pragma once

#include <stdexcept>

// Exit codes of every program.
enum ExitCode {
  kExitOk = 0,
  kExitFailed = 1,
  kExitUsage = 2,
  kExitNoDevice = 3,
  kExitInterrupted = 130  // what a shell reports of a program that Ctrl-C has ended
};

struct NoDevice : std::runtime_error {
  using std::runtime_error::runtime_error;
};

namespace training {

// The user stopped the training: run_program prints the text as one line and returns 130. The text
// says what is saved and how to go on.
struct Interrupted : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace training
