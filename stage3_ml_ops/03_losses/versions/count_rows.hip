// How many rows a cross-entropy's mean is of: known before the first gradient is written.
#include <limits>
#include <stdexcept>
#include <string>

#include "common/gpu.h"
#include "stage3_ml_ops/03_losses/losses.h"

namespace losses {

// *counted += how many labels are not ignored    labels (rows).
// Fixes : every gradient is divided by the number of rows that count, so it is needed first.
// Idea  : integers add up alike in every order, so atomics may add them.
// Thread: t counts the rows t, t + T, ...
// Costs : 4 rows bytes of global memory; an atomic per thread.
static __global__ void count_labels(unsigned* counted, Targets targets) {
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  unsigned count = 0;
  for (size_t row = size_t{blockIdx.x} * blockDim.x + threadIdx.x; row < targets.rows;
       row += threads)
    if (targets.label(row) != kIgnored) ++count;
  if (count > 0) atomicAdd(counted, count);
}

void check(const Targets& targets, const Workspace& workspace) {
  if (targets.rows > 0 && targets.classes == 0)
    throw std::invalid_argument("cross-entropy needs at least one class");
  if (targets.rows > workspace.rows)
    throw std::invalid_argument("a batch of " + std::to_string(targets.rows) +
                                " rows for a workspace of " + std::to_string(workspace.rows));
  if (targets.rows > std::numeric_limits<unsigned>::max())
    throw std::invalid_argument("cross-entropy takes fewer than 2^32 rows");
}

Count count_rows(const Targets& targets, const Workspace& workspace, hipStream_t stream) {
  check(targets, workspace);
  if (!targets.ignores() || targets.rows == 0) return {targets.rows};
  HIP_CHECK(hipMemsetAsync(workspace.counted, 0, sizeof(unsigned), stream));
  LAUNCH_ON(stream, count_labels, vector_add::grid_stride_blocks(targets.rows), kBlock, 0,
            workspace.counted, targets);
  return {targets.rows, workspace.counted};
}

}  // namespace losses
