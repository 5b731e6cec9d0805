// empty: a kernel that does nothing, so that what is left is the cost of launching it.
#include "common/gpu.h"
#include "stage0_infra/03_timing/timing.h"

namespace timing {

static __global__ void empty(int) {}

void launch_empty(hipStream_t stream) { LAUNCH_ON(stream, empty, 1, 1, 0, 0); }

}  // namespace timing
