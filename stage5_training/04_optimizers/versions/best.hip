// best: what a training loop calls, the update of `flat` behind the kernel that begins the step.
#include "stage5_training/04_optimizers/detail/rules.h"
#include "stage5_training/04_optimizers/optimizers.h"

namespace optimizers {

// schedule->step += 1, and the factors of that step.
// Fixes : a step number passed by the host is frozen into a captured graph.
// Idea  : the device counts. One thread computes once what all parameters need.
// Thread: the only one does it all.
// Costs : one launch of one thread per step, two powers in double.
static __global__ void begin_step(Schedule* schedule) { advance(*schedule); }

void launch_begin_step(Schedule* schedule, hipStream_t stream) {
  LAUNCH_ON(stream, begin_step, 1, 1, 0, schedule);
}

void step(Kind kind, const ParameterArena& arena, Schedule* schedule, hipStream_t stream) {
  launch_begin_step(schedule, stream);
  launch_update(kind, arena, schedule, stream);
}

}  // namespace optimizers
