// pool: free lists by size class. pool.h says what each function promises.
#include <algorithm>
#include <stdexcept>

#include "common/gpu_runtime.h"
#include "stage0_infra/05_memory_pool/pool.h"

namespace memory_pool {

// Fixes : async calls the runtime for each block, which keeps books for every stream.
// Idea  : a list of free blocks for each size class. All users share one stream, so a block may be
//         handed out again at once.
// Costs : a lock and two table entries for each block; at most a quarter of a block is not used.
void* Pool::allocate(size_t bytes) {
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

void Pool::free(void* block) {
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

void Pool::release() {
  const std::lock_guard<std::mutex> lock(mutex_);
  release_cache();
}

Statistics Pool::statistics() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return statistics_;
}

// Needs the lock.
void* Pool::allocate_from_source(size_t bytes) {
  void* block = nullptr;
  if (source_.allocate(&block, bytes) == hipSuccess) return block;
  static_cast<void>(hipGetLastError());  // dealt with here: the cache has taken the memory
  release_cache();
  HIP_CHECK(source_.allocate(&block, bytes));
  return block;
}

// Needs the lock. Runs in the destructor, so the source's errors are dropped: freeing fails only
// after a fault that an earlier call has reported.
void Pool::release_cache() {
  for (std::vector<void*>& list : free_lists_) {
    for (void* block : list) static_cast<void>(source_.free(block));
    list.clear();
  }
  statistics_.cached = 0;
}

std::unique_ptr<Allocator> make_pool() { return std::make_unique<Pool>(); }

}  // namespace memory_pool
