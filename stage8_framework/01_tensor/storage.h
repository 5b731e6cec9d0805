// Where tensors lie. A Device is all that the framework asks of hardware at this step; a Storage is
// a piece of its memory with an owner and a version. Plain C++ that knows no device.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace framework {

class Tensor;

// Memory, and the order in which work on it is done: a device has one queue. It outlives its
// tensors. Errors: gpu::Error, out of memory included; everything is as before then.
class Device {
 public:
  virtual ~Device() = default;
  virtual const char* name() const = 0;  // "cuda", "cpu"

  // Uninitialised memory, aligned to 256 bytes, for what is queued from now on; nullptr for 0
  // bytes.
  virtual void* allocate(size_t bytes) = 0;
  // Takes back a block of allocate(). Work that is queued already may still use it.
  virtual void free(void* block) noexcept = 0;

  // Both wait until all bytes have arrived.
  virtual void to_device(void* to, const void* host, size_t bytes) = 0;
  virtual void to_host(void* host, const void* from, size_t bytes) = 0;

  // Queues out[i] = a[i] for tensors of one shape, converted to out's type. They do not overlap.
  virtual void copy(const Tensor& out, const Tensor& a) = 0;
};

// Shared by all tensors that are views of it, and freed with the last of them.
class Storage {
 public:
  Storage(Device& device, size_t bytes)
      : device_(device), bytes_(bytes), data_(device.allocate(bytes)) {}
  // Memory that somebody else owns: `owner` lives as long as the storage does.
  Storage(Device& device, void* data, size_t bytes, std::shared_ptr<void> owner)
      : device_(device), bytes_(bytes), data_(data), owner_(std::move(owner)), is_lent_(true) {}
  ~Storage() {
    if (!is_lent_) device_.free(data_);
  }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  Device& device() const { return device_; }
  void* data() const { return data_; }  // an address of the device
  size_t bytes() const { return bytes_; }

  // How often the content was changed. What has kept a tensor for later compares it with the
  // version that it saw, and names who has changed it since (8.3). `operation` is a literal.
  std::uint64_t version() const { return version_.load(std::memory_order_relaxed); }
  const char* last_writer() const { return last_writer_.load(std::memory_order_relaxed); }
  void count_write(const char* operation) {
    last_writer_.store(operation, std::memory_order_relaxed);
    version_.fetch_add(1, std::memory_order_relaxed);
  }

 private:
  Device& device_;
  size_t bytes_;
  void* data_;
  std::shared_ptr<void> owner_;
  bool is_lent_ = false;
  std::atomic<std::uint64_t> version_{0};
  std::atomic<const char*> last_writer_{""};
};

}  // namespace framework
