// Tests of what ends a process: a hidden test case, run in a process of its own.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <stdexcept>
#include <string>

// What came of it: the exit code (-1 where a signal ended the process) and all that it printed.
struct Outcome {
  int exit_code;
  std::string text;

  bool says(const std::string& words) const { return text.find(words) != std::string::npos; }
};

// Runs the test case `name` of this very program, tagged [.child] so that it runs only when asked
// for, with the given assignments in its environment.
inline Outcome run_child(const std::string& name, const std::string& environment = "") {
  char program[4096];
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program);
  if (length < 0) throw std::runtime_error("/proc/self/exe can't be read");
  const std::string command = "exec env " + environment + " '" +
                              std::string(program, static_cast<size_t>(length)) + "' '" + name +
                              "' 2>&1";
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
