// raw: the driver is asked for every block.
#include "common/gpu_runtime.h"
#include "stage0_infra/05_memory_pool/memory_pool.h"

namespace memory_pool {

// Fixes : -
// Idea  : a block is allocated when it is needed and freed when it is not.
// Costs : a call of the driver for each block, and hipFree waits until the device is idle.
class RawAllocator : public Allocator {
 public:
  void* allocate(size_t bytes) override {
    void* block = nullptr;
    HIP_CHECK(hipMalloc(&block, bytes));
    return block;
  }
  void free(void* block) override { HIP_CHECK(hipFree(block)); }
};

std::unique_ptr<Allocator> make_raw() { return std::make_unique<RawAllocator>(); }

}  // namespace memory_pool
