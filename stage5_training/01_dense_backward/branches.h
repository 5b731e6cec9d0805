// Streams for work that may run at the same time, and where a launch is queued. Plain C++.
#pragma once

#include <cstddef>

#include "common/gpu_runtime.h"

namespace dense_backward {

// Two streams beside the caller's. A program or a training creates them once, on its device, and
// hands them to what it launches. fork(): they wait for what the caller's stream has been given so
// far. join(): the caller's stream waits for them. Both only put events into queues, the host goes
// on, and a graph that captures the caller's stream captures all three. Two launches that may run
// at the same time need two of these. Errors: gpu::Error.
//
//   caller's   ----+------ grad_w ------------+----
//                  |                          |
//   [0]            +------ grad_x ---------+--+
//   [1]            +-- grad_bias --+----------+
//                fork                       join
class Branches {
 public:
  Branches() {
    for (hipStream_t& stream : streams_)
      HIP_CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
    for (hipEvent_t& event : events_)
      HIP_CHECK(hipEventCreateWithFlags(&event, hipEventDisableTiming));
  }
  ~Branches() {  // a destructor must not throw; these fail only once the device is lost
    for (hipStream_t stream : streams_) static_cast<void>(hipStreamDestroy(stream));
    for (hipEvent_t event : events_) static_cast<void>(hipEventDestroy(event));
  }
  Branches(const Branches&) = delete;
  Branches& operator=(const Branches&) = delete;

  hipStream_t operator[](size_t i) const { return streams_[i]; }

  void fork(hipStream_t from) const {
    HIP_CHECK(hipEventRecord(events_[kCount], from));
    for (hipStream_t stream : streams_) HIP_CHECK(hipStreamWaitEvent(stream, events_[kCount], 0));
  }
  void join(hipStream_t to) const {
    for (size_t i = 0; i < kCount; ++i) {
      HIP_CHECK(hipEventRecord(events_[i], streams_[i]));
      HIP_CHECK(hipStreamWaitEvent(to, events_[i], 0));
    }
  }

 private:
  static constexpr size_t kCount = 2;
  hipStream_t streams_[kCount] = {};
  hipEvent_t events_[kCount + 1] = {};  // one at each stream's end, one where they fork
};

// Where a launch is queued: on the caller's stream, and on these branches of it where it has some.
// A stream alone converts to it.
struct Streams {
  Streams(hipStream_t stream, const Branches* branches_of_it = nullptr)
      : caller(stream), branches(branches_of_it) {}

  hipStream_t caller;
  const Branches* branches;
};

}  // namespace dense_backward
