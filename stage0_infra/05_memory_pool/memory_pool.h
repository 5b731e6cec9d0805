// 0.5  Device memory that is asked for once and then handed out again.
//
// hipMalloc asks the driver, and hipFree waits until the whole device is idle. A training step
// allocates the same blocks again and again. The versions are three allocators for it: the driver's
// calls, the runtime's own pool, and a pool that you can read. All are host code without kernels.
#pragma once

#include <cstddef>
#include <memory>

#include "common/version.h"

namespace memory_pool {

// Hands out blocks of device memory. Errors: gpu::Error, with hipErrorOutOfMemory where there is no
// such block.
class Allocator {
 public:
  virtual ~Allocator() = default;
  // At least `bytes` of uninitialised device memory.
  virtual void* allocate(size_t bytes) = 0;
  // Takes back a block of allocate().
  virtual void free(void* block) = 0;
};

// Makes an allocator, or nullptr where the device has no such thing.
using Launch = std::unique_ptr<Allocator> (*)();

// versions/raw.hip: hipMalloc and hipFree.
std::unique_ptr<Allocator> make_raw();
// versions/async.hip: hipMallocAsync and hipFreeAsync, on the default stream.
std::unique_ptr<Allocator> make_async();
// versions/pool.hip: a Pool (pool.h).
std::unique_ptr<Allocator> make_pool();

inline constexpr Version<Launch> kVersions[] = {
    {"raw", make_raw, "hipMalloc and hipFree: the driver is asked each time"},
    {"async", make_async, "hipMallocAsync: the runtime's pool, in stream order"},
    {"pool", make_pool, "free lists by size class"},
};

}  // namespace memory_pool
