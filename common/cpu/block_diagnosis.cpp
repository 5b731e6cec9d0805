// A block that can't go on: whether its threads are stuck, why, and who they are.
#include <algorithm>
#include <string>
#include <vector>

#include "common/cpu/block.h"
#include "common/cpu/block_events.h"
#include "common/cpu/cluster.h"

namespace cpu {

namespace {

std::string of_all(unsigned arrived, unsigned all) {
  return std::to_string(arrived) + " of " + std::to_string(all);
}

}  // namespace

// Nothing can run and no thread is left to start, but not all have finished.
void BlockRunner::resolve() {
  for (bool again = true; again;) {
    if (cluster_ != nullptr && cluster_->lets_others_go_on(rank_)) return;
    if (cluster_ != nullptr && cluster_->failed()) return abort("");
    again = cluster_ != nullptr && has_units_at_work();
    if (events_used_ && lets_units_work()) return;
  }
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
  if (why.empty() && events_used_) why = describe_waiting();
  if (why.empty()) {
    const auto gone = std::find(waits.begin(), waits.end(), false) - waits.begin();
    why = name_of(fibers_[at_barrier_[0]].thread) + " waits at " + name_of(*barrier_site_) +
          " but " + name_of(static_cast<unsigned>(gone)) + " has returned without reaching it";
  }
  abort(why);
}

// Who waits for which event, of the first that waits for one; empty where none does.
std::string BlockRunner::describe_waiting() const {
  const auto waits = [&](unsigned fiber) {
    return name_of(fibers_[fiber].thread) + " waits at " + name_of(*fibers_[fiber].site) + " for ";
  };
  const auto& all = events_->phases;
  for (size_t i = 0; i < all.size(); ++i) {
    const auto& p = all[i];
    if (p.waiting.empty()) continue;
    return waits(p.waiting[0]) + "phase " + std::to_string(p.phase) + " of barrier " +
           std::to_string(i) + " in the order of init(), which has " +
           of_all(p.arrivals - p.missing, p.arrivals) + " arrivals and misses " +
           std::to_string(p.bytes) + " bytes, and no other thread can go on";
  }
  for (unsigned n = 0; n < events_->numbers.size(); ++n) {
    const auto& b = events_->numbers[n];
    if (b.waiting.empty()) continue;
    if (n == Events::kOfCluster)
      return waits(b.waiting[0].fiber) + describe_cluster() + ", and no other thread can go on";
    const std::string which =
        n < Events::kNumbers ? "barrier number " + std::to_string(n)
                             : "the products of warp group " + std::to_string(n - Events::kNumbers);
    return waits(b.waiting[0].fiber) + which + ", where " + of_all(b.arrived, b.threads) +
           " threads have arrived, and no other thread can go on";
  }
  return "";
}

void BlockRunner::diverged_at_barrier(unsigned thread, const Site& site) {
  const unsigned other = fibers_[at_barrier_[0]].thread;
  abort(name_of(other) + " waits at " + name_of(*barrier_site_) + " while " + name_of(thread) +
        " waits at " + name_of(site) + ": all threads of a block must reach the same barrier");
}

// Gives the block up: every thread that waits gets an exception, no further thread is started.
// `why` is empty where another block is to blame.
void BlockRunner::abort(const std::string& why) {
  if (aborting_) return;
  aborting_ = block_aborted = true;
  if (!why.empty())
    diagnosis_ =
        std::string("kernel ") + launch_->kernel + ", " + name_of_block(rank_) + ": " + why;
  finished_ += size_ - started_;
  started_ = size_;
  for (unsigned i = 0; i < barrier_count_; ++i) make_ready(at_barrier_[i]);
  barrier_count_ = 0;
  if (waves_used_)
    for (Wave& wave : waves_)
      if (wave.arrived > 0) complete(wave, kNoFiber);
  if (events_used_) release_all_from_events();
}

std::string BlockRunner::name_of(unsigned thread) const {
  const uint3 d = position_.block_dim;
  return "thread (" + std::to_string(thread % d.x) + "," + std::to_string(thread / d.x % d.y) +
         "," + std::to_string(thread / d.x / d.y) + ")";
}

// Of the block with this number in the cluster.
std::string BlockRunner::name_of_block(unsigned rank) const {
  const uint3 b = position_.block;
  return "block (" + std::to_string(b.x - rank_ + rank) + "," + std::to_string(b.y) + "," +
         std::to_string(b.z) + ")";
}

std::string BlockRunner::name_of(const Site& site) const {
  return std::string(site.what) + " " + site.file + ":" + std::to_string(site.line);
}

std::string BlockRunner::where() const {
  std::string text = std::string("kernel ") + launch_->kernel + ", " + name_of_block(rank_);
  if (precise_) text += ", " + name_of(fibers_[current_].thread);
  return text;
}

}  // namespace cpu
