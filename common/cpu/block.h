// One block of GPU threads on one host thread. For common/cpu/*.cpp only.
#pragma once

#include <csetjmp>
#include <cstdint>
#include <string>
#include <vector>

#include "common/cpu/device.h"
#include "common/cpu/fault.h"

namespace cpu {

inline constexpr unsigned kMaxThreads = 1024;  // in a block, as on real devices
inline constexpr unsigned kSmallestWave = 32;

// In which order the threads of a block run between two barriers. Right kernels do not care.
struct Order {
  enum Kind { forward, reverse, random } kind = forward;
  std::uint64_t seed = 0;
};
const Order& order();  // HIP_CPU_ORDER=forward|reverse|random:SEED

// Where all blocks of a cooperative launch meet, each on its own host thread.
class GridBarrier;

// Thrown into the threads of a block that can't go on, so that their stacks unwind.
struct BlockAborted {};

class BlockRunner {
 public:
  BlockRunner();
  ~BlockRunner();
  BlockRunner(const BlockRunner&) = delete;
  BlockRunner& operator=(const BlockRunner&) = delete;

  // Runs one block to its end. False if it was aborted; diagnosis() then says why.
  // `precise` gives each GPU thread a fiber of its own, so that current_thread() is always right.
  bool run(const Launch& launch, const void* body, uint3 block, GridBarrier* grid, bool precise);

  const std::string& diagnosis() const { return diagnosis_; }
  // "kernel scale, block (3,0,0), thread (17,0,0)" for what runs now.
  std::string where() const;
  // After a fault: the fibers that were running are given up, their stacks can be used again.
  void abandon_fibers();
  // The guard page below a fiber's stack that holds `address`?
  bool is_stack_guard(const void* address) const;
  bool is_shared_guard(const void* address) const;
  // In the fault handler, before it jumps: back to the host's own stack.
  void leave_fiber();
  bool precise() const { return precise_; }
  uint3 block() const { return position_.block; }

  sigjmp_buf fault_jump;                // where the fault handler jumps to
  Fault fault;                          // and what it found
  volatile bool running = false;        // inside a kernel
  volatile std::uint64_t progress = 0;  // counts blocks, for the watchdog

  // What kernels call, through the free functions of device.h.
  Switch arrive_at_barrier(unsigned thread, const Site& site, bool vote, bool whole_grid,
                           unsigned* phase);
  Switch arrive_in_wave(unsigned thread, const Site& site, std::uint64_t value, bool vote,
                        Exchange* exchange);
  unsigned count_votes(unsigned phase) const { return votes_[phase & 1]; }
  std::uint64_t read_lane(const Exchange& exchange, int lane) const;
  WaveMask64 read_votes(const Exchange& exchange) const;
  WaveMask64 read_participants(const Exchange& exchange) const;
  void* dynamic_shared() const { return dynamic_shared_; }
  void sanitized_jump(const Switch& next);

 private:
  // A stack, and what the GPU thread on it waits for. Fiber 0 is the host thread's own stack.
  struct alignas(64) Fiber {
    Context context = nullptr;
    char* stack = nullptr;  // its lowest usable byte
    size_t stack_bytes = 0;
    unsigned thread = 0;         // the GPU thread that runs or waits on it
    const Site* site = nullptr;  // where that thread waits, in its own frame; null: it runs
    void* sanitizer = nullptr;   // ThreadSanitizer's fiber
    void* sync = nullptr;        // what ThreadSanitizer acquires when the thread goes on
  };
  // A wave's exchange in progress. Two phases alternate: a lane can deposit for the next exchange
  // while others have still to read from this one, but never for the one after.
  struct Wave {
    unsigned arrived = 0, phase = 0;
    WaveMask64 waiting = 0;  // lanes that have arrived
    WaveMask64 votes[2] = {0, 0}, participants[2] = {0, 0};
    const Site* site = nullptr;
    std::uint64_t value[2][64];
    unsigned fiber[64];
  };

  static void enter_fiber(boost::context::detail::transfer_t from);
  void work(unsigned self);
  void start_threads(unsigned self);
  [[gnu::noinline]] unsigned idle_fiber();
  unsigned new_fiber();
  void prepare(unsigned fiber);
  Switch next_switch();
  void switch_to(unsigned fiber);
  void make_ready(unsigned fiber) { ready_[ready_tail_++ % kMaxThreads] = fiber; }
  bool any_ready() const { return ready_head_ != ready_tail_; }
  unsigned next_ready() { return ready_[ready_head_++ % kMaxThreads]; }
  [[gnu::noinline]] void open_barrier();
  [[gnu::noinline]] void diverged_at_barrier(unsigned thread, const Site& site);
  void complete(Wave& wave, unsigned except_fiber);
  unsigned lanes(unsigned wave) const;
  [[gnu::noinline, gnu::cold]] void resolve();
  [[gnu::noinline, gnu::cold]] void abort(const std::string& why);
  std::string name_of(unsigned thread) const;
  std::string name_of(const Site& site) const;

  const Launch* launch_ = nullptr;
  const void* body_ = nullptr;
  Position position_{};
  GridBarrier* grid_ = nullptr;
  bool precise_ = false, aborting_ = false;
  unsigned size_ = 0;      // threads in the block
  unsigned started_ = 0;   // how many of them have been started
  unsigned finished_ = 0;  // how many have returned
  unsigned current_ = 0;   // the fiber that runs

  std::vector<Fiber> fibers_;
  std::vector<unsigned> idle_;  // fibers without a thread
  std::vector<unsigned>
      sequence_;  // the order in which threads start, where it is not 0, 1, 2, ...
  // Threads that can go on, first come first served (a ring), and threads that wait at the barrier.
  unsigned ring_[2][kMaxThreads] = {};
  unsigned* ready_ = ring_[0];
  unsigned* at_barrier_ = ring_[1];
  unsigned ready_head_ = 0, ready_tail_ = 0, barrier_count_ = 0;
  const Site* barrier_site_ = nullptr;
  bool barrier_of_grid_ = false;
  unsigned phase_ = 0;
  unsigned votes_[2] = {0, 0};
  std::vector<Wave> waves_;
  unsigned wave_shift_;  // thread >> wave_shift_ is the number of its wave
  bool waves_used_ = false;
  char begin_sync_ = 0;   // what was before the block is before each of its threads
  char barrier_sync_[2];  // addresses that ThreadSanitizer ties the barrier's order to

  char* shared_arena_ = nullptr;  // dynamic shared memory ends at a guard page
  void* dynamic_shared_ = nullptr;
  std::string diagnosis_;
};

// The runner of this host thread.
BlockRunner& block_runner();
// Null where this host thread has never run a block: safe in a signal handler.
BlockRunner* current_block_runner();

}  // namespace cpu
