// single_pass: the last block to finish adds the blocks' sums.
#include "common/gpu.h"
#include "stage1_vector/03_dot/detail/block_sum.h"
#include "stage1_vector/03_dot/detail/grid.h"
#include "stage1_vector/03_dot/detail/thread_sum.h"
#include "stage1_vector/03_dot/dot.h"

namespace dot {

// *result = x·y    x, y (n), any n, any alignment.
// Fixes : loads_in_flight needs *result cleared first, and adds the blocks' sums in any order.
// Idea  : blocks leave their sums in memory; the last one to arrive adds them, in their order.
// Thread: t sums the float4s t, t + T, ...; in the last block also partials[t], [t + kBlock], ...
// Costs : 8 n bytes of global memory; 4 barriers in the last block; one integer atomic per block.
static __global__ void GPU_LAUNCH_BOUNDS(kBlock, kResidentBlocks)
    dot_single_pass(float* result, const float* x, const float* y, Split split,
                    Workspace workspace) {
  __shared__ bool last;
  const float sum = block_sum(thread_sum(x, y, split));
  // exercise: leave the sum and count the block; the last block adds all sums (about 15 lines)
  if (threadIdx.x == 0) {
    workspace.partials[blockIdx.x] = sum;
    __threadfence();  // whoever sees this block counted sees its sum too
    last = atomicAdd(workspace.finished, 1u) == gridDim.x - 1;
    __threadfence();  // and the last block reads the sums, not older copies of its cache
  }
  __syncthreads();  // all threads know whether theirs is the last block
  if (last) {
    float total = 0;
    for (unsigned b = threadIdx.x; b < gridDim.x; b += kBlock) total += workspace.partials[b];
    total = block_sum(total);
    if (threadIdx.x == 0) {
      *result = total;
      *workspace.finished = 0;  // for the next launch
    }
  }
  // end exercise
}

void launch_single_pass(float* result, const float* x, const float* y, size_t n, void* workspace,
                        hipStream_t stream) {
  const Split split = split_vectors(n, {x, y});
  LAUNCH_ON(stream, dot_single_pass, dot_blocks(split), kBlock, 0, result, x, y, split,
            workspace_at(workspace));
}

}  // namespace dot
