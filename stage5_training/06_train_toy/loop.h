// The loops of a training over its steps: a launch per step, or spans of steps per launch.
#pragma once

#include <algorithm>

#include "stage5_training/06_train_toy/trainer.h"

namespace train_toy {

inline constexpr unsigned kStepsPerLaunch = 65536;  // of a persistent kernel

// Queues one step, a kernel per operation: versions/operations.hip.
void launch_step(Trainer& t);

// Calls run(n) for pieces of n steps, up to the next step whose loss goes to the curve.
template <class Run>
void run_in_pieces(Trainer& t, unsigned steps, Run run) {
  t.require_room(steps);
  while (steps > 0) {
    const unsigned piece = std::min(steps, t.every - t.done % t.every);
    run(piece);
    t.done += piece, steps -= piece;
    if (t.done % t.every == 0)
      HIP_CHECK(hipMemcpyAsync(t.curve.data() + t.done / t.every - 1, t.loss.data(), sizeof(float),
                               hipMemcpyDeviceToDevice, t.stream));
  }
}

// What the kernels of whole steps take, for `count` steps from t.done on. Queues a kernel that
// fills their schedules: versions/one_kernel.hip.
Arrays make_arrays(Trainer& t, unsigned count);

// Queues a kernel that does the steps of `span`. It changes what `arrays` points to.
using QueueSpan = void (*)(const Network& n, Kind kind, const Arrays& arrays, const Span& span,
                           hipStream_t stream);

// Queues `steps` steps in spans of at most `longest`. Their schedules are made for kStepsPerLaunch
// steps at a time.
void launch_spans(Trainer& t, unsigned steps, unsigned longest, QueueSpan queue);

}  // namespace train_toy
