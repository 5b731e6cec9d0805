// The scheduler of one block: which GPU thread runs next, on which stack.
//
// Every GPU thread is in one of four states: not started, able to run, waiting (at the block's
// barrier or in a wave operation), finished. The scheduler always prefers a thread that is able to
// run, then starts new ones. Where neither is left and threads still wait, the kernel is stuck:
// either lanes of a wave have left, which the waiting ones may ignore, or the kernel is wrong and
// is told so.
//
// This file is compiled without ThreadSanitizer's instrumentation: its own data is shared by all
// fibers on purpose. What the kernels do is ordered for it by release and acquire, below.
#include "common/cpu/block.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <numeric>
#include <thread>

#include "common/cpu/grid_barrier.h"
#include "common/cpu/internal.h"
#include "common/cpu/sanitizers.h"
#include "common/cpu/static_shared.h"

namespace cpu {

__thread bool block_aborted = false;

namespace {

thread_local BlockRunner* runner = nullptr;
thread_local unsigned last_launch = 0;  // its number

constexpr size_t kPage = 4096;
constexpr size_t kStackBytes = 256 * 1024;
constexpr size_t kSharedArena = 64 * 1024;
constexpr unsigned kNoFiber = ~0u;

// What nobody has written reads as NaN in every type, but not as what fills new buffers: a result
// that was computed from it is not taken for one that was never written.
constexpr unsigned char kPoison[] = {0xFF, 0xFF, 0xFF, 0x7F};

char* map_with_guards(size_t bytes) {
  void* memory = mmap(nullptr, bytes + 2 * kPage, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    std::fprintf(stderr, "cpu backend: no memory for the stacks of a block\n");
    std::exit(1);
  }
  char* begin = static_cast<char*>(memory);
  mprotect(begin, kPage, PROT_NONE);
  mprotect(begin + kPage + bytes, kPage, PROT_NONE);
  return begin + kPage;
}

void unmap_with_guards(char* memory, size_t bytes) { munmap(memory - kPage, bytes + 2 * kPage); }

void poison(void* memory, size_t bytes) {
  char* begin = static_cast<char*>(memory);
  size_t at = 0;
  for (; at + sizeof(kPoison) <= bytes; at += sizeof(kPoison))
    std::memcpy(begin + at, kPoison, sizeof(kPoison));
  std::memcpy(begin + at, kPoison, bytes - at);
}

bool is_poisoned(const char* begin, size_t bytes) {
  const size_t first = std::min(bytes, sizeof(kPoison));
  return std::memcmp(begin, kPoison, first) == 0 &&
         std::memcmp(begin, begin + first, bytes - first) == 0;
}

// Is each of these bytes poison? Of many of them, is each of some? Whoever writes an array writes
// more than single words of it, and nearly always its first one.
bool looks_poisoned(const char* begin, size_t bytes) {
  constexpr size_t kFew = 1024, kSamples = 8, kWord = 8;
  if (bytes <= kFew) return bytes == 0 || is_poisoned(begin, bytes);
  for (size_t i = 0; i < kSamples; ++i)
    if (!is_poisoned(begin + (bytes - kWord) * i / (kSamples - 1) / kWord * kWord, kWord))
      return false;
  return true;
}

// ThreadSanitizer gives each block of a launch fibers of its own, and to make one takes it half a
// millisecond. What the launches before have done is ordered before a launch, so their fibers,
// which lie here, can be used again.
struct KeptFiber {
  char* stack;
  void* sanitizer;
  unsigned launch;  // in which it was used last
};
constexpr size_t kMostKept = 4096;  // ThreadSanitizer knows 8128 threads
KeptFiber kept_fibers[kMostKept];   // those of the oldest launches first, in a ring
size_t kept_first = 0, kept_count = 0;
std::atomic_flag kept_busy = ATOMIC_FLAG_INIT;  // a mutex would order one block behind another

template <class Action>
void with_kept(Action&& action) {
  while (kept_busy.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
  action();
  kept_busy.clear(std::memory_order_release);
}

// A fiber that no block of this launch has used; without a stack where there is none.
KeptFiber take_fiber(unsigned launch) {
  KeptFiber found{};
  with_kept([&] {
    if (kept_count == 0 || kept_fibers[kept_first].launch == launch) return;
    found = kept_fibers[kept_first];
    kept_first = (kept_first + 1) % kMostKept, --kept_count;
  });
  return found;
}

bool keep_fiber(const KeptFiber& fiber) {
  bool kept = false;
  with_kept([&] {
    if (kept_count == kMostKept) return;
    kept_fibers[(kept_first + kept_count++) % kMostKept] = fiber;
    kept = true;
  });
  return kept;
}

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
  for (Fiber& fiber : fibers_) {
    if (fiber.stack == nullptr || &fiber == &fibers_[0]) continue;
    if (sanitizer::kThreads && keep_fiber({fiber.stack, fiber.sanitizer, last_launch})) continue;
    sanitizer::destroy_fiber(fiber.sanitizer);
    // A fiber's last switch leaves its lowest frame marked; the address may become anything next.
    sanitizer::forget_frames(fiber.stack, kStackBytes);
    unmap_with_guards(fiber.stack, kStackBytes);
  }
  unmap_with_guards(shared_arena_, kSharedArena);
  runner = nullptr;
}

bool BlockRunner::run(const Launch& launch, const void* body, uint3 block, GridBarrier* grid,
                      bool again) {
  launch_ = &launch, body_ = body, grid_ = grid;
  last_launch = launch_number;
  position_ = {block,
               {launch.block.x, launch.block.y, launch.block.z},
               {launch.grid.x, launch.grid.y, launch.grid.z}};
  size_ = launch.block.x * launch.block.y * launch.block.z;
  started_ = finished_ = current_ = 0;
  ready_head_ = ready_tail_ = barrier_count_ = 0;
  phase_ = votes_[0] = votes_[1] = 0;
  precise_ = again || grid != nullptr || sanitizer::kThreads || order_ != Order::forward;
  is_again = again;
  if (waves_used_) {
    for (Wave& wave : waves_) wave.arrived = 0, wave.waiting = wave.votes[0] = wave.votes[1] = 0;
    waves_used_ = false;
  }
  if (device().poison) poison_static_shared();
  if (launch.shared_bytes > 0) {
    const size_t bytes = (launch.shared_bytes + 15) / 16 * 16;
    const bool at_begin = device().guard == Device::Guard::begin;
    dynamic_shared_ = shared_arena_ + (at_begin ? 0 : kSharedArena - bytes);
    poison(dynamic_shared_, bytes);
  } else {
    dynamic_shared_ = shared_arena_ + kSharedArena;  // the guard page
  }
  if (precise_) {
    order_threads();
    // ThreadSanitizer orders a fiber behind its creator: all must come from the host's own stack.
    if (sanitizer::kThreads)
      while (fibers_.size() <= size_) idle_.push_back(new_fiber());
  }
  aborting_ = block_aborted = false;
  progress = progress + 1;
  running = true;
  sanitizer::release(&begin_sync_);
  work(0);
  running = false;
  const bool ok = !aborting_;
  aborting_ = block_aborted = false;
  return ok;
}

// A program may have a megabyte of shared variables, of which a kernel uses few; the others still
// are poison.
void BlockRunner::poison_static_shared() {
  if (thread_locals_ == nullptr) thread_locals_ = thread_local_variables();
  for (const SharedVariable& variable : shared_variables()) {
    char* begin = thread_locals_ + variable.offset;
    if (!looks_poisoned(begin, variable.bytes)) poison(begin, variable.bytes);
  }
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

void BlockRunner::enter_fiber(boost::context::detail::transfer_t from) {
  *static_cast<Context*>(from.data) = from.fctx;
  BlockRunner& self = *runner;
  const void* stack = nullptr;
  size_t bytes = 0;
  sanitizer::finish_switch(nullptr, &stack, &bytes);
  Fiber& host = self.fibers_[0];  // the first fiber is always entered from the host's own stack
  if (host.stack == nullptr)
    host.stack = static_cast<char*>(const_cast<void*>(stack)), host.stack_bytes = bytes;
  self.work(self.current_);
}

unsigned BlockRunner::idle_fiber() {
  if (idle_.empty()) return new_fiber();
  const unsigned fiber = idle_.back();
  idle_.pop_back();
  return fiber;
}

unsigned BlockRunner::new_fiber() {
  const unsigned index = static_cast<unsigned>(fibers_.size());
  Fiber fiber;
  if (sanitizer::kThreads) {
    const KeptFiber kept = take_fiber(last_launch);
    fiber.stack = kept.stack, fiber.sanitizer = kept.sanitizer;
  }
  if (fiber.stack == nullptr) {
    fiber.stack = map_with_guards(kStackBytes);
    fiber.sanitizer = sanitizer::create_fiber();
  }
  fiber.stack_bytes = kStackBytes;
  fibers_.push_back(fiber);
  prepare(index);
  return index;
}

// Stacks begin at page boundaries: without a stagger the frames of all threads would compete for
// the same few sets of the first-level cache.
void BlockRunner::prepare(unsigned fiber) {
  const size_t bytes = kStackBytes - fiber % 16 * 256;
  fibers_[fiber].context =
      boost::context::detail::make_fcontext(fibers_[fiber].stack + bytes, bytes, &enter_fiber);
}

void BlockRunner::leave_fiber() {
  if (current_ == 0) return;
  const Fiber& host = fibers_[0];
  sanitizer::start_switch(nullptr, host.stack, host.stack_bytes, host.sanitizer);
}

void BlockRunner::abandon_fibers() {
  if (current_ != 0) sanitizer::finish_switch(nullptr, nullptr, nullptr);
  idle_.clear();
  for (unsigned f = static_cast<unsigned>(fibers_.size()); f-- > 1;) {
    sanitizer::forget_frames(fibers_[f].stack, kStackBytes);
    prepare(f);
    idle_.push_back(f);
  }
  current_ = 0;
  running = false;
  waves_used_ = true;  // half-done exchanges are cleared when the next block starts
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

void BlockRunner::diverged_at_barrier(unsigned thread, const Site& site) {
  const unsigned other = fibers_[at_barrier_[0]].thread;
  abort(name_of(other) + " waits at " + name_of(*barrier_site_) + " while " + name_of(thread) +
        " waits at " + name_of(site) + ": all threads of a block must reach the same barrier");
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

// ---- Stuck ------------------------------------------------------------------------------------

// Nothing can run and no thread is left to start, but not all have finished.
void BlockRunner::resolve() {
  std::vector<bool> waits(size_, false);
  for (unsigned i = 0; i < barrier_count_; ++i) waits[fibers_[at_barrier_[i]].thread] = true;

  const unsigned wave_lanes = static_cast<unsigned>(wave_size());
  bool progressed = false;
  std::string why;
  for (unsigned w = 0; waves_used_ && w * wave_lanes < size_; ++w) {
    Wave& wave = waves_[w];
    if (wave.arrived == 0) continue;
    const unsigned base = w * wave_lanes;
    const unsigned some = base + static_cast<unsigned>(__builtin_ctzll(wave.waiting));
    bool diverged = false;
    for (unsigned lane = 0; lane < lanes(w); ++lane) {
      if (!waits[base + lane]) continue;
      diverged = true;
      why = name_of(some) + " waits at " + name_of(*wave.site) + " while " + name_of(base + lane) +
            " of the same wave waits at " + name_of(*barrier_site_);
    }
    if (diverged) continue;
    complete(wave, kNoFiber);  // the other lanes have returned: HIP goes on without them
    progressed = true;
  }
  if (progressed) return;
  if (why.empty()) {
    const auto gone = std::find(waits.begin(), waits.end(), false) - waits.begin();
    why = name_of(fibers_[at_barrier_[0]].thread) + " waits at " + name_of(*barrier_site_) +
          " but " + name_of(static_cast<unsigned>(gone)) + " has returned without reaching it";
  }
  abort(why);
}

// Gives the block up: every thread that waits gets an exception, no further thread is started.
void BlockRunner::abort(const std::string& why) {
  if (aborting_) return;
  aborting_ = block_aborted = true;
  const uint3 b = position_.block;
  diagnosis_ = std::string("kernel ") + launch_->kernel + ", block (" + std::to_string(b.x) + "," +
               std::to_string(b.y) + "," + std::to_string(b.z) + "): " + why;
  finished_ += size_ - started_;
  started_ = size_;
  for (unsigned i = 0; i < barrier_count_; ++i) make_ready(at_barrier_[i]);
  barrier_count_ = 0;
  if (waves_used_)
    for (Wave& wave : waves_)
      if (wave.arrived > 0) complete(wave, kNoFiber);
}

std::string BlockRunner::name_of(unsigned thread) const {
  const uint3 d = position_.block_dim;
  return "thread (" + std::to_string(thread % d.x) + "," + std::to_string(thread / d.x % d.y) +
         "," + std::to_string(thread / d.x / d.y) + ")";
}

std::string BlockRunner::name_of(const Site& site) const {
  return std::string(site.what) + " " + site.file + ":" + std::to_string(site.line);
}

std::string BlockRunner::where() const {
  const uint3 b = position_.block;
  std::string text = std::string("kernel ") + launch_->kernel + ", block (" + std::to_string(b.x) +
                     "," + std::to_string(b.y) + "," + std::to_string(b.z) + ")";
  if (precise_) text += ", " + name_of(fibers_[current_].thread);
  return text;
}

bool BlockRunner::is_stack_guard(const void* address) const {
  const char* a = static_cast<const char*>(address);
  for (size_t f = 1; f < fibers_.size(); ++f)
    if (a >= fibers_[f].stack - kPage && a < fibers_[f].stack) return true;
  return false;
}

bool BlockRunner::is_shared_guard(const void* address) const {
  const char* a = static_cast<const char*>(address);
  const char* end = shared_arena_ + kSharedArena;
  return a >= shared_arena_ - kPage && a < end + kPage && !(a >= shared_arena_ && a < end);
}

void BlockRunner::sanitized_jump(const Switch& next) {
  const unsigned self = static_cast<unsigned>(
      reinterpret_cast<Fiber*>(reinterpret_cast<char*>(next.from) - offsetof(Fiber, context)) -
      fibers_.data());
  void* fake_stack = nullptr;
  const Fiber& to = fibers_[current_];
  sanitizer::start_switch(&fake_stack, to.stack, to.stack_bytes, to.sanitizer);
  const auto came_from = boost::context::detail::jump_fcontext(next.to, next.from);
  *static_cast<Context*>(came_from.data) = came_from.fctx;
  sanitizer::finish_switch(fake_stack, nullptr, nullptr);
  sanitizer::acquire(fibers_[self].sync);
  fibers_[self].site = nullptr;
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
#if defined(CPU_SANITIZED_FIBERS)
void jump(const Switch& next) { runner->sanitized_jump(next); }
#endif
void throw_aborted() { throw BlockAborted{}; }

}  // namespace cpu
