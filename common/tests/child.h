// Tests of what ends a process: a hidden test case, run in a process of its own.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

// What came of it: the exit code (-1 where a signal ended the process) and all that it printed.
struct Outcome {
  int exit_code;
  std::string text;

  bool says(const std::string& words) const { return text.find(words) != std::string::npos; }
};

// Of a shell's command.
inline Outcome outcome_of(const std::string& command) {
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("no process can be started");
  Outcome outcome{};
  char part[4096];
  for (size_t n = 0; (n = std::fread(part, 1, sizeof part, pipe)) > 0;)
    outcome.text.append(part, n);
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

// The path of this very program.
inline std::string own_path() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  if (length < 0) throw std::runtime_error("/proc/self/exe can't be read");
  return {path, static_cast<size_t>(length)};
}

// What a shell starts this very program with. An emulator comes first where it was built for
// another processor.
inline std::string own_command() {
  const char* emulator = std::getenv("COURSE_EMULATOR");
  return (emulator == nullptr ? "'" : std::string(emulator) + " '") + own_path() + "'";
}

// Runs the test case `name` of this very program, tagged [.child] so that it runs only when asked
// for, with the given assignments in its environment.
inline Outcome run_child(const std::string& name, const std::string& environment = "") {
  return outcome_of("exec env " + environment + " " + own_command() + " '" + name + "' 2>&1");
}
