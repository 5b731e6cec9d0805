// Device memory with an owner. Every step keeps its device memory in a DeviceBuffer; step 0.4
// builds on it and shows why an owner is needed.
#pragma once

#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/gpu_runtime.h"

namespace gpu {

// Owns `size` elements of device memory. Errors: gpu::Error with hipErrorOutOfMemory where the
// device has no such block, std::out_of_range where more is copied in than fits.
template <class T>
class DeviceBuffer {
  // Elements are copied byte by byte. (HIP's vector types are not trivially copyable to the
  // letter.)
  static_assert(std::is_trivially_destructible_v<T>, "device memory holds plain data");
  static_assert(!std::is_same_v<T, bool>, "std::vector<bool> has no array to copy from");

 public:
  DeviceBuffer() = default;

  // Uninitialised memory (the CPU backend fills it with NaN). Size 0 allocates nothing.
  explicit DeviceBuffer(size_t size) : size_(size) {
    // A product that wraps around would allocate a small block under a large size.
    if (size > std::numeric_limits<size_t>::max() / sizeof(T)) HIP_CHECK(hipErrorOutOfMemory);
    if (size != 0) HIP_CHECK(hipMalloc(reinterpret_cast<void**>(&data_), bytes()));
  }

  explicit DeviceBuffer(const std::vector<T>& host) : DeviceBuffer(host.size()) {
    to_device(host.data(), host.size());
  }

  // Waits until the device has finished, so no queued kernel loses its memory. A destructor must
  // not throw; this call fails only after a fault that an earlier call has reported.
  ~DeviceBuffer() {
    if (data_ != nullptr) static_cast<void>(hipFree(data_));
  }

  // Two owners would free the memory twice: it can be moved, never copied.
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  DeviceBuffer(DeviceBuffer&& other) noexcept { swap(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    DeviceBuffer(std::move(other)).swap(*this);  // the temporary frees what this object had
    return *this;
  }

  void swap(DeviceBuffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }

  // A device address: kernels may follow it, host code must not. nullptr if the size is 0.
  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  size_t bytes() const { return size_ * sizeof(T); }

  // Copies host[0, count) into the first `count` elements.
  void to_device(const T* host, size_t count) {
    if (count > size_)
      throw std::out_of_range("to_device: " + std::to_string(count) +
                              " elements do not fit into a buffer of " + std::to_string(size_));
    if (count != 0) HIP_CHECK(hipMemcpy(data_, host, count * sizeof(T), hipMemcpyHostToDevice));
  }

  // Waits for the default stream's work and returns a copy of all elements.
  std::vector<T> to_host() const {
    std::vector<T> host(size_);
    if (size_ != 0) HIP_CHECK(hipMemcpy(host.data(), data_, bytes(), hipMemcpyDeviceToHost));
    return host;
  }

  // Fills every byte with 0xFF, so that an element nobody writes reads as NaN.
  void poison() {
    if (size_ != 0) gpu::poison(data_, bytes());
  }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace gpu
