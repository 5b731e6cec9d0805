// Memory for a workspace: its own, or parts of a block that somebody else has.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "common/device_buffer.h"

namespace gpu {

// Elements of device memory: its own, or a part of a block, which it does not free.
template <class T>
class DeviceArray {
 public:
  DeviceArray() = default;
  DeviceArray(DeviceBuffer<T> own) : own_(std::move(own)) {}  // NOLINT: a buffer is such an array
  DeviceArray(T* part, size_t size) : part_(part), part_size_(size) {}

  // A device address. nullptr if the size is 0.
  T* data() { return part_size_ != 0 ? part_ : own_.data(); }
  const T* data() const { return part_size_ != 0 ? part_ : own_.data(); }
  size_t size() const { return part_size_ != 0 ? part_size_ : own_.size(); }

  // Waits for the default stream's work and returns a copy of all elements.
  std::vector<T> to_host() const {
    std::vector<T> host(size());
    if (!host.empty())
      HIP_CHECK(hipMemcpy(host.data(), data(), size() * sizeof(T), hipMemcpyDeviceToHost));
    return host;
  }

 private:
  DeviceBuffer<T> own_;
  T* part_ = nullptr;
  size_t part_size_ = 0;
};

// Hands out the parts of one block, one behind the other. Without a block it counts: the code that
// takes the parts says first how many bytes the block must have.
//
//   Workspace(const Problem& p, DeviceParts* parts) : sums(take<float>(parts, p.sums)) {}
//
//   DeviceParts counted;                   DeviceParts parts(block);
//   Workspace(p, &counted);                Workspace workspace(p, &parts);
//   allocate(counted.bytes());             launch(workspace);
class DeviceParts {
 public:
  static constexpr size_t kAlignment = 128;  // of each part, a line of the caches

  DeviceParts() = default;
  // A block that begins at a multiple of kAlignment and outlives all parts.
  explicit DeviceParts(void* block) : block_(static_cast<char*>(block)) {}

  template <class T>
  DeviceArray<T> take(size_t size) {
    if (size == 0) return {};
    const size_t begin = ceil_div(bytes_, kAlignment) * kAlignment;
    bytes_ = begin + size * sizeof(T);
    return {block_ == nullptr ? nullptr : reinterpret_cast<T*>(block_ + begin), size};
  }
  // Up to the end of the last part.
  size_t bytes() const { return bytes_; }

 private:
  char* block_ = nullptr;
  size_t bytes_ = 0;
};

// The next of `parts`; without any, memory of its own.
template <class T>
DeviceArray<T> take(DeviceParts* parts, size_t size) {
  if (parts == nullptr) return DeviceBuffer<T>(size);
  return parts->take<T>(size);
}

}  // namespace gpu
