// What tests leave out in an emulator (qemu-user): all that it does otherwise than the kernel.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "common/testing.h"

namespace emulator {

constexpr char kLimits[] = "a limit on memory holds for the emulator as well";
constexpr char kPrograms[] = "/proc/PID/exe names the emulator";
constexpr char kMissingPrograms[] = "posix_spawn reports no error for a program that can't start";

// Whether this program runs in one: cmake/step.cmake names it.
inline bool is_here() { return std::getenv("COURSE_EMULATOR") != nullptr; }

// For `if (emulator::leaves_out(emulator::kLimits)) return;`. Prints the test case and the reason,
// and `.ci/run arm64` shows these lines at its end.
inline bool leaves_out(const char* reason) {
  if (!is_here()) return false;
  std::printf("left out in the emulator, of \"%s\": %s\n",
              Catch::getResultCapture().getCurrentTestName().c_str(), reason);
  return true;
}

}  // namespace emulator
