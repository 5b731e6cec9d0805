// A program that is run and waited for, without a shell. Implemented in child_process.cpp.
#pragma once

#include <string>
#include <vector>

namespace child_process {

struct Ended {
  int exit_code = -1;        // -1 where a signal has ended it
  bool is_too_slow = false;  // it was ended, with all that it had started
  std::string output;        // of both its streams
};

// Runs command[0], which is looked for in PATH, with these arguments, for at most so many seconds;
// its temporary files go to `folder`. It reads nothing. Its messages are in English. Throws
// std::runtime_error where it can't be started: "g++ is not found".
Ended run(const std::vector<std::string>& command, double seconds, const std::string& folder);

}  // namespace child_process
