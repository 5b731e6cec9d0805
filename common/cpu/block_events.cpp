// The threads of a block wait for events: phases, barriers with numbers, copies and products.
//
// Compiled without ThreadSanitizer's instrumentation, as block.cpp is.
#include "common/cpu/block_events.h"

#include <algorithm>
#include <string>

#include "common/cpu/block.h"
#include "common/cpu/cluster.h"
#include "common/cpu/events.h"
#include "common/cpu/sanitizers.h"

namespace cpu {

namespace {

// What *state of barrier number i is: nothing that is in memory by chance.
constexpr std::uint64_t kBarrierMark = 0xB4221E2000000000u;

}  // namespace

Events& BlockRunner::events() {
  if (events_ == nullptr) events_ = std::make_unique<Events>();
  if (!events_used_) {
    events_used_ = true;
    const auto first = static_cast<char*>(dynamic_shared_) - shared_arena_;
    events_->begin_block(shared_arena_, static_cast<unsigned>(first), size_);
  }
  return *events_;
}

// Each call of a thread begins with this: who it is, for messages and for what follows.
Events& BlockRunner::events_of(const Caller& caller) {
  fibers_[current_].thread = caller.thread;
  if (!precise_ && caller.thread >= started_) started_ = caller.thread + 1;
  return events();
}

void BlockRunner::report(const Caller& caller, const std::string& mistake) {
  if (!mistake.empty())
    abort(name_of(caller.thread) + " at " + name_of(caller.site) + ": " + mistake);
}

// ---- Phases -------------------------------------------------------------------------------------

void BlockRunner::init_phases(const Caller& caller, std::uint64_t* state, int arrivals) {
  auto& all = events_of(caller).phases;
  if (arrivals < 1) return report(caller, "a phase has at least one arrival");
  auto known =
      std::find_if(all.begin(), all.end(), [&](const auto& p) { return p.state == state; });
  if (known == all.end()) known = all.emplace(all.end());
  const std::uint64_t mark = kBarrierMark + static_cast<std::uint64_t>(known - all.begin());
  // Undefined in PTX, unless mbarrier.inval or other data have ended the barrier.
  if (known->state == state && *state == mark)
    return report(caller, "the barrier is initialized already");
  if (!known->waiting.empty()) return report(caller, "threads wait for this barrier");
  const auto count = static_cast<unsigned>(arrivals);
  *known = Events::Phases{state, count, count};
  *state = mark;
}

void BlockRunner::publish_phases() {
  for (auto& phases : events().phases) phases.is_published = true;
}

// Its number; that of none where init_phases was not called for it.
size_t BlockRunner::find_phases(const Caller& caller, const std::uint64_t* state) {
  events_of(caller);
  return find_phases_of(caller, *this, state);
}

// The same of a block's barrier at `state`, which the caller's block has found.
size_t BlockRunner::find_phases_of(const Caller& caller, BlockRunner& block,
                                   const std::uint64_t* state) {
  const auto& all = block.events().phases;
  const std::uint64_t number = *state - kBarrierMark;
  if (number < all.size() && all[number].state == state) return number;
  report(caller, "the barrier is not initialized" +
                     (&block == this ? "" : " in " + name_of_block(block.rank_)));
  return all.size();
}

void BlockRunner::arrive_in_phase(const Caller& caller, std::uint64_t* state, unsigned bytes) {
  const size_t number = find_phases(caller, state);
  if (number == events_->phases.size()) return;
  auto& phases = events_->phases[number];
  sanitizer::release(&phases.sync[phases.phase & 1]);
  count_arrival(caller, *this, number, bytes);
}

void BlockRunner::count_arrival(const Caller& caller, BlockRunner& block, size_t number,
                                unsigned bytes) {
  auto& phases = block.events_->phases[number];
  if (phases.missing == 0)
    return report(caller, "arrives a time too many in phase " + std::to_string(phases.phase) +
                              (&block == this ? "" : " of " + name_of_block(block.rank_)));
  phases.bytes += bytes;
  --phases.missing;
  block.end_phase_if_complete(number);
}

void BlockRunner::end_phase_if_complete(size_t number) {
  auto& phases = events_->phases[number];
  if (phases.missing > 0 || phases.bytes != 0) return;
  ++phases.phase;
  phases.missing = phases.arrivals;
  for (const unsigned fiber : phases.waiting) make_ready(fiber);
  phases.waiting.clear();
}

Switch BlockRunner::arrive_for_phase(const Caller& caller, std::uint64_t* state, unsigned parity) {
  const size_t number = find_phases(caller, state);
  if (number == events_->phases.size()) return {nullptr, nullptr};
  auto& phases = events_->phases[number];
  if (parity > 1) {
    report(caller, "a parity is 0 or 1");
    return {nullptr, nullptr};
  }
  if ((phases.phase & 1) != parity) {
    sanitizer::acquire(&phases.sync[parity & 1]);
    return {nullptr, nullptr};
  }
  Fiber& fiber = fibers_[current_];
  fiber.site = &caller.site;
  fiber.sync = &phases.sync[parity & 1];
  phases.waiting.push_back(current_);
  return next_switch();
}

// ---- Barriers with numbers ----------------------------------------------------------------------

Switch BlockRunner::arrive_at_number(const Caller& caller, int number, int threads, bool goes_on,
                                     bool vote, bool* any) {
  events_of(caller);
  if (number < 1 || number >= static_cast<int>(Events::kNumbers)) {
    report(caller, "a barrier's number is 1 to 15");
    return {nullptr, nullptr};
  }
  return arrive(caller, static_cast<unsigned>(number), static_cast<unsigned>(threads), goes_on,
                vote, any);
}

Switch BlockRunner::arrive(const Caller& caller, unsigned number, unsigned threads, bool goes_on,
                           bool vote, bool* any) {
  auto& barrier = events_->numbers[number];
  if (barrier.arrived > 0 && barrier.threads != threads) {
    report(caller, "barrier " + std::to_string(number) + " of " + std::to_string(threads) +
                       " threads is one of " + std::to_string(barrier.threads) + " to others");
    return {nullptr, nullptr};
  }
  barrier.threads = threads;
  barrier.any = barrier.any || vote;
  Fiber& fiber = fibers_[current_];
  fiber.site = &caller.site;
  char* const sync =
      number == Events::kOfCluster && cluster_ != nullptr ? cluster_->sync : barrier.sync;
  fiber.sync = &sync[barrier.phase & 1];
  sanitizer::release(fiber.sync);
  const bool is_last = ++barrier.arrived == threads;
  if (!goes_on) barrier.waiting.push_back({current_, any});
  if (is_last && number == Events::kOfCluster)
    meet_cluster();
  else if (is_last && number >= Events::kNumbers)
    events_->due.push_back(number);
  else if (is_last)
    open(barrier);
  return goes_on ? Switch{nullptr, nullptr} : next_switch();
}

void BlockRunner::open(EventNumber& barrier) {
  for (const auto& waiting : barrier.waiting) {
    if (waiting.any != nullptr) *waiting.any = barrier.any;
    make_ready(waiting.fiber);
  }
  barrier.waiting.clear();
  barrier.arrived = 0, barrier.any = false;
  ++barrier.phase;
}

// ---- Copies and products ------------------------------------------------------------------------

unsigned BlockRunner::shared_address(const void* pointer) const {
  return static_cast<unsigned>(static_cast<const char*>(pointer) - shared_arena_);
}

void BlockRunner::begin_load(const Caller& caller, void* to, const TensorMap& map, const int* at,
                             std::uint64_t* state) {
  events_of(caller);
  load(caller, *this, to, map, at, state);
}
// To a block of the cluster: `to` and `state` are there.
void BlockRunner::load(const Caller& caller, BlockRunner& block, void* to, const TensorMap& map,
                       const int* at, const std::uint64_t* state) {
  const size_t number = find_phases_of(caller, block, state);
  Events& events = *block.events_;
  if (number == events.phases.size()) return;
  const auto mistake = [&]() -> std::string {
    if (launch_->manner.early && !has_waited_for_launch_)
      return "reads global memory, and no thread of the block has called wait_for_launch_before()";
    if (!events.phases[number].is_published)
      return "publish_barriers() was not called behind this barrier's init()";
    const unsigned bytes = map.box_rows() * TensorMap::kRowBytes;
    if (events.view.holds(to, bytes) && events.products.is_reading(events.view.offset(to), bytes))
      return "overwrites a tile that a product reads";
    sanitizer::release(&events.copies_sync);
    return events.copies.begin_load(to, map, at, number);
  }();
  if (!mistake.empty())
    report(caller, (&block == this ? "" : "in " + name_of_block(block.rank_) + ": ") + mistake);
}
void BlockRunner::begin_store(const Caller& caller, const TensorMap& map, const int* at,
                              const void* from) {
  report(caller, events_of(caller).copies.begin_store(caller.thread, map, at, from));
}
void BlockRunner::begin_store(const Caller& caller, float* to, const float* from, unsigned bytes,
                              bool adds) {
  report(caller, events_of(caller).copies.begin_store(caller.thread, to, from, bytes, adds));
}
void BlockRunner::wait_for_stores(const Caller& caller, bool complete) {
  report(caller, events_of(caller).copies.wait_for_stores(caller.thread, complete));
}
void BlockRunner::begin_product(const Caller& caller, const Product& product, float* sums,
                                const unsigned* held) {
  report(caller, events_of(caller).products.begin(caller.thread, product, sums, held));
}

Switch BlockRunner::arrive_for_products(const Caller& caller, unsigned late) {
  events_of(caller);
  const unsigned group = caller.thread / kWarpGroupThreads;
  if (size_ < (group + 1) * kWarpGroupThreads) {
    report(caller, "this thread is in no complete warp group");
    return {nullptr, nullptr};
  }
  auto& barrier = events_->numbers[Events::kNumbers + group];
  if (barrier.arrived > 0 && barrier.late != late) {
    report(caller, "the threads of a warp group do not wait for the same products");
    return {nullptr, nullptr};
  }
  barrier.late = late;
  return arrive(caller, Events::kNumbers + group, kWarpGroupThreads, false, false, nullptr);
}

// ---- The block ----------------------------------------------------------------------------------

bool BlockRunner::has_units_at_work() const {
  return events_used_ && events_->due.size() + events_->copies.loads() > 0;
}

// All threads wait: units work until one of them can go on. True if one can. Products come before
// copies, as long as the order of threads is forward.
bool BlockRunner::lets_units_work() {
  const sanitizer::Unseen unseen;
  while (!any_ready() && !aborting_) {
    const size_t due = events_->due.size(), loads = events_->copies.loads();
    if (due + loads == 0) return false;
    size_t next = order_ == Order::random ? random_.below(due + loads) : 0;
    if (order_ != Order::forward && order_ != Order::random) next = due + loads - 1;
    if (next < due)
      end_products_of(next);
    else
      end_load(next - due);
  }
  return true;
}

void BlockRunner::end_products_of(size_t i) {
  const unsigned number = events_->due[i];
  auto& barrier = events_->numbers[number];
  events_->due.erase(events_->due.begin() + static_cast<std::ptrdiff_t>(i));
  const std::string mistake = events_->products.complete(number - Events::kNumbers, barrier.late);
  const Fiber& first = fibers_[barrier.waiting[0].fiber];
  if (mistake.empty())
    open(barrier);
  else
    report({first.thread, *first.site}, mistake);
}

void BlockRunner::end_load(size_t i) {
  sanitizer::acquire(&events_->copies_sync);
  const auto load = events_->copies.arrive(i);
  auto& phases = events_->phases[load.barrier];
  sanitizer::release(&phases.sync[phases.phase & 1]);
  phases.bytes -= load.bytes;
  end_phase_if_complete(load.barrier);
}

void BlockRunner::release_all_from_events() {
  for (auto& phases : events_->phases) {
    for (const unsigned fiber : phases.waiting) make_ready(fiber);
    phases.waiting.clear();
  }
  for (auto& number : events_->numbers) {
    for (const auto& waiting : number.waiting) make_ready(waiting.fiber);
    number.waiting.clear();
  }
}

// What the block has left undone. Its threads have ended.
void BlockRunner::end_events() {
  const sanitizer::Unseen unseen;
  std::string mistake = events_->products.end_block();
  if (mistake.empty()) mistake = events_->copies.end_block();
  for (unsigned first = 0; mistake.empty() && first < size_; first += kWarpGroupThreads) {
    const auto begin = events_->registers.begin() + first;
    const auto end = begin + std::min(kWarpGroupThreads, size_ - first);
    if (std::any_of(begin, end, [&](unsigned r) { return r != *begin; }))
      mistake = "not all threads of warp group " + std::to_string(first / kWarpGroupThreads) +
                " have changed their number of registers";
  }
  if (!mistake.empty()) abort("the block " + mistake);
}

// ---- What kernels call --------------------------------------------------------------------------

void init_phases(const Caller& caller, std::uint64_t* state, int arrivals) {
  const sanitizer::Unseen unseen;
  current_block_runner()->init_phases(caller, state, arrivals);
}
void publish_phases() {
  const sanitizer::Unseen unseen;
  current_block_runner()->publish_phases();
}
void arrive_in_phase(const Caller& caller, std::uint64_t* state, unsigned bytes) {
  const sanitizer::Unseen unseen;
  current_block_runner()->arrive_in_phase(caller, state, bytes);
}
Switch arrive_for_phase(const Caller& caller, std::uint64_t* state, unsigned parity) {
  const sanitizer::Unseen unseen;
  return current_block_runner()->arrive_for_phase(caller, state, parity);
}
Switch arrive_at_number(const Caller& caller, int number, int threads, bool goes_on, bool vote,
                        bool* any) {
  const sanitizer::Unseen unseen;
  return current_block_runner()->arrive_at_number(caller, number, threads, goes_on, vote, any);
}
unsigned shared_address(const void* pointer) {
  const sanitizer::Unseen unseen;
  return current_block_runner()->shared_address(pointer);
}
void begin_load(const Caller& caller, void* to, const TensorMap& map, const int* at,
                std::uint64_t* state) {
  const sanitizer::Unseen unseen;
  current_block_runner()->begin_load(caller, to, map, at, state);
}
void begin_store(const Caller& caller, const TensorMap& map, const int* at, const void* from) {
  const sanitizer::Unseen unseen;
  current_block_runner()->begin_store(caller, map, at, from);
}
void begin_store(const Caller& caller, float* to, const float* from, unsigned bytes, bool adds) {
  const sanitizer::Unseen unseen;
  current_block_runner()->begin_store(caller, to, from, bytes, adds);
}
void end_stores(unsigned thread) {
  const sanitizer::Unseen unseen;
  current_block_runner()->events().copies.end_stores(thread);
}
void wait_for_stores(const Caller& caller, bool complete) {
  const sanitizer::Unseen unseen;
  current_block_runner()->wait_for_stores(caller, complete);
}
void fence_for_units() {
  const sanitizer::Unseen unseen;
  current_block_runner()->events().view.fence();
}
void begin_products(unsigned thread) {
  const sanitizer::Unseen unseen;
  current_block_runner()->events().products.fence(thread);
}
void begin_product(const Caller& caller, const Product& product, float* sums,
                   const unsigned* held) {
  const sanitizer::Unseen unseen;
  current_block_runner()->begin_product(caller, product, sums, held);
}
void end_products(unsigned thread) {
  const sanitizer::Unseen unseen;
  current_block_runner()->events().products.end_group(thread);
}
Switch arrive_for_products(const Caller& caller, unsigned late) {
  const sanitizer::Unseen unseen;
  return current_block_runner()->arrive_for_products(caller, late);
}
void set_registers(unsigned thread, unsigned registers) {
  const sanitizer::Unseen unseen;
  current_block_runner()->events().registers[thread] = registers;
}

}  // namespace cpu
