// A counter that host threads wait for without a mutex or a condition variable, in which
// ThreadSanitizer would see an order, and without sleeping, at which it walks over all its fibers.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace cpu {

class UnseenCounter {
 public:
  void add_one() {
    count_.fetch_add(1, std::memory_order_release);
    // Who has waited may be gone already, and the counter with it: a futex that nobody waits at is
    // woken in vain.
    syscall(SYS_futex, &count_, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
  }

  // Returns when it has been counted up to `count`, at most 2^32 - 1.
  void wait_for(size_t count) {
    for (;;) {
      const std::uint32_t now = count_.load(std::memory_order_acquire);
      if (now >= count) return;
      syscall(SYS_futex, &count_, FUTEX_WAIT_PRIVATE, now, nullptr, nullptr, 0);
    }
  }

 private:
  std::atomic<std::uint32_t> count_{0};
};

}  // namespace cpu
