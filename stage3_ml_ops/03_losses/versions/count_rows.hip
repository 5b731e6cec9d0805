// How many rows a cross-entropy's mean is of: known before the first gradient is written.
#include <limits>
#include <stdexcept>
#include <string>

#include "common/gpu.h"
#include "stage1_vector/03_dot/detail/block_sum.h"
#include "stage3_ml_ops/03_losses/detail/count.h"
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

// *counted = how many labels are not ignored    labels (rows), one block.
// Fixes : count_labels adds to a number that a launch before it has to set to 0.
// Idea  : one block counts them all, where they are few.
// Thread: t counts the rows t, t + kBlock, ...
// Costs : 4 rows bytes of global memory; log2(kBlock) + 2 barriers.
static __global__ void count_few_labels(unsigned* counted, Targets targets) {
  float count = 0;
  for (size_t first = 0; first < targets.rows; first += kBlock * kLoads)
    count += counted_from(targets, first);
  const float sum = dot::block_sum_tree(count);
  if (threadIdx.x == 0) *counted = static_cast<unsigned>(sum);
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
  if (targets.rows <= kOneBlock) {
    LAUNCH_ON(stream, count_few_labels, 1, kBlock, 0, workspace.counted, targets);
    return {targets.rows, workspace.counted};
  }
  HIP_CHECK(hipMemsetAsync(workspace.counted, 0, sizeof(unsigned), stream));
  LAUNCH_ON(stream, count_labels, vector_add::grid_stride_blocks(targets.rows), kBlock, 0,
            workspace.counted, targets);
  return {targets.rows, workspace.counted};
}

}  // namespace losses
