// Stage 0.5: a memory pool: device memory that is asked for once and then handed out again.
//
// hipMalloc asks the driver and hipFree waits until the whole device is idle. A training step
// allocates the same blocks again and again, so a pool keeps what is freed and hands it out to the
// next that asks for a block of that size.
//
//   allocate(900 KB) --> class 1 MB --> [free list] --> a cached block: hit, no driver call
//                                           | empty
//                                           +---------> hipMalloc(1 MB): miss
//   free(block)      --> back to its class's free list; the device is not asked
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/gpu.h"
#include "common/program.h"
#include "common/random.h"

namespace memory_pool {

// ---- Size classes -----------------------------------------------------------------------------

// Blocks come in four sizes per power of two: 256 bytes times 1, 1.25, 1.5, 1.75, 2, 2.5, ... So a
// block is at most a quarter larger than was asked for, and there are few lists to search.
constexpr size_t kSmallestClass = 256;  // what every device aligns to
constexpr size_t kClasses = 4 * (64 - 8);

// The size of class c: (4 + c % 4) quarters of 256 * 2^(c / 4) bytes.
constexpr size_t class_bytes(size_t c) { return (4 + c % 4) * ((kSmallestClass / 4) << (c / 4)); }

// The smallest class that holds `bytes`; kClasses if there is none.
inline size_t class_of(size_t bytes) {
  if (bytes <= kSmallestClass) return 0;
  size_t power = 0;  // the last power of two below the size: 256 * 2^power < bytes
  while (power < kClasses / 4 - 1 && (kSmallestClass << (power + 1)) < bytes) ++power;
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

// A free-list allocator. Thread-safe: any thread may allocate and free.
//
// Stream order: a freed block may be handed out again while a kernel that uses it is still queued.
// That is right as long as all that use the pool's memory run on ONE stream, where the next owner's
// kernels come behind the last owner's; for several streams make one pool for each.
class Pool {
 public:
  explicit Pool(Source source = kDeviceMemory) : source_(source) {}
  // Returns the cached blocks, and waits for the device as hipFree does. Blocks still handed out
  // are not freed: their owners use them.
  ~Pool() { release(); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // At least `bytes` of uninitialised device memory, aligned to 256 bytes; nullptr for 0 bytes.
  // Where the device has no more, gives back what is cached and asks again, then throws gpu::Error
  // with hipErrorOutOfMemory.
  void* allocate(size_t bytes) {
    if (bytes == 0) return nullptr;
    const size_t c = class_of(bytes);
    if (c == kClasses) HIP_CHECK(hipErrorOutOfMemory);
    const std::lock_guard<std::mutex> lock(mutex_);
    void* block = nullptr;
    std::vector<void*>& list = free_lists_[c];
    // exercise: take the block from the list if it holds one, and count it (about 6 lines)
    if (!list.empty()) {
      block = list.back();  // the one freed last: most likely still in a cache
      list.pop_back();
      ++statistics_.hits;
      statistics_.cached -= class_bytes(c);
    }
    // end exercise
    if (block == nullptr) {
      block = allocate_from_source(class_bytes(c));
      ++statistics_.misses;
    }
    live_.emplace(block, Live{c, bytes});
    statistics_.live += bytes;
    statistics_.waste += class_bytes(c) - bytes;
    statistics_.peak = std::max(statistics_.peak, statistics_.live + statistics_.waste);
    return block;
  }

  // Puts the block into its free list; nullptr is nothing. Throws std::invalid_argument for a
  // block that this pool has not handed out, or not since it was last freed.
  void free(void* block) {
    if (block == nullptr) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = live_.find(block);
    if (found == live_.end())
      throw std::invalid_argument("free: the pool has not handed out this block, or has it back");
    const auto [c, bytes] = found->second;
    free_lists_[c].push_back(block);
    live_.erase(found);
    statistics_.live -= bytes;
    statistics_.waste -= class_bytes(c) - bytes;
    statistics_.cached += class_bytes(c);
  }

  // Gives every cached block back to the device.
  void release() {
    const std::lock_guard<std::mutex> lock(mutex_);
    release_cache();
  }

  Statistics statistics() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return statistics_;
  }

 private:
  struct Live {
    size_t size_class, bytes;
  };

  void* allocate_from_source(size_t bytes) {
    void* block = nullptr;
    if (source_.allocate(&block, bytes) == hipSuccess) return block;
    static_cast<void>(hipGetLastError());  // it is answered here: the cache is what is in the way
    release_cache();
    HIP_CHECK(source_.allocate(&block, bytes));
    return block;
  }

  // Needs the lock. Runs in the destructor, so what the source answers is dropped: freeing fails
  // only after a fault that an earlier call has reported.
  void release_cache() {
    for (std::vector<void*>& list : free_lists_) {
      for (void* block : list) static_cast<void>(source_.free(block));
      list.clear();
    }
    statistics_.cached = 0;
  }

  mutable std::mutex mutex_;
  Source source_;
  std::array<std::vector<void*>, kClasses> free_lists_;
  std::unordered_map<void*, Live> live_;
  Statistics statistics_;
};

// ---- A trace of a training run ----------------------------------------------------------------

// One step of a trace: block `id` is allocated with `bytes`, or freed (bytes == 0).
struct Event {
  size_t id, bytes;
};
struct Trace {
  std::vector<Event> events;
  size_t blocks = 0;      // ids are 0 .. blocks - 1
  size_t peak_bytes = 0;  // the most that is live at a time
};

// The allocations of `steps` training steps of a network of 12 layers whose widths, at most
// `max_width` (>= 1), come from `seed`. Forward keeps one activation per layer and frees the
// workspace that made it; backward walks the layers back, makes each gradient from the one behind
// it and frees that and the activation; the weights' gradients live until the step's end.
// Everything is freed.
inline Trace training_trace(size_t steps, size_t max_width, std::uint64_t seed) {
  constexpr size_t kLayers = 12, kBatch = 64;
  Trace trace;
  std::vector<size_t> sizes;
  size_t live = 0;
  std::uint64_t drawn = 0;
  const auto random = [&](size_t limit) {
    return static_cast<size_t>(random_numbers::word(seed, 5, drawn++)) % limit;
  };
  const auto allocate = [&](size_t floats) {
    sizes.push_back(floats * sizeof(float));
    trace.events.push_back({trace.blocks, sizes.back()});
    live += sizes.back();
    trace.peak_bytes = std::max(trace.peak_bytes, live);
    return trace.blocks++;
  };
  const auto release = [&](size_t id) {
    trace.events.push_back({id, 0});
    live -= sizes[id];
  };

  size_t widths[kLayers + 1];
  for (size_t& width : widths) width = 1 + random(max_width);
  for (size_t step = 0; step < steps; ++step) {
    const size_t batch = step % 8 == 7 ? 1 + random(kBatch) : kBatch;  // an epoch's uneven end
    size_t activations[kLayers + 1], weight_gradients[kLayers];
    activations[0] = allocate(batch * widths[0]);
    for (size_t layer = 0; layer < kLayers; ++layer) {
      const size_t workspace = allocate(widths[layer] * (1 + random(kBatch)));
      activations[layer + 1] = allocate(batch * widths[layer + 1]);
      release(workspace);
    }
    size_t gradient = allocate(batch * widths[kLayers]);
    for (size_t layer = kLayers; layer-- > 0;) {
      weight_gradients[layer] = allocate(widths[layer] * widths[layer + 1]);
      const size_t next = allocate(batch * widths[layer]);
      release(gradient);
      release(activations[layer + 1]);
      gradient = next;
    }
    release(gradient);
    release(activations[0]);
    for (const size_t weights : weight_gradients) release(weights);
  }
  return trace;
}

// ---- The allocators that are compared ---------------------------------------------------------

class Allocator {
 public:
  virtual ~Allocator() = default;
  virtual void* allocate(size_t bytes) = 0;
  virtual void free(void* block) = 0;
};

class RawAllocator : public Allocator {
 public:
  void* allocate(size_t bytes) override {
    void* block = nullptr;
    HIP_CHECK(hipMalloc(&block, bytes));
    return block;
  }
  void free(void* block) override { HIP_CHECK(hipFree(block)); }
};

// The runtime's own pool: stream-ordered, on the default stream.
class AsyncAllocator : public Allocator {
 public:
  void* allocate(size_t bytes) override {
    void* block = nullptr;
    HIP_CHECK(hipMallocAsync(&block, bytes, nullptr));
    return block;
  }
  void free(void* block) override { HIP_CHECK(hipFreeAsync(block, nullptr)); }
};

class PoolAllocator : public Allocator {
 public:
  void* allocate(size_t bytes) override { return pool_.allocate(bytes); }
  void free(void* block) override { pool_.free(block); }
  Statistics statistics() const { return pool_.statistics(); }

 private:
  Pool pool_;
};

// Makes an allocator, or nullptr where the device has no such thing.
using Launch = std::unique_ptr<Allocator> (*)();

inline std::unique_ptr<Allocator> make_raw() { return std::make_unique<RawAllocator>(); }
inline std::unique_ptr<Allocator> make_async() {
  return gpu::device_attribute(hipDeviceAttributeMemoryPoolsSupported) != 0
             ? std::make_unique<AsyncAllocator>()
             : nullptr;
}
inline std::unique_ptr<Allocator> make_pool() { return std::make_unique<PoolAllocator>(); }

inline constexpr Version<Launch> kVersions[] = {
    {"raw", make_raw, "hipMalloc and hipFree: the driver is asked each time"},
    {"async", make_async, "hipMallocAsync: the runtime's pool, in stream order"},
    {"pool", make_pool, "free lists by size class"},
};

// Replays the trace: allocates and frees, touching no memory.
inline void replay(const Trace& trace, Allocator& allocator, std::vector<void*>& blocks) {
  for (const Event& event : trace.events) {
    if (event.bytes != 0)
      blocks[event.id] = allocator.allocate(event.bytes);
    else
      allocator.free(blocks[event.id]);
  }
}

// Replays the trace with every block filled with its own byte pattern from allocation to release,
// and counts the blocks that no longer hold it when they are freed: two owners of one piece of
// memory, or a block shorter than asked for.
inline size_t count_damaged(const Trace& trace, Allocator& allocator) {
  std::vector<void*> blocks(trace.blocks);
  std::vector<size_t> sizes(trace.blocks);
  const auto pattern = [](size_t id) { return static_cast<unsigned char>(1 + id % 251); };
  size_t damaged = 0;
  std::vector<unsigned char> content;
  for (const Event& event : trace.events) {
    if (event.bytes != 0) {
      sizes[event.id] = event.bytes;
      blocks[event.id] = allocator.allocate(event.bytes);
      HIP_CHECK(hipMemset(blocks[event.id], pattern(event.id), event.bytes));
    } else {
      content.resize(sizes[event.id]);
      HIP_CHECK(hipMemcpy(content.data(), blocks[event.id], content.size(), hipMemcpyDeviceToHost));
      allocator.free(blocks[event.id]);
      bool same = true;
      for (const unsigned char byte : content) same = same && byte == pattern(event.id);
      damaged += !same;
    }
  }
  return damaged;
}

}  // namespace memory_pool
