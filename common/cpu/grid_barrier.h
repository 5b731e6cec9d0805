// Where the blocks of a cooperative launch meet. For common/cpu/*.cpp only.
#pragma once

#include <condition_variable>
#include <mutex>

namespace cpu {

class GridBarrier {
 public:
  explicit GridBarrier(size_t blocks) : blocks_(blocks) {}

  // Waits for all blocks. False if one has ended without coming here: the grid can't go on.
  bool wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    const size_t generation = generation_;
    if (++waiting_ == blocks_) {
      waiting_ = 0;
      ++generation_;
      opened_.notify_all();
      return true;
    }
    opened_.wait(lock, [&] { return generation_ != generation || ended_ > 0; });
    return generation_ != generation;
  }

  // A block has ended, well or not.
  void leave() {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++ended_;
    opened_.notify_all();
  }

 private:
  const size_t blocks_;
  size_t waiting_ = 0, ended_ = 0, generation_ = 0;
  std::mutex mutex_;
  std::condition_variable opened_;
};

}  // namespace cpu
