// The scheduler of one block: which GPU thread runs next, on which stack.
//
// Every GPU thread is in one of four states: not started, able to run, waiting (at the block's
// barrier, in a wave operation or for an event), finished. The scheduler always prefers a thread
// that is able to run, then starts new ones. Where neither is left and threads still wait, the
// kernel is stuck: either lanes of a wave have left, which the waiting ones may ignore, or the
// kernel is wrong and is told so.
//
// This file is compiled without ThreadSanitizer's instrumentation: its own data is shared by all
// fibers on purpose. What the kernels do is ordered for it by release and acquire, below.
#include "common/cpu/block.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "common/cpu/block_events.h"
#include "common/cpu/cluster.h"
#include "common/cpu/grid_barrier.h"
#include "common/cpu/guard_pages.h"
#include "common/cpu/internal.h"
#include "common/cpu/sanitizers.h"

namespace cpu {

__thread bool block_aborted = false;

namespace {

thread_local BlockRunner* runner = nullptr;

}  // namespace

BlockRunner& block_runner() {
  thread_local BlockRunner own;
  runner = &own;
  return own;
}

BlockRunner* current_block_runner() { return runner; }

BlockRunner::BlockRunner()
    : fibers_(1),
      waves_(kMaxThreads / kSmallestWave),
      wave_shift_(static_cast<unsigned>(__builtin_ctz(static_cast<unsigned>(device().wave)))),
      shared_arena_(map_with_guards(kSharedArena)) {
  fibers_.reserve(kMaxThreads + 1);
  fibers_[0].sanitizer = sanitizer::current_fiber();
  add_to_watchdog(this);
}

BlockRunner::~BlockRunner() {
  remove_from_watchdog(this);
  free_fibers();
  unmap_with_guards(shared_arena_, kSharedArena);
  runner = nullptr;
}

bool BlockRunner::run(const Launch& launch, const void* body, uint3 block, GridBarrier* grid,
                      Cluster* cluster, bool again) {
  launch_ = &launch, body_ = body, grid_ = grid, cluster_ = cluster;
  rank_ = cluster != nullptr ? block.x % cluster->blocks() : 0;
  launch_number_ = launch_number;
  position_ = {block,
               {launch.block.x, launch.block.y, launch.block.z},
               {launch.grid.x, launch.grid.y, launch.grid.z}};
  size_ = launch.block.x * launch.block.y * launch.block.z;
  started_ = finished_ = current_ = 0;
  ready_head_ = ready_tail_ = barrier_count_ = 0;
  phase_ = votes_[0] = votes_[1] = 0;
  precise_ = again || grid != nullptr || cluster != nullptr || sanitizer::kThreads ||
             order_ != Order::forward;
  is_again = again;
  if (waves_used_) {
    for (Wave& wave : waves_) wave.arrived = 0, wave.waiting = wave.votes[0] = wave.votes[1] = 0;
    waves_used_ = false;
  }
  events_used_ = has_waited_for_launch_ = false;
  place_shared_memory();
  if (precise_) {
    order_threads();
    // ThreadSanitizer orders a fiber behind its creator: all must come from the host's own stack.
    if (sanitizer::kThreads)
      while (fibers_.size() <= size_) idle_.push_back(new_fiber());
  }
  aborting_ = block_aborted = false;
  diagnosis_.clear();
  if (cluster != nullptr && !cluster->begin(rank_, *this)) return false;
  progress = progress + 1;
  running = true;
  sanitizer::release(&begin_sync_);
  work(0);
  running = false;
  if (events_used_ && !aborting_) end_events();
  const bool ok = !aborting_;
  aborting_ = block_aborted = false;
  return ok;
}

// The threads in the order in which they start. A random one is drawn when it is needed.
void BlockRunner::order_threads() {
  sequence_.resize(size_);
  std::iota(sequence_.begin(), sequence_.end(), 0u);
  const uint3 b = position_.block;
  random_ = Random(order().seed ^ Random(b.x + 65536ull * b.y + 1048576ull * b.z).next());
  if (order_ == Order::reverse || order_ == Order::waves)
    std::reverse(sequence_.begin(), sequence_.end());
  if (order_ != Order::waves) return;
  for (auto begin = sequence_.begin(); begin != sequence_.end();) {
    const auto end = begin + lanes(*begin >> wave_shift_);
    std::reverse(begin, end);
    begin = end;
  }
}

// The life of a fiber: hand over to threads that can run, else start new ones. Under
// ThreadSanitizer a fiber stands for one GPU thread only, and the host's own stack for none.
void BlockRunner::work(unsigned self) {
  bool used = sanitizer::kThreads && self == 0;
  const auto park = [&] {
    if (self != 0 && !sanitizer::kThreads) idle_.push_back(self);
  };
  for (;;) {
    if (resumes_one()) {
      park();
      switch_to(next_ready());
    } else if (started_ < size_ && !used) {
      start_threads(self);
      used = sanitizer::kThreads;
    } else if (started_ < size_) {
      switch_to(idle_fiber());
    } else if (finished_ < size_) {
      resolve();
    } else if (self != 0) {
      park();
      switch_to(0);
    } else {
      return;
    }
  }
}

void BlockRunner::start_threads(unsigned self) {
  if (order_ == Order::random)
    std::swap(sequence_[started_], sequence_[started_ + random_.below(size_ - started_)]);
  const unsigned first = precise_ ? sequence_[started_++] : started_;
  const unsigned last = precise_ ? first + 1 : size_;
  fibers_[self].thread = first;
  fibers_[self].site = nullptr;
  if (sanitizer::kThreads) sanitizer::name_fiber(fibers_[self].sanitizer, name_of(first).c_str());
  sanitizer::acquire(&begin_sync_);
  try {
    const Range range = launch_->run(body_, position_, first, last);
    finished_ += range.finished;
    if (!precise_ && !range.detached) started_ = size_;
  } catch (const BlockAborted&) {
    finished_ += fibers_[self].thread - first + 1;
  }
  fibers_[self].site = nullptr;
  sanitizer::release(&launch_sync);
}

// In random order the ring is one of all permutations at any time, each as likely as the others. In
// the order `waves` the lanes of a wave go on before any other thread.
void BlockRunner::make_ready(unsigned fiber) {
  if (order_ == Order::waves) {
    ready_[--ready_head_ % kMaxThreads] = fiber;
    return;
  }
  ready_[ready_tail_++ % kMaxThreads] = fiber;
  if (order_ != Order::random) return;
  const unsigned place = static_cast<unsigned>(random_.below(ready_tail_ - ready_head_));
  std::swap(ready_[(ready_head_ + place) % kMaxThreads], ready_[(ready_tail_ - 1) % kMaxThreads]);
}

// In random order: every thread that can run is as likely to be next.
bool BlockRunner::starts_one() {
  const unsigned ready = ready_tail_ - ready_head_;
  return random_.below(ready + size_ - started_) >= ready;
}

// Called by a thread that has just arrived somewhere: who goes on?
Switch BlockRunner::next_switch() {
  const unsigned self = current_;
  if (!any_ready() && started_ == size_) resolve();
  const unsigned next = resumes_one() ? next_ready() : idle_fiber();
  if (next == self) {
    fibers_[self].site = nullptr;
    sanitizer::acquire(fibers_[self].sync);
    return {nullptr, nullptr};
  }
  current_ = next;
  return {fibers_[next].context, &fibers_[self].context};
}

void BlockRunner::switch_to(unsigned fiber) {
  const unsigned self = current_;
  current_ = fiber;
  jump({fibers_[fiber].context, &fibers_[self].context});
}

// ---- Barriers ---------------------------------------------------------------------------------

Switch BlockRunner::arrive_at_barrier(unsigned thread, const Site& site, bool vote, bool whole_grid,
                                      unsigned* phase) {
  Fiber& fiber = fibers_[current_];
  fiber.thread = thread;
  fiber.site = &site;
  if (!precise_ && thread >= started_) started_ = thread + 1;
  *phase = phase_;
  votes_[phase_ & 1] += vote;
  if (sanitizer::kThreads) {
    fiber.sync = &barrier_sync_[phase_ & 1];
    sanitizer::release(fiber.sync);
  }
  if (barrier_count_ == 0) {
    barrier_site_ = &site;
    barrier_of_grid_ = whole_grid;
  }
  at_barrier_[barrier_count_++] = current_;
  if (site.line != barrier_site_->line || whole_grid != barrier_of_grid_)
    diverged_at_barrier(thread, site);
  else if (barrier_count_ == size_)
    open_barrier();
  return next_switch();
}

void BlockRunner::open_barrier() {
  if (barrier_of_grid_) {
    if (grid_ == nullptr) return abort("grid_sync() needs a cooperative launch");
    void* const sync = &barrier_sync_[phase_ & 1];
    sanitizer::acquire(sync);  // this thread meets the other blocks on behalf of all of its own
    if (!grid_->wait())
      return abort("waits at " + name_of(*barrier_site_) +
                   " for a block that has already returned");
    sanitizer::release(sync);
  }
  std::swap(ready_, at_barrier_);
  ready_head_ = 0, ready_tail_ = size_, barrier_count_ = 0;
  votes_[++phase_ & 1] = 0;
  if (order_ == Order::random)
    for (unsigned i = 1; i < size_; ++i) std::swap(ready_[i], ready_[random_.below(i + 1)]);
}

// ---- Wave operations --------------------------------------------------------------------------

unsigned BlockRunner::lanes(unsigned wave) const {
  return std::min(1u << wave_shift_, size_ - (wave << wave_shift_));
}

Switch BlockRunner::arrive_in_wave(unsigned thread, const Site& site, std::uint64_t value,
                                   bool vote, Exchange* exchange) {
  waves_used_ = true;
  const unsigned number = thread >> wave_shift_;
  Wave& wave = waves_[number];
  const unsigned lane = thread - (number << wave_shift_), phase = wave.phase & 1;
  Fiber& fiber = fibers_[current_];
  fiber.thread = thread;
  fiber.site = &site;
  fiber.sync = &wave.value[phase];
  sanitizer::release(fiber.sync);
  if (!precise_ && thread >= started_) started_ = thread + 1;
  *exchange = {number, wave.phase};
  if (wave.arrived == 0) wave.site = &site;
  wave.value[phase][lane] = value;
  wave.fiber[lane] = current_;
  wave.waiting |= WaveMask64{1} << lane;
  if (vote) wave.votes[phase] |= WaveMask64{1} << lane;
  ++wave.arrived;
  if (site.line != wave.site->line) {
    const unsigned first =
        static_cast<unsigned>(__builtin_ctzll(wave.waiting & ~(WaveMask64{1} << lane)));
    abort(name_of(thread - lane + first) + " waits at " + name_of(*wave.site) + " while " +
          name_of(thread) + " waits at " + name_of(site) +
          ": all lanes of a wave must reach the same wave operation");
    return next_switch();
  }
  if (wave.arrived < lanes(number)) return next_switch();
  if (order_ != Order::forward) {
    complete(wave, kNoFiber);
    return next_switch();
  }
  complete(wave, current_);
  fiber.site = nullptr;
  sanitizer::acquire(fiber.sync);
  return {nullptr, nullptr};
}

// Lets the waiting lanes go on, in order; the lane on `except_fiber` is running already.
void BlockRunner::complete(Wave& wave, unsigned except_fiber) {
  wave.participants[wave.phase & 1] = wave.waiting;
  const bool last_first = order_ == Order::reverse || order_ == Order::waves;
  for (WaveMask64 rest = wave.waiting; rest != 0;) {
    const int lane = last_first ? 63 - __builtin_clzll(rest) : __builtin_ctzll(rest);
    rest ^= WaveMask64{1} << lane;
    if (wave.fiber[lane] != except_fiber) make_ready(wave.fiber[lane]);
  }
  wave.arrived = 0;
  wave.waiting = 0;
  wave.votes[++wave.phase & 1] = 0;
}

std::uint64_t BlockRunner::read_lane(const Exchange& exchange, int lane) const {
  const Wave& wave = waves_[exchange.wave];
  const unsigned phase = exchange.phase & 1;
  return wave.participants[phase] >> lane & 1 ? wave.value[phase][lane] : ~std::uint64_t{0};
}
WaveMask64 BlockRunner::read_votes(const Exchange& exchange) const {
  return waves_[exchange.wave].votes[exchange.phase & 1];
}
WaveMask64 BlockRunner::read_participants(const Exchange& exchange) const {
  return waves_[exchange.wave].participants[exchange.phase & 1];
}

// ---- What kernels call ------------------------------------------------------------------------

Switch arrive_at_barrier(unsigned thread, const Site& site, bool vote, bool whole_grid,
                         unsigned* phase) {
  return runner->arrive_at_barrier(thread, site, vote, whole_grid, phase);
}
Switch arrive_in_wave(unsigned thread, const Site& site, std::uint64_t value, bool vote,
                      Exchange* exchange) {
  return runner->arrive_in_wave(thread, site, value, vote, exchange);
}
unsigned count_votes(unsigned phase) { return runner->count_votes(phase); }
std::uint64_t read_lane(const Exchange& exchange, int lane) {
  return runner->read_lane(exchange, lane);
}
WaveMask64 read_votes(const Exchange& exchange) { return runner->read_votes(exchange); }
WaveMask64 read_participants(const Exchange& exchange) {
  return runner->read_participants(exchange);
}
void* dynamic_shared() { return runner->dynamic_shared(); }
void wait_for_launch_before() { runner->wait_for_launch_before(); }
#if defined(CPU_SANITIZED_FIBERS)
void jump(const Switch& next) { runner->sanitized_jump(next); }
#endif
void throw_aborted() { throw BlockAborted{}; }

}  // namespace cpu
