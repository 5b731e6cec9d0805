// Signals. A fault inside a kernel jumps back to the launch, which reports it and loses the device,
// as a GPU would; a fault in host code that touches device memory is explained before the process
// ends as it would have ended anyway.
#include "common/cpu/fault.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/cpu/block.h"
#include "common/cpu/internal.h"
#include "common/cpu/sanitizers.h"

namespace cpu {

namespace {

constexpr int kTimeoutSignal = SIGURG;  // ignored by default, so that nobody else is disturbed
constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, kTimeoutSignal};
constexpr size_t kSignalStackBytes = 64 * 1024;

struct sigaction previous_handler[65];

#if defined(__aarch64__)
// Whether an instruction that loads or stores does the latter, from its bits ("Loads and Stores" in
// the Arm Architecture Reference Manual, C4). Those of SVE, and all others, are unknown.
auto access_of(std::uint32_t instruction) {
  const auto bits = [&](unsigned low, unsigned count) {
    return instruction >> low & ((1u << count) - 1);
  };
  const bool is_vector = bits(26, 1) != 0, has_load_bit = bits(22, 1) != 0;
  if (bits(5, 27) == 0x6A85BA1) return Fault::write;                // DC ZVA: zeroes a block
  if (bits(27, 1) == 0 || bits(25, 1) != 0) return Fault::unknown;  // neither a load nor a store
  if (bits(28, 2) == 1 && bits(24, 1) == 0) return Fault::read;  // of a constant near the program
  if (bits(28, 2) == 3 && !is_vector) {
    const bool is_atomic = bits(24, 1) == 0 && bits(21, 1) == 1 && bits(10, 2) == 0;
    return is_atomic || bits(22, 2) == 0 ? Fault::write : Fault::read;  // an atomic does both
  }
  return has_load_bit ? Fault::read : Fault::write;
}
#endif

Fault fault_of(int signal, const siginfo_t* info, const void* context) {
  Fault fault;
  fault.signal = signal;
  fault.address = info->si_addr;
  if (signal != SIGSEGV) return fault;
  const auto is_near = [&](std::intptr_t stack) {
    return std::llabs(stack - reinterpret_cast<std::intptr_t>(fault.address)) < 65536;
  };
#if defined(__x86_64__) && defined(__linux__)
  // Bit 1 of the page fault's error code tells a write from a read.
  const auto& registers = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs;
  fault.access = (registers[REG_ERR] & 2) != 0 ? Fault::write : Fault::read;
  fault.near_stack = is_near(registers[REG_RSP]);
  fault.no_page = info->si_code == SI_KERNEL;  // without an address, or what was done there
  if (fault.no_page) fault.access = Fault::unknown;
#elif defined(__aarch64__) && defined(__linux__)
  const auto& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
  fault.near_stack = is_near(static_cast<std::intptr_t>(machine.sp));
  if (machine.pc != reinterpret_cast<std::uintptr_t>(fault.address)) {  // no jump to nowhere
    std::uint32_t instruction;
    std::memcpy(&instruction, reinterpret_cast<const void*>(machine.pc), sizeof instruction);
    fault.access = access_of(instruction);
  }
  // A user's addresses have 48 bits, or 52: no page can be at others.
  fault.no_page = reinterpret_cast<std::uintptr_t>(fault.address) >> 52 != 0;
#else
  static_cast<void>(context);
  static_cast<void>(is_near);
#endif
  return fault;
}

void explain_host_access(const Fault& fault) {
  const std::string place = describe_address(fault.address);
  if (place.empty()) return;
  const char* verb = fault.access == Fault::write ? "writes" : "reads";
  diagnose(std::string("host code ") + verb + " device memory, " + place +
           ": copy it with hipMemcpy");
}

void on_signal(int signal, siginfo_t* info, void* context) {
  BlockRunner* const runner = current_block_runner();
  const bool too_late = signal == kTimeoutSignal && runner != nullptr &&
                        runner->overdue != runner->progress;  // that block has ended
  if (runner != nullptr && runner->running && !too_late) {
    runner->fault = fault_of(signal, info, context);
    if (sanitizer::kThreads) {  // ThreadSanitizer can't follow a jump between fibers
      diagnose(describe_fault(*runner, runner->fault));
      _exit(1);
    }
    runner->leave_fiber();
    siglongjmp(runner->fault_jump, 1);
  }
  if (signal == kTimeoutSignal) return;
  explain_host_access(fault_of(signal, info, context));
  const struct sigaction& previous = previous_handler[signal];
  if ((previous.sa_flags & SA_SIGINFO) != 0 && previous.sa_sigaction != nullptr)
    return previous.sa_sigaction(signal, info, context);
  if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN)
    return previous.sa_handler(signal);
  ::signal(signal, SIG_DFL);  // the faulting instruction runs again and ends the process
}

// HIP_CPU_TIMEOUT, in seconds; 0: for ever.
double time_limit() {
  static const double limit = [] {
    const char* text = std::getenv("HIP_CPU_TIMEOUT");
    if (text == nullptr) return 120.0;
    char* end = nullptr;
    const double seconds = std::strtod(text, &end);
    if (end != text && *end == '\0' && seconds >= 0 && seconds < 1e9) return seconds;
    std::fprintf(stderr, "HIP_CPU_TIMEOUT=%s: it takes a number of seconds, or 0 for no limit\n",
                 text);
    std::exit(2);
  }();
  return limit;
}

}  // namespace

