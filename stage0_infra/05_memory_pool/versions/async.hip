// async: the runtime's own pool, in the order of a stream.
#include "common/gpu_runtime.h"
#include "stage0_infra/05_memory_pool/memory_pool.h"

namespace memory_pool {

// Fixes : raw asks the driver for each block and waits for the device at each free.
// Idea  : a free is queued on the stream like a kernel. The runtime keeps the block, and hands it
//         out to whatever comes later on the stream.
// Costs : a call of the runtime for each block; no waiting.
class AsyncAllocator : public Allocator {
 public:
  void* allocate(size_t bytes) override {
    void* block = nullptr;
    HIP_CHECK(hipMallocAsync(&block, bytes, nullptr));
    return block;
  }
  void free(void* block) override { HIP_CHECK(hipFreeAsync(block, nullptr)); }
};

std::unique_ptr<Allocator> make_async() {
  if (gpu::device_attribute(hipDeviceAttributeMemoryPoolsSupported) == 0) return nullptr;
  return std::make_unique<AsyncAllocator>();
}

}  // namespace memory_pool
