// How long does a launch take? Medians of many, after a warm-up: events on a GPU, the host clock on
// the CPU backend, where launches are synchronous. Stage 0.3 teaches what this does and why.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "common/gpu_runtime.h"

// ThreadSanitizer's build looks for races: it checks, and neither times nor trains beyond the
// check. A launch takes long there, and its time says nothing.
#if defined(COURSE_SANITIZE_THREAD)
inline constexpr bool kTimes = false;
#else
inline constexpr bool kTimes = true;
#endif

// Milliseconds per run: the median, and the 10th and 90th percentile as its spread.
struct Timing {
  double median = 0, p10 = 0, p90 = 0;
  int runs = 0;
};

// Sorts milliseconds and reads the percentiles off them. Empty input gives zeros.
inline Timing summarize(std::vector<double> ms) {
  if (ms.empty()) return {};
  std::sort(ms.begin(), ms.end());
  const auto at = [&](double share) {
    return ms[static_cast<size_t>(std::lround(share * static_cast<double>(ms.size() - 1)))];
  };
  return {at(0.5), at(0.1), at(0.9), static_cast<int>(ms.size())};
}

// Wall-clock milliseconds since construction.
class HostTimer {
 public:
  double ms() const {
    return std::chrono::duration<double, std::milli>(Clock::now() - start_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

// Times what is queued on a stream between start() and stop(). On a GPU two events are recorded in
// the queue, so the host's own pace does not count.
class GpuTimer {
 public:
  GpuTimer() {
    HIP_CHECK(hipEventCreate(&start_));
    HIP_CHECK(hipEventCreate(&stop_));
  }
  ~GpuTimer() {  // a destructor must not throw; these fail only once the device is lost
    static_cast<void>(hipEventDestroy(start_));
    static_cast<void>(hipEventDestroy(stop_));
  }
  GpuTimer(const GpuTimer&) = delete;
  GpuTimer& operator=(const GpuTimer&) = delete;

  void start(hipStream_t stream = nullptr) { HIP_CHECK(hipEventRecord(start_, stream)); }
  // Waits for the work and returns its milliseconds.
  double stop(hipStream_t stream = nullptr) {
    HIP_CHECK(hipEventRecord(stop_, stream));
    HIP_CHECK(hipEventSynchronize(stop_));
    float ms = 0;
    HIP_CHECK(hipEventElapsedTime(&ms, start_, stop_));
    return static_cast<double>(ms);
  }

 private:
  hipEvent_t start_ = nullptr, stop_ = nullptr;
};

// How work is timed: what one run takes about, how many runs are timed together (work shorter than
// the events can resolve is timed in batches, and divided), and how many of these batches are.
struct Pace {
  double once_ms = 0;
  int batch = 1, repeat = 0;
};

// Runs work that takes `once_ms` until the clocks have settled, for settle_ms at most; but not more
// than 4 times for each millisecond of it: where work is short, the host takes longer to queue it.
template <class Work>
void warm_up(Work&& work, double once_ms, double settle_ms) {
  const double warm_up_ms = std::min(settle_ms, 4 * settle_ms * once_ms);
  for (double spent = 0; spent < warm_up_ms; spent += once_ms) work();
}

// Runs `work` (something that queues GPU work on the default stream) until the clocks have settled.
// `settle_ms` is how long they may take: work that the device's power limits, such as large
// products on matrix units, begins fast and slows down within half a second. repeat 0 chooses
// between 5 and 100 so that the whole takes about half a second.
template <class Work>
Pace settle(Work&& work, int repeat = 0, double settle_ms = 20) {
  GpuTimer timer;
  timer.start();
  work();
  static_cast<void>(timer.stop());  // the first run loads code: its time is not used
  timer.start();
  work();
  Pace pace;
  pace.once_ms = std::max(timer.stop(), 1e-4);
  warm_up(work, pace.once_ms, settle_ms);
  pace.batch = static_cast<int>(std::clamp(0.2 / pace.once_ms, 1.0, 100.0));
  pace.repeat = repeat > 0
                    ? repeat
                    : static_cast<int>(std::clamp(500.0 / (pace.once_ms * pace.batch), 5.0, 100.0));
  return pace;
}

// Appends to `ms` what one of `batch` runs took, `repeat` times.
template <class Work>
void time_batches(std::vector<double>& ms, Work&& work, int batch, int repeat) {
  GpuTimer timer;
  for (int r = 0; r < repeat; ++r) {
    timer.start();
    for (int b = 0; b < batch; ++b) work();
    ms.push_back(timer.stop() / batch);
  }
}

// The time of `work`, which queues GPU work on the default stream.
template <class Work>
Timing time_gpu(Work&& work, int repeat = 0, double settle_ms = 20) {
  const Pace pace = settle(work, repeat, settle_ms);
  std::vector<double> ms;
  time_batches(ms, work, pace.batch, pace.repeat);
  return summarize(std::move(ms));
}

// The same for work on the host (references, loops to compare with): at least 3 runs.
template <class Work>
Timing time_host(Work&& work, int repeat = 3) {
  std::vector<double> ms;
  for (int r = 0; r < repeat; ++r) {
    HostTimer timer;
    work();
    ms.push_back(timer.ms());
  }
  return summarize(std::move(ms));
}
