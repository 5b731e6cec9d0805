// The fibers of one block: the stacks that its GPU threads run on, made, used again and given back.
//
// Compiled without ThreadSanitizer's instrumentation, as block.cpp is.
#include <atomic>
#include <cstddef>
#include <thread>

#include "common/cpu/block.h"
#include "common/cpu/guard_pages.h"
#include "common/cpu/sanitizers.h"

namespace cpu {

namespace {

constexpr size_t kStackBytes = 256 * 1024;

// Blocks with a host thread of their own (run_on_own_threads) would map and unmap the stacks of all
// their threads: for a small product that is most of its time. To make a fiber takes
// ThreadSanitizer half a millisecond, too, and with each one every barrier takes it longer. So
// fibers are used again. Under ThreadSanitizer those of former launches can be: what these have
// done is ordered before a launch. Within a launch the last kMaxThreads that were used must not be,
// for what one fiber does is in order: a block is compared with the one before it, and with the
// four before it where a block has 256 threads, but not with those that ended long ago.
struct KeptFiber {
  char* stack;
  void* sanitizer;
  unsigned launch;  // in which it was used last
};
constexpr size_t kMostKept = 4096;  // ThreadSanitizer knows 8128 threads
KeptFiber kept_fibers[kMostKept];   // those that were used longest ago first, in a ring
size_t kept_first = 0, kept_count = 0;
std::atomic_flag kept_busy = ATOMIC_FLAG_INIT;  // a mutex would order one block behind another

template <class Action>
void with_kept(Action&& action) {
  while (kept_busy.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
  action();
  kept_busy.clear(std::memory_order_release);
}

// A fiber to use again; without a stack where there is none.
KeptFiber take_fiber(unsigned launch) {
  KeptFiber found{};
  with_kept([&] {
    if (kept_count == 0) return;
    const bool of_this_launch = kept_fibers[kept_first].launch == launch;
    if (sanitizer::kThreads && of_this_launch && kept_count <= kMaxThreads) return;
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

void BlockRunner::enter_fiber(boost::context::detail::transfer_t from) {
  *static_cast<Context*>(from.data) = from.fctx;
  BlockRunner& self = *current_block_runner();
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
  const KeptFiber kept = take_fiber(launch_number_);
  fiber.stack = kept.stack, fiber.sanitizer = kept.sanitizer;
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

void BlockRunner::free_fibers() {
  for (Fiber& fiber : fibers_) {
    if (fiber.stack == nullptr || &fiber == &fibers_[0]) continue;
    // A fiber's last switch leaves its lowest frame marked; the address may become anything next.
    sanitizer::forget_frames(fiber.stack, kStackBytes);
    if (keep_fiber({fiber.stack, fiber.sanitizer, launch_number_})) continue;
    sanitizer::destroy_fiber(fiber.sanitizer);
    unmap_with_guards(fiber.stack, kStackBytes);
  }
}

bool BlockRunner::is_stack_guard(const void* address) const {
  const char* a = static_cast<const char*>(address);
  for (size_t f = 1; f < fibers_.size(); ++f)
    if (a >= fibers_[f].stack - kGuard && a < fibers_[f].stack) return true;
  return false;
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

}  // namespace cpu
