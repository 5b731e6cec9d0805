// A memory pool: it keeps what is freed, in a list for each size, and hands it out again.
//
//   allocate(900 KB) --> class 1 MB --> [free list] --> a cached block: hit, no driver call
//                                           | empty
//                                           +---------> hipMalloc(1 MB): miss
//   free(block)      --> back to its class's free list; the device is not asked
#pragma once

#include <array>
#include <cstddef>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "common/gpu_runtime.h"
#include "stage0_infra/05_memory_pool/memory_pool.h"

namespace memory_pool {

// ---- Size classes -----------------------------------------------------------------------------

// Blocks come in four sizes per power of two: 256 bytes times 1, 1.25, 1.5, 1.75, 2, 2.5, ... So a
// block is at most a quarter larger than was asked for, and there are few lists to search.
inline constexpr size_t kSmallestClass = 256;  // what every device aligns to
inline constexpr size_t kClasses = 4 * (64 - 8);

// The size of class c: (4 + c % 4) quarters of 256 * 2^(c / 4) bytes.
constexpr size_t class_bytes(size_t c) { return (4 + c % 4) * ((kSmallestClass / 4) << (c / 4)); }

// The smallest class that holds `bytes`; kClasses if there is none.
inline size_t class_of(size_t bytes) {
  if (bytes <= kSmallestClass) return 0;
  // The last power of two below the size: 256 * 2^power < bytes.
  const size_t power = 55 - static_cast<size_t>(__builtin_clzll(bytes - 1));
  const size_t quarter = (kSmallestClass / 4) << power;
  const size_t c = 4 * power + (gpu::ceil_div(bytes, quarter) - 4);
  return c < kClasses ? c : kClasses;
}

// ---- Pool -------------------------------------------------------------------------------------

// Where a pool's memory comes from: two functions that behave like hipMalloc and hipFree.
struct Source {
  hipError_t (*allocate)(void** block, size_t bytes);
  hipError_t (*free)(void* block);
};

inline hipError_t device_allocate(void** block, size_t bytes) { return hipMalloc(block, bytes); }
inline hipError_t device_free(void* block) { return hipFree(block); }
inline constexpr Source kDeviceMemory{device_allocate, device_free};

// Bytes and counts since the pool was made.
struct Statistics {
  size_t live = 0;    // bytes handed out, as asked for
  size_t waste = 0;   // bytes handed out beyond that: rounding up to the class
  size_t cached = 0;  // bytes in free lists
  size_t peak = 0;    // the most that live + waste ever were
  size_t hits = 0;    // allocations served from a free list
  size_t misses = 0;  // allocations that asked the source
};

// An allocator with a free list for each size class. Thread-safe: any thread may allocate and free.
// versions/pool.hip has its code.
//
// Stream order: a freed block may be handed out again while a kernel that uses it is still queued.
// That is right as long as all kernels that use the pool's memory run on ONE stream: there the next
// owner's kernels come after the last owner's. For several streams make a pool for each.
class Pool : public Allocator {
 public:
  explicit Pool(Source source = kDeviceMemory) : source_(source) {}
  // Gives back the cached blocks, and waits for the device as hipFree does. Blocks that are still
  // handed out are not freed: their owners use them.
  ~Pool() override { release(); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // At least `bytes` of uninitialised device memory, aligned to 256 bytes; nullptr for 0 bytes.
  // Where the device has no more, gives back what is cached and asks again, then throws gpu::Error
  // with hipErrorOutOfMemory.
  void* allocate(size_t bytes) override;

  // Puts the block into its free list; nullptr is nothing. Throws std::invalid_argument for a block
  // that this pool has not handed out, or that is free already.
  void free(void* block) override;

  // Gives every cached block back to the device.
  void release();

  Statistics statistics() const;

 private:
  struct Live {
    size_t size_class, bytes;
  };
  void* allocate_from_source(size_t bytes);
  void release_cache();

  mutable std::mutex mutex_;  // held by every function that reads or changes what follows
  Source source_;
  std::array<std::vector<void*>, kClasses> free_lists_;
  std::unordered_map<void*, Live> live_;
  Statistics statistics_;
};

}  // namespace memory_pool
