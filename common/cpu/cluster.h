// The blocks of a cluster, each on a host thread of its own. One of them has the turn, and the
// others stand still: it can change what belongs to them. A block passes the turn on when none of
// its threads can go on, so what a cluster does depends on the order of threads alone.
//
// For common/cpu/*.cpp only.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "common/cpu/block.h"

namespace cpu {

class Cluster {
 public:
  static constexpr unsigned kMost = 8;  // blocks, as on sm_90

  // `first` of `blocks` blocks runs first. `failed`: one of the launch's blocks can't go on.
  Cluster(unsigned blocks, unsigned first, const std::atomic<bool>& failed)
      : blocks_(blocks), failed_(failed), turn_(first), random_(order().seed) {}

  unsigned blocks() const { return blocks_; }
  bool failed() const { return failed_; }

  // Called by a block that is ready to run its first thread: waits for its turn. False if the
  // launch has failed.
  bool begin(unsigned rank, BlockRunner& block);
  // Called when the block has ended, well or not, or will never begin.
  void end(unsigned rank);
  // Called by a block none of whose threads can go on. True when one of them can. False when its
  // units shall work, when the launch has failed, or when nobody in the cluster can go on and this
  // block is to say why.
  bool lets_others_go_on(unsigned rank);

  // Null where it has not begun or has ended.
  BlockRunner* block(unsigned rank) const { return running_[rank]; }
  bool has_ended(unsigned rank) const { return ended_[rank]; }

  char sync[2] = {};  // addresses that ThreadSanitizer ties the order of the cluster's barrier to

 private:
  template <class Is>
  unsigned find(unsigned rank, Is&& is);
  unsigned who_is_next(unsigned rank);
  void wait_for_turn(unsigned rank);
  void pass_turn(unsigned to);

  const unsigned blocks_;
  const std::atomic<bool>& failed_;
  std::atomic<std::uint32_t> turn_;
  std::array<BlockRunner*, kMost> running_{};
  std::array<bool, kMost> ended_{};
  Random random_;
};

}  // namespace cpu
