// One block of GPU threads on one host thread: its scheduler (block.cpp), fibers
// (block_fibers.cpp), shared memory (block_shared.cpp), events (block_events.cpp), what it does in
// a cluster (block_cluster.cpp), and what is said of it when it can't go on (block_diagnosis.cpp).
// For common/cpu/*.cpp only.
#pragma once

#include <csetjmp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/cpu/device.h"
#include "common/cpu/fault.h"

namespace cpu {

inline constexpr unsigned kMaxThreads = 1024;  // in a block, as on real devices
inline constexpr unsigned kSmallestWave = 32;

// In which order the blocks of a grid and the threads of a block run. A thread runs until it has to
// wait, at a barrier or in a wave operation; the order says which one is next. Right kernels do not
// care. The orders differ as much as they can:
//
// clang-format off
//   forward      first to last. Behind a barrier the waves take turns from one wave operation to the
//                next. The lane that completes a wave operation goes on at once.
//   reverse      last to first, blocks too; a wave operation lets its last lane go on first.
//   waves        the last wave first, as far as it gets: no thread of another one runs before all
//                its threads wait at the barrier or have ended. Its lanes run first to last.
//   random:SEED  any block next, any thread that can run next.
// clang-format on
struct Order {
  enum Kind { forward, reverse, waves, random } kind = forward;
  std::uint64_t seed = 0;
};
const Order& order();  // HIP_CPU_ORDER

// Random numbers that are the same everywhere (Steele, Lea, Flood 2014: SplitMix64).
class Random {
 public:
  explicit Random(std::uint64_t seed = 0) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  std::uint64_t below(std::uint64_t limit) { return next() % limit; }

 private:
  std::uint64_t state_;
};

// Where all blocks of a cooperative launch meet, each on its own host thread.
class GridBarrier;
// Blocks that take turns, each on its own host thread.
class Cluster;

// What common/cpu/events.h has: what threads can wait for beside the block's barrier.
struct Events;
struct EventNumber;
struct Caller;
struct Product;
struct TensorMap;

// Thrown into the threads of a block that can't go on, so that their stacks unwind.
struct BlockAborted {};

class BlockRunner {
 public:
  BlockRunner();
  ~BlockRunner();
  BlockRunner(const BlockRunner&) = delete;
  BlockRunner& operator=(const BlockRunner&) = delete;

  // Runs one block to its end. False if it was aborted; diagnosis() then says why, and is empty
  // where another block of its cluster was to blame.
  // `again`: it was interrupted once, and which thread that was is to be found out. Each GPU thread
  // has a fiber of its own then.
  bool run(const Launch& launch, const void* body, uint3 block, GridBarrier* grid, Cluster* cluster,
           bool again);

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
  // Has a thread of the block that runs, or ran last, called wait_for_launch_before()?
  bool has_waited_for_launch() const { return has_waited_for_launch_; }
  uint3 block() const { return position_.block; }

  sigjmp_buf fault_jump;          // where the fault handler jumps to
  Fault fault;                    // and what it found
  volatile bool running = false;  // inside a kernel
  // For the watchdog, which looks at them from its own thread.
  volatile std::uint64_t progress = 0;    // counts blocks
  volatile bool is_again = false;         // this block has used up its time once
  volatile std::uint64_t overdue = 0;     // set by the watchdog: the block that has to end,
  volatile bool passes_barriers = false;  // and whether its threads still reach barriers
  // A number that changes whenever threads wait and others go on.
  std::uint64_t switches() const {
    return std::uint64_t{phase_} << 32 | static_cast<const volatile unsigned&>(ready_tail_);
  }

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
  void wait_for_launch_before() { has_waited_for_launch_ = true; }
  void sanitized_jump(const Switch& next);

  // The same through those of events.h.
  Events& events();
  void init_phases(const Caller& caller, std::uint64_t* state, int arrivals);
  void publish_phases();
  void arrive_in_phase(const Caller& caller, std::uint64_t* state, unsigned bytes);
  Switch arrive_for_phase(const Caller& caller, std::uint64_t* state, unsigned parity);
  Switch arrive_at_number(const Caller& caller, int number, int threads, bool goes_on, bool vote,
                          bool* any);
  unsigned shared_address(const void* pointer) const;
  void begin_load(const Caller& caller, void* to, const TensorMap& map, const int* at,
                  std::uint64_t* state);
  void begin_store(const Caller& caller, const TensorMap& map, const int* at, const void* from);
  void begin_store(const Caller& caller, float* to, const float* from, unsigned bytes, bool adds);
  void wait_for_stores(const Caller& caller, bool complete);
  void begin_product(const Caller& caller, const Product& product, float* sums,
                     const unsigned* held);
  Switch arrive_for_products(const Caller& caller, unsigned late);
  unsigned block_of_cluster() const { return rank_; }
  Switch arrive_at_cluster(const Caller& caller);
  void arrive_in_phase_of(const Caller& caller, unsigned rank, const std::uint64_t* state);
  const void* find_in_block(const Caller& caller, unsigned rank, const void* here, unsigned bytes);
  void begin_load_for(const Caller& caller, unsigned blocks, void* to, const TensorMap& map,
                      const int* at, std::uint64_t* state);

