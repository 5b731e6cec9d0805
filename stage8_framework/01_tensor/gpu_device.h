// The backend that this build is for, as a Device: its memory in a pool, its copies by this step's
// kernels.
#pragma once

#include <memory>

#include "common/gpu_runtime.h"
#include "stage8_framework/01_tensor/splitting.h"
#include "stage8_framework/01_tensor/storage.h"

namespace tensor {

// Everything is queued on `stream`, on the device that is current.
class GpuDevice : public framework::Device {
 public:
  explicit GpuDevice(hipStream_t stream = nullptr,
                     std::unique_ptr<memory_pool::Allocator> source = memory_pool::make_raw())
      : stream_(stream), pool_(std::move(source)) {}

  const char* name() const override { return gpu::kBackend; }
  void* allocate(size_t bytes) override { return pool_.allocate(bytes, stream_); }
  void free(void* block) noexcept override { pool_.free(block); }
  void to_device(void* to, const void* host, size_t bytes) override;
  void to_host(void* host, const void* from, size_t bytes) override;
  void copy(const framework::Tensor& out, const framework::Tensor& a) override;

  Splitting& pool() { return pool_; }

 private:
  hipStream_t stream_;
  Splitting pool_;
};

}  // namespace tensor
