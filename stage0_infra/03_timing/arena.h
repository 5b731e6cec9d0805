// The memory that the probes of 0.3 work on, with an owner.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "common/device_buffer.h"
#include "common/gpu_runtime.h"
#include "stage0_infra/03_timing/timing.h"

namespace timing {

// Host memory that the operating system may not move or swap out, so that the device's copy engine
// can reach it directly.
class PinnedBuffer {
 public:
  explicit PinnedBuffer(size_t bytes) {
    HIP_CHECK(hipHostMalloc(&data_, bytes, hipHostMallocDefault));
  }
  ~PinnedBuffer() { static_cast<void>(hipHostFree(data_)); }
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  void* data() { return data_; }

 private:
  void* data_ = nullptr;
};

// Owns a Memory: two halves of device memory, zeroed, and what the probes leave behind.
class Arena {
 public:
  // Halves of at least `bytes` bytes each, rounded up to whole tiles. With `transfers` there is
  // host memory, too: as much as a half has, but at most 256 MiB of each kind.
  explicit Arena(size_t bytes, bool transfers = true);

  const Memory& memory() const { return memory_; }

 private:
  gpu::DeviceBuffer<uint4> halves_;
  gpu::DeviceBuffer<unsigned> sums_;
  gpu::DeviceBuffer<float> chain_ends_;
  std::vector<unsigned char> pageable_;
  std::unique_ptr<PinnedBuffer> pinned_;
  Memory memory_ = {};
};

// Bytes of each half for a measurement: on a GPU far more than its caches hold (1 GiB, or a quarter
// of what is free), on the CPU backend what half a second allows.
size_t arena_bytes(bool quick);

}  // namespace timing
