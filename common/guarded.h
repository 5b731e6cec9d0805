// A device array for tests: n elements at a chosen distance from a 16-byte boundary, between two
// zones that nobody may write.
#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

#include "common/gpu_runtime.h"

//   | guard ... | offset | n elements | guard ... |      the first guard begins 256 bytes aligned
template <class T>
class Guarded {
 public:
  // Poisoned elements: each reads as NaN until something writes it.
  Guarded(size_t n, size_t offset) : n_(n), begin_(kGuard + offset) {
    HIP_CHECK(hipMalloc(reinterpret_cast<void**>(&memory_), bytes()));
    std::vector<unsigned char> content(bytes(), kCanary);
    std::memset(content.data() + begin_ * sizeof(T), 0xFF, n * sizeof(T));
    HIP_CHECK(hipMemcpy(memory_, content.data(), bytes(), hipMemcpyHostToDevice));
  }
  Guarded(const std::vector<T>& values, size_t offset) : Guarded(values.size(), offset) {
    if (n_ > 0) HIP_CHECK(hipMemcpy(data(), values.data(), n_ * sizeof(T), hipMemcpyHostToDevice));
  }
  ~Guarded() { static_cast<void>(hipFree(memory_)); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  T* data() { return memory_ + begin_; }
  size_t size() const { return n_; }

  std::vector<T> to_host() const {
    std::vector<T> values(n_);
    if (n_ > 0)
      HIP_CHECK(hipMemcpy(values.data(), memory_ + begin_, n_ * sizeof(T), hipMemcpyDeviceToHost));
    return values;
  }

  // True while nothing has written before the first element or behind the last.
  bool intact() const {
    std::vector<unsigned char> content(bytes());
    HIP_CHECK(hipMemcpy(content.data(), memory_, bytes(), hipMemcpyDeviceToHost));
    for (size_t i = 0; i < content.size(); ++i) {
      const bool inside = i >= begin_ * sizeof(T) && i < (begin_ + n_) * sizeof(T);
      if (!inside && content[i] != kCanary) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kGuard = 64;  // elements before and behind
  static constexpr unsigned char kCanary = 0xA5;
  size_t bytes() const { return (begin_ + n_ + kGuard) * sizeof(T); }

  size_t n_, begin_;
  T* memory_ = nullptr;
};
