// Stage 0.3: what the machine can do, measured: the limits that every later program divides by.
//
//   copy   bytes/s of a copy within device memory, each byte counted once read and once written
//   read   bytes/s of reading device memory and keeping only a sum
//   fma    float operations/s, two per fused multiply-add, with nothing to wait for
//
// No single kernel reaches the limit on every device, so each limit has several probes in kVersions
// and is the rate of the best of them. The probes move far more than the last-level cache holds.
// How a time is taken (events, warm-up, median) is in common/timer.h.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "common/device_buffer.h"
#include "common/options.h"
#include "common/report.h"
#include "common/timer.h"
#include "common/version.h"

namespace timing {

using gpu::DeviceBuffer;

// ---- What the probes work on ------------------------------------------------------------------

// Host memory that the operating system may not move or swap out, so the device's copy engine can
// reach it without a detour.
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

constexpr int kBlock = 256;  // threads
// Every probe's tile (kBlock threads times its vectors of 16 bytes) divides this many vectors.
constexpr int kWholeTiles = kBlock * 16;

// The memory of the probes: `half` vectors to copy from, as many to copy to. Host buffers and
// results exist from their first use.
class Arena {
 public:
  // At least bytes_per_half bytes each, rounded up to whole tiles.
  explicit Arena(size_t bytes_per_half)
      : half_(kWholeTiles *
              std::max(gpu::ceil_div(bytes_per_half, kWholeTiles * sizeof(uint4)), size_t{1})),
        memory_(2 * half_) {
    HIP_CHECK(hipMemset(memory_.data(), 0, memory_.bytes()));
  }

  size_t half() const { return half_; }  // vectors
  size_t half_bytes() const { return half_ * sizeof(uint4); }
  uint4* from() { return memory_.data(); }  // 2 * half vectors in one piece
  uint4* to() { return memory_.data() + half_; }
  DeviceBuffer<uint4>& memory() { return memory_; }

  // What each of `threads` threads leaves behind.
  DeviceBuffer<unsigned>& sums(size_t threads) { return resize(sums_, threads); }
  DeviceBuffer<float>& chain_ends(size_t threads) { return resize(chain_ends_, threads); }
  DeviceBuffer<unsigned>& sums() { return sums_; }
  DeviceBuffer<float>& chain_ends() { return chain_ends_; }

  // Host memory for transfers, both kinds.
  size_t host_bytes() const { return std::min(half_bytes(), size_t{256} << 20); }
  void* pageable() {
    pageable_.resize(host_bytes());
    return pageable_.data();
  }
  void* pinned() {
    if (pinned_ == nullptr) pinned_ = std::make_unique<PinnedBuffer>(host_bytes());
    return pinned_->data();
  }

 private:
  template <class T>
  static DeviceBuffer<T>& resize(DeviceBuffer<T>& buffer, size_t size) {
    if (buffer.size() != size) buffer = DeviceBuffer<T>(size);
    return buffer;
  }

  size_t half_;
  DeviceBuffer<uint4> memory_;
  DeviceBuffer<unsigned> sums_;
  DeviceBuffer<float> chain_ends_;
  std::vector<unsigned char> pageable_;
  std::unique_ptr<PinnedBuffer> pinned_;
};

// ---- The probes ----
struct Probe {
  Work::Limit limit;              // what it measures; none for a transfer
  double (*queue)(Arena& arena);  // queues one run and returns its bytes; of fma its operations

  Work work(double amount) const {
    return limit == Work::Limit::fma ? Work{0, amount, limit} : Work{amount, 0, limit};
  }
};
using Launch = Probe;

inline constexpr auto kCopy = Work::Limit::copy, kRead = Work::Limit::read, kFma = Work::Limit::fma,
                      kTransfer = Work::Limit::none;

// Bytes of each half of the probes' memory.
size_t arena_bytes(bool quick);
// The limits of the selected device: for each the best probe's rate, from the median of its runs.
// Takes about 0.3 s on two processor cores and less on a GPU; allocates 2 GiB there and frees it.
// Throws gpu::Error where the device fails.
Limits measure_limits(bool quick);
// The same, or none where the command line wants none.
Limits measure_limits(const Options& options);

// Microseconds of launching a kernel that does nothing.
struct LaunchCost {
  double first = 0;   // the program's first launch of it, waited for: loads its code
  double queue = 0;   // host time to queue one of many
  double device = 0;  // time of one of many on the device, between events
  double wait = 0;    // host time to launch one and wait for it: the round trip
};
LaunchCost measure_launch_cost(bool quick);

// The same copy by three clocks, in milliseconds.
struct Clocks {
  double events = 0;        // recorded in the queue before and behind the work
  double host = 0;          // the host's clock, stopped after waiting for the device
  double host_no_wait = 0;  // the classic mistake: stopped when the work has been queued
};
Clocks compare_clocks(Arena& arena);

extern const std::vector<Version<Launch>> kVersions;

}  // namespace timing
