// The schedules of many steps at once. Step 5.7 fills its own with this kernel, too.
#pragma once

#include <cstdint>

#include "common/gpu.h"
#include "stage5_training/04_optimizers/detail/rules.h"

namespace train_toy {

using optimizers::Hyperparameters;
using optimizers::Schedule;

// schedules[i] = the schedule of step done + 1 + i    schedules (count).
// Fixes : a kernel that does many steps has no host or kernel in between that begins each of them,
//         and two powers in double take longer than a step.
// Idea  : what a step needs beside the gradients depends on its number only: all of them at once.
// Thread: t owns the step done + 1 + t.
// Costs : 48 bytes of global memory per step.
static __global__ void fill_schedules(Schedule* schedules, Hyperparameters hyper, unsigned done,
                                      unsigned count) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  Schedule schedule;
  schedule.hyper = hyper, schedule.step = std::uint64_t{done} + i;
  optimizers::advance(schedule);
  schedules[i] = schedule;
}

}  // namespace train_toy