bool is_timeout(const Fault& fault) { return fault.signal == kTimeoutSignal; }

void watch_for_faults() {
  struct sigaction now;
  sigaction(SIGSEGV, nullptr, &now);
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == &on_signal) return;
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  struct sigaction ours = {};
  ours.sa_sigaction = &on_signal;
  // NODEFER: the handler is left by a jump, after which the next fault must come through again.
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigemptyset(&ours.sa_mask);
  for (const int signal : kSignals) {
    struct sigaction previous;
    sigaction(signal, &ours, &previous);
    if (previous.sa_sigaction != &on_signal) previous_handler[signal] = previous;
  }
}

void use_signal_stack() {
  struct Stack {
    void* memory = mmap(nullptr, kSignalStackBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ~Stack() {
      stack_t off = {};
      off.ss_flags = SS_DISABLE;
      sigaltstack(&off, nullptr);
      munmap(memory, kSignalStackBytes);
    }
  };
  thread_local Stack own;
  stack_t now = {};
  if (sigaltstack(nullptr, &now) == 0 && (now.ss_flags & SS_DISABLE) == 0) return;
  stack_t stack = {};
  stack.ss_sp = own.memory;
  stack.ss_size = kSignalStackBytes;
  sigaltstack(&stack, nullptr);
}

std::string describe_fault(const BlockRunner& runner, const Fault& fault) {
  const std::string who = runner.where() + ": ";
  if (is_timeout(fault)) {
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%g s", time_limit());
    return who + "still running after " + seconds +
           (runner.passes_barriers ? ", through one barrier after another"
                                   : " without reaching a barrier or its end") +
           ": an endless loop?";
  }
  if (fault.signal == SIGFPE) return who + "integer division by zero";
  const char* verb = fault.access == Fault::write  ? "writes "
                     : fault.access == Fault::read ? "reads "
                                                   : "accesses ";
  if (fault.no_page)
    return who + "uses a pointer that is not aligned as its type asks, or that was never set";
  if (fault.address == nullptr) return who + verb + "through a null pointer";
  if (fault.near_stack || runner.is_stack_guard(fault.address))
    return who + "needs more stack than a thread has (256 KiB where it waits at a barrier)";
  if (runner.is_shared_guard(fault.address))
    return who + verb + "outside the launch's dynamic shared memory";
  std::string why;
  if (!is_reachable(fault.address, &why)) return who + verb + why;
  const std::string place = describe_address(fault.address);
  if (!place.empty()) return who + verb + place;
  char text[64];
  std::snprintf(text, sizeof text, "address %p, where no buffer is", fault.address);
  return who + verb + text;
}

// ---- The watchdog -----------------------------------------------------------------------------

namespace {

struct Watched {
  BlockRunner* runner;
  pthread_t thread;
  // The block that it runs, and the thread's own time when that block and its last switch from one
  // GPU thread to another were first seen.
  std::uint64_t progress = 0, switches = 0;
  double began = 0, switched = 0;
};
std::mutex watch_mutex;
// Never destroyed: the watchdog's thread looks into it until the process is gone.
std::vector<Watched>& watched = *new std::vector<Watched>;

// Seconds that a thread has had a processor.
double processor_time(pthread_t thread) {
  clockid_t clock;
  timespec time = {};
  if (pthread_getcpuclockid(thread, &clock) == 0) clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void look_at(Watched& w, double limit) {
  BlockRunner& runner = *w.runner;
  const double now = processor_time(w.thread);
  const std::uint64_t progress = runner.progress, switches = runner.switches();
  const bool is_new = !runner.running || progress != w.progress;
  if (is_new) w.progress = progress, w.began = now;
  if (is_new || switches != w.switches) w.switches = switches, w.switched = now;
  // Which thread it is shows soon when the block is run again.
  const double allowed = runner.is_again ? limit / 4 : limit;
  if (now - w.began < allowed) return;
  runner.passes_barriers = now - w.switched < allowed / 2;
  runner.overdue = progress;
  w.began = now;
  pthread_kill(w.thread, kTimeoutSignal);
}

void watch(double limit) {
  const std::chrono::duration<double> tick(std::min(0.25, limit / 16));
  for (;;) {
    std::this_thread::sleep_for(tick);
    const std::lock_guard<std::mutex> lock(watch_mutex);
    for (Watched& w : watched) look_at(w, limit);
  }
}

}  // namespace

void add_to_watchdog(BlockRunner* runner) {
  const std::lock_guard<std::mutex> lock(watch_mutex);
  watched.push_back({runner, pthread_self()});
}

void remove_from_watchdog(BlockRunner* runner) {
  const std::lock_guard<std::mutex> lock(watch_mutex);
  watched.erase(std::remove_if(watched.begin(), watched.end(),
                               [&](const Watched& w) { return w.runner == runner; }),
                watched.end());
}

void start_watchdog() {
  static const bool started = [] {
    const double limit = time_limit();
    if (limit > 0 && !sanitizer::kThreads) std::thread(watch, limit).detach();
    return true;
  }();
  static_cast<void>(started);
}

}  // namespace cpu
