// What ends a kernel from outside: a bad address, a division by zero, a launch that takes for ever.
// For common/cpu/*.cpp only.
#pragma once

#include <string>

namespace cpu {

class BlockRunner;

// Why the kernel on this host thread was interrupted.
struct Fault {
  int signal = 0;
  void* address = nullptr;
  enum { unknown, read, write } access = unknown;
  bool near_stack = false;  // close to the stack pointer: a frame that did not fit
  bool no_page = false;     // the processor refused the address before it looked for a page
};
bool is_timeout(const Fault& fault);

// Makes faults inside kernels return to BlockRunner::fault_jump, on this and on all host threads.
// Cheap when nothing has changed since the last call, so every launch calls it: test frameworks
// replace the handlers of a process as they like.
void watch_for_faults();
// Gives this host thread a stack of its own for signals: a fiber's may be what has overflowed.
void use_signal_stack();

// One line on what happened, for a runner that was interrupted by `fault`: what was done to which
// buffer, and by whom.
std::string describe_fault(const BlockRunner& runner, const Fault& fault);

// The watchdog knows every runner from its construction to its destruction.
void add_to_watchdog(BlockRunner* runner);
void remove_from_watchdog(BlockRunner* runner);
// Starts the watchdog, once: a block that takes more than HIP_CPU_TIMEOUT seconds (default 120, 0:
// for ever) of a processor's time is interrupted. A machine that is busy otherwise costs it none.
void start_watchdog();

}  // namespace cpu
