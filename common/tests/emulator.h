// What tests leave out in an emulator (qemu-user), since it does otherwise than the kernel.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace emulator {

// All of it: the test, what it leaves out, and why.
constexpr char kMissingProgram[] =
    "child_process_test, a program that can't start: posix_spawn gives no error there";
constexpr char kMissingCompiler[] =
    "runtime_code_test, no compiler: posix_spawn gives no error there";
constexpr char kLivingWriter[] =
    "output_file_test, the file of a program that runs: /proc/PID/exe is the emulator there";
constexpr char kLimit[] = "sizes_test, a limit on memory: setrlimit has no effect there";

// Whether this program runs in one: cmake/step.cmake names it.
inline bool is_here() { return std::getenv("COURSE_EMULATOR") != nullptr; }

// For `if (emulator::leaves_out(emulator::kLimit)) return;`. `.ci/run arm64` ends with these lines.
inline bool leaves_out(const char* what) {
  if (is_here()) std::printf("left out in the emulator: %s\n", what);
  return is_here();
}

}  // namespace emulator
