// Whose turn it is among the blocks of a cluster, and what its threads do to one another's blocks.
//
// Compiled without ThreadSanitizer's instrumentation, as block.cpp is. Blocks wait at a futex, in
// which it sees no order.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>

#include "common/cpu/block.h"
#include "common/cpu/block_events.h"
#include "common/cpu/cluster.h"
#include "common/cpu/events.h"
#include "common/cpu/sanitizers.h"

namespace cpu {

// ---- Turns --------------------------------------------------------------------------------------

bool Cluster::begin(unsigned rank, BlockRunner& block) {
  wait_for_turn(rank);
  if (failed_) return false;
  running_[rank] = &block;
  return true;
}

void Cluster::end(unsigned rank) {
  wait_for_turn(rank);  // where it has not begun
  running_[rank] = nullptr, ended_[rank] = true;
  const unsigned next = who_is_next(rank);
  if (next != rank) pass_turn(next);
}

bool Cluster::lets_others_go_on(unsigned rank) {
  while (!failed_ && !running_[rank]->any_ready()) {
    const unsigned next = who_is_next(rank);
    if (next == rank) return false;
    pass_turn(next);
    wait_for_turn(rank);
  }
  return !failed_;
}

// A block of which this is true, `rank` before all others. kMost if there is none.
template <class Is>
unsigned Cluster::find(unsigned rank, Is&& is) {
  const Order::Kind kind = order().kind;
  const unsigned steps = kind == Order::forward || kind == Order::random ? 1 : blocks_ - 1;
  unsigned found = kMost, count = 0;
  for (unsigned i = 0; i < blocks_; ++i) {
    const unsigned next = (rank + i * steps) % blocks_;
    if (ended_[next] || !is(next)) continue;
    if (found == kMost || (kind == Order::random && random_.below(count + 1) == 0)) found = next;
    ++count;
  }
  return found;
}

// Units work when no thread of the cluster can go on. Nobody can at all: a block says so that waits
// for more than the others.
unsigned Cluster::who_is_next(unsigned rank) {
  unsigned next = find(rank, [&](unsigned r) { return !running_[r] || running_[r]->any_ready(); });
  if (next == kMost)
    next = find(rank, [&](unsigned r) { return running_[r]->has_units_at_work(); });
  if (next == kMost)
    next = find(rank, [&](unsigned r) { return running_[r]->has_waves_to_complete(); });
  if (next == kMost)
    next = find(rank, [&](unsigned r) { return running_[r]->waits_for_own_event(); });
  if (next == kMost) next = find(rank, [](unsigned) { return true; });
  return next == kMost ? rank : next;
}

void Cluster::wait_for_turn(unsigned rank) {
  for (;;) {
    const std::uint32_t now = turn_.load(std::memory_order_acquire);
    if (now == rank) return;
    syscall(SYS_futex, &turn_, FUTEX_WAIT_PRIVATE, now, nullptr, nullptr, 0);
  }
}

void Cluster::pass_turn(unsigned to) {
  turn_.store(to, std::memory_order_release);
  syscall(SYS_futex, &turn_, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
}

// ---- A block among others -----------------------------------------------------------------------

bool BlockRunner::has_waves_to_complete() const {
  bool any = false;
  for (const Wave& wave : waves_) any = any || (waves_used_ && wave.arrived > 0);
  return any;
}

// Does a thread wait for anything but the cluster's barrier?
bool BlockRunner::waits_for_own_event() const {
  if (!events_used_) return barrier_count_ > 0;
  bool waits = barrier_count_ > 0;
  for (const auto& phases : events_->phases) waits = waits || !phases.waiting.empty();
  for (unsigned n = 0; n < Events::kOfCluster; ++n)
    waits = waits || !events_->numbers[n].waiting.empty();
  return waits;
}

// Null, and the caller is told, where it is not there.
BlockRunner* BlockRunner::find_block(const Caller& caller, unsigned rank) {
  events_of(caller);
  const unsigned blocks = cluster_ != nullptr ? cluster_->blocks() : 1;
  BlockRunner* const block = rank == rank_    ? this
                             : rank >= blocks ? nullptr
                                              : cluster_->block(rank);
  if (rank >= blocks)
    report(caller,
           "a cluster of " + std::to_string(blocks) + " has no block " + std::to_string(rank));
  else if (block == nullptr)
    report(caller, name_of_block(rank) + " of the cluster has " +
                       (cluster_->has_ended(rank) ? "ended" : "not begun") +
                       ": its shared memory is not there");
  return block;
}

Switch BlockRunner::arrive_at_cluster(const Caller& caller) {
  events_of(caller);
  return arrive(caller, Events::kOfCluster, size_, false, false, nullptr);
}

// All threads of this block are at the cluster's barrier.
void BlockRunner::meet_cluster() {
  if (cluster_ == nullptr) return open(events_->numbers[Events::kOfCluster]);
  for (unsigned rank = 0; rank < cluster_->blocks(); ++rank) {
    const BlockRunner* const block = cluster_->block(rank);
    if (block == nullptr || !block->events_used_) return;
    if (block->events_->numbers[Events::kOfCluster].arrived < block->size_) return;
  }
  for (unsigned rank = 0; rank < cluster_->blocks(); ++rank) {
    BlockRunner& block = *cluster_->block(rank);
    block.open(block.events_->numbers[Events::kOfCluster]);
  }
}

// What the cluster's barrier waits for.
std::string BlockRunner::describe_cluster() const {
  std::string text = "all threads of the cluster";
  const unsigned blocks = cluster_ != nullptr ? cluster_->blocks() : 1;
  for (unsigned rank = 0; rank < blocks; ++rank) {
    const BlockRunner* const block = rank == rank_ ? this : cluster_->block(rank);
    text += (rank == 0 ? ", where " : ", ") + name_of_block(rank) + " has ";
    if (block == nullptr) {
      text += "ended";
      continue;
    }
    const unsigned arrived =
        block->events_used_ ? block->events_->numbers[Events::kOfCluster].arrived : 0;
    text += std::to_string(arrived) + " of " + std::to_string(block->size_) + " there";
  }
  return text;
}

void BlockRunner::arrive_in_phase_of(const Caller& caller, unsigned rank,
                                     const std::uint64_t* state) {
  BlockRunner* const block = find_block(caller, rank);
  if (block == nullptr) return;
  if (!events_->view.holds(state, sizeof *state))
    return report(caller, "the barrier does not lie in dynamic shared memory");
  const auto* there =
      reinterpret_cast<const std::uint64_t*>(block->shared_arena_ + events_->view.offset(state));
  const size_t number = find_phases_of(caller, *block, there);
  if (number < block->events_->phases.size()) count_arrival(caller, *block, number, 0);
}

const void* BlockRunner::find_in_block(const Caller& caller, unsigned rank, const void* here,
                                       unsigned bytes) {
  BlockRunner* const block = find_block(caller, rank);
  if (block == nullptr) return nullptr;
  if (events_->view.holds(here, bytes)) return block->shared_arena_ + events_->view.offset(here);
  report(caller, "what it reads of another block does not lie in dynamic shared memory");
  return nullptr;
}

void BlockRunner::begin_load_for(const Caller& caller, unsigned blocks, void* to,
                                 const TensorMap& map, const int* at, std::uint64_t* state) {
  events_of(caller);
  if (!events_->view.holds(to, 1) || !events_->view.holds(state, sizeof *state))
    return report(caller, "a box or its barrier does not lie in dynamic shared memory");
  for (unsigned rank = 0; blocks >> rank != 0 && !aborting_; ++rank) {
    if ((blocks >> rank & 1) == 0) continue;
    BlockRunner* const block = find_block(caller, rank);
    if (block == nullptr) return;
    const auto there = [&](const void* here) {
      return block->shared_arena_ + events_->view.offset(here);
    };
    load(caller, *block, there(to), map, at, reinterpret_cast<const std::uint64_t*>(there(state)));
  }
}

// ---- What kernels call --------------------------------------------------------------------------

unsigned block_of_cluster() {
  const sanitizer::Unseen unseen;
  return current_block_runner()->block_of_cluster();
}
Switch arrive_at_cluster(const Caller& caller) {
  const sanitizer::Unseen unseen;
  return current_block_runner()->arrive_at_cluster(caller);
}
void arrive_in_phase_of(const Caller& caller, unsigned block, const std::uint64_t* state) {
  const sanitizer::Unseen unseen;
  current_block_runner()->arrive_in_phase_of(caller, block, state);
}
const void* find_in_block(const Caller& caller, unsigned block, const void* here, unsigned bytes) {
  const sanitizer::Unseen unseen;
  return current_block_runner()->find_in_block(caller, block, here, bytes);
}
void begin_load_for(const Caller& caller, unsigned blocks, void* to, const TensorMap& map,
                    const int* at, std::uint64_t* state) {
  const sanitizer::Unseen unseen;
  current_block_runner()->begin_load_for(caller, blocks, to, map, at, state);
}

}  // namespace cpu