  // What the cluster asks, while the block stands still.
  bool any_ready() const { return ready_head_ != ready_tail_; }
  bool has_units_at_work() const;
  bool has_waves_to_complete() const;
  bool waits_for_own_event() const;

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

  void order_threads();
  void work(unsigned self);
  void start_threads(unsigned self);
  Switch next_switch();
  void switch_to(unsigned fiber);
  void make_ready(unsigned fiber);
  // Is a thread that has waited next? Else one that has not started.
  bool resumes_one() { return any_ready() && (order_ != Order::random || !starts_one()); }
  bool starts_one();
  unsigned next_ready() { return ready_[ready_head_++ % kMaxThreads]; }
  [[gnu::noinline]] void open_barrier();
  void complete(Wave& wave, unsigned except_fiber);
  unsigned lanes(unsigned wave) const;

  static void enter_fiber(boost::context::detail::transfer_t from);
  [[gnu::noinline]] unsigned idle_fiber();
  unsigned new_fiber();
  void prepare(unsigned fiber);
  void free_fibers();

  void place_shared_memory();
  void poison_static_shared();

  [[gnu::noinline]] void diverged_at_barrier(unsigned thread, const Site& site);
  [[gnu::noinline, gnu::cold]] void resolve();
  [[gnu::noinline, gnu::cold]] void abort(const std::string& why);
  std::string name_of(unsigned thread) const;
  std::string name_of(const Site& site) const;

  Events& events_of(const Caller& caller);
  void report(const Caller& caller, const std::string& mistake);
  size_t find_phases(const Caller& caller, const std::uint64_t* state);
  size_t find_phases_of(const Caller& caller, BlockRunner& block, const std::uint64_t* state);
  void count_arrival(const Caller& caller, BlockRunner& block, size_t number, unsigned bytes);
  BlockRunner* find_block(const Caller& caller, unsigned rank);
  void load(const Caller& caller, BlockRunner& block, void* to, const TensorMap& map, const int* at,
            const std::uint64_t* state);
  void meet_cluster();
  std::string describe_cluster() const;
  std::string name_of_block(unsigned rank) const;
  void end_phase_if_complete(size_t number);
  Switch arrive(const Caller& caller, unsigned number, unsigned threads, bool goes_on, bool vote,
                bool* any);
  void open(EventNumber& barrier);
  bool lets_units_work();
  void end_products_of(size_t i);
  void end_load(size_t i);
  std::string describe_waiting() const;
  void release_all_from_events();
  void end_events();

  static constexpr unsigned kNoFiber = ~0u;
  // Shared addresses are places in the arena: 18 bits, as many as a descriptor of wgmma has.
  static constexpr size_t kSharedArena = 256 * 1024;

  const Launch* launch_ = nullptr;
  const void* body_ = nullptr;
  unsigned launch_number_ = 0;  // of the launch that is or was the last one here
  Position position_{};
  GridBarrier* grid_ = nullptr;
  Cluster* cluster_ = nullptr;
  unsigned rank_ = 0;  // in the cluster
  bool precise_ = false, aborting_ = false, has_waited_for_launch_ = false;
  const Order::Kind order_ = order().kind;
  Random random_;
  unsigned size_ = 0;      // threads in the block
  unsigned started_ = 0;   // how many of them have been started
  unsigned finished_ = 0;  // how many have returned
  unsigned current_ = 0;   // the fiber that runs

  std::vector<Fiber> fibers_;
  std::vector<unsigned> idle_;      // fibers without a thread
  std::vector<unsigned> sequence_;  // the order in which threads start, where each has a fiber
  // Threads that can go on, the next one first (a ring), and threads that wait at the barrier.
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
  std::unique_ptr<Events> events_;
  bool events_used_ = false;  // by this block
  char begin_sync_ = 0;       // what was before the block is before each of its threads
  char barrier_sync_[2];      // addresses that ThreadSanitizer ties the barrier's order to

  char* thread_locals_ = nullptr;  // this host thread's, static shared memory among them
  char* shared_arena_ = nullptr;   // dynamic shared memory ends at a guard page
  void* dynamic_shared_ = nullptr;
  std::string diagnosis_;
};

// The runner of this host thread.
BlockRunner& block_runner();
// Null where this host thread has never run a block: safe in a signal handler.
BlockRunner* current_block_runner();

}  // namespace cpu
