// A block that can't go on: whether its threads are stuck, why, and who they are.
#include <algorithm>
#include <string>
#include <vector>

#include "common/cpu/block.h"

namespace cpu {

// Nothing can run and no thread is left to start, but not all have finished.
void BlockRunner::resolve() {
  if (events_used_ && lets_units_work()) return;
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

void BlockRunner::diverged_at_barrier(unsigned thread, const Site& site) {
  const unsigned other = fibers_[at_barrier_[0]].thread;
  abort(name_of(other) + " waits at " + name_of(*barrier_site_) + " while " + name_of(thread) +
        " waits at " + name_of(site) + ": all threads of a block must reach the same barrier");
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
  if (events_used_) release_all_from_events();
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

}  // namespace cpu
