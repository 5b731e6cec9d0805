// An allocator that cuts blocks to size out of few large segments and joins what is freed.
//
//   a segment, as the source gave it      | live 3 MB | free 2 MB    | live 1 MB | free 4 MB |
//   allocate(1.5 MB): the best fit        | live 3 MB | live   |free | live 1 MB | free 4 MB |
//   free(the block of 1 MB)               | live 3 MB | live   |free          joined |
//
// Every block knows its neighbours in memory. Free blocks stand in lists by size class, those of
// 0.5's pool, so that the smallest one that fits is found in the first list or two.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "common/gpu_runtime.h"
#include "stage0_infra/05_memory_pool/pool.h"

namespace tensor {

// A block belongs to the stream that it was allocated for, and so does its memory when it is freed:
// only later work of the same stream gets it, which is queued behind whatever still uses it. Work
// of another stream must be done when the block is freed. Thread-safe.
class Splitting : public memory_pool::Allocator {
 public:
  struct Statistics {
    size_t live = 0;      // bytes handed out, in multiples of 256
    size_t reserved = 0;  // bytes that the source has given and not got back
    size_t peak_live = 0, peak_reserved = 0;
    size_t misses = 0;  // requests for which the source was asked
  };

  explicit Splitting(std::unique_ptr<memory_pool::Allocator> source = memory_pool::make_raw())
      : source_(std::move(source)) {}
  // Gives back all segments of which nothing is handed out.
  ~Splitting() override { release(); }
  Splitting(const Splitting&) = delete;
  Splitting& operator=(const Splitting&) = delete;

  // At least `bytes` of uninitialised memory, aligned to 256 bytes; nullptr for 0 bytes. Where the
  // source has no more, gives back every idle segment and asks again, then lets the source's
  // gpu::Error pass. Nothing has changed then.
  void* allocate(size_t bytes) override { return allocate(bytes, nullptr); }
  void* allocate(size_t bytes, hipStream_t stream);

  // nullptr is nothing. Throws std::invalid_argument for a block that is not handed out.
  void free(void* block) override;

  // Gives idle segments, of which nothing is handed out, back to the source.
  void release();

  Statistics statistics() const;
  // From now on the peaks are of what comes.
  void restart_peaks();

 private:
  // Requests below this share of what a stream has had live at most are small.
  static constexpr size_t kSmallShare = 32;
  static constexpr size_t kWordBits = 64;

  struct Lane;
  struct Block {
    char* begin = nullptr;
    size_t bytes = 0;
    Lane* lane = nullptr;
    bool is_free = false;
    bool is_whole = false;  // a segment that is not cut: for requests of nearly its size
    Block *before = nullptr, *after = nullptr;   // neighbours in its segment
    Block *previous = nullptr, *next = nullptr;  // in its list, if it is free
    size_t list = 0;

    bool serves(size_t request) const {
      return bytes >= request && (!is_whole || bytes - request <= bytes / 16);
    }
  };
  // What belongs to one stream.
  struct Lane {
    hipStream_t stream = nullptr;
    size_t live = 0, peak_live = 0, reserved = 0;
    std::array<Block*, memory_pool::kClasses> first{};  // the lists of free blocks
    std::array<std::uint64_t, memory_pool::kClasses / kWordBits + 1>
        full{};  // a bit for each with any
    size_t next_full(size_t list) const;
  };
  using Table = std::unordered_map<void*, Block*>;

  Block* best_fit(const Lane& lane, size_t bytes);
  Block* split(Block* block, size_t bytes);
  Block* joined(Block* block);
  Block* grow(Lane& lane, size_t bytes);
  char* ask_source(size_t bytes);
  void release_idle(const Lane* only);

  static size_t list_of(size_t bytes);
  static void enlist(Block* block);
  static void delist(Block* block);
  void hand_out(Block* block);
  Block* take_back(void* begin);
  Block* new_block();
  void forget(Block* block);
  Lane& lane_of(hipStream_t stream);

  mutable std::mutex mutex_;  // held by every public function
  std::unique_ptr<memory_pool::Allocator> source_;
  std::deque<Lane> lanes_;     // few; they stay where they are
  std::deque<Block> blocks_;   // all that ever were
  std::vector<Block*> spare_;  // those of blocks_ that are no block now
  Table live_;                 // the blocks that are handed out
  std::vector<Table::node_type> spare_entries_;
  Statistics statistics_;
};

std::unique_ptr<memory_pool::Allocator> make_splitting();

}  // namespace tensor
