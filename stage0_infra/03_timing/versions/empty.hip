// empty: a kernel that does nothing, so that what is left is the cost of launching it.
#include "common/gpu.h"
#include "stage0_infra/03_timing/timing.h"

namespace timing {

// Computes nothing.
// Fixes : every other kernel's time has its own work in it.
// Idea  : a kernel without work takes as long as its launch.
// Thread: one thread returns at once.
// Costs : one launch.
static __global__ void empty(int) {}

void launch_empty(hipStream_t stream) { LAUNCH_ON(stream, empty, 1, 1, 0, 0); }

}  // namespace timing
