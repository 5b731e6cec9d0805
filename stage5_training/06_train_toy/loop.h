// Spans of steps: what the kernels of whole steps are given, launch by launch.
#pragma once

#include "stage5_training/06_train_toy/training.h"

namespace train_toy {

inline constexpr unsigned kStepsPerLaunch = 65536;  // of a persistent kernel

// What the kernels of whole steps take, for `count` steps from t.steps on. Queues a kernel that
// fills their schedules: versions/one_kernel.hip.
Arrays make_arrays(Training& t, unsigned count);

// Queues a kernel that does the steps of `span`. It changes what `arrays` points to.
using QueueSpan = void (*)(const Network& n, Kind kind, const Arrays& arrays, const Span& span,
                           hipStream_t stream);

// Queues `steps` steps in spans of at most `longest`. Their schedules are made for kStepsPerLaunch
// steps at a time.
void launch_spans(Training& t, unsigned steps, unsigned longest, QueueSpan queue);

}  // namespace train_toy
