// two_pass: fixed grid, fixed order: the same bits on every device.
#include "common/gpu.h"
#include "stage1_vector/03_dot/detail/block_sum.h"
#include "stage1_vector/03_dot/detail/grid.h"
#include "stage1_vector/03_dot/detail/thread_sum.h"
#include "stage1_vector/03_dot/dot.h"

namespace dot {

// partials[b] = the sum of block b's share of x·y    x, y (n), partials (gridDim.x).
// Fixes : the order of single_pass's additions depends on the device: on its number of
//         multiprocessors through the grid, and on the size of its waves.
// Idea  : grid and tree follow from n alone; the kernel's end is the barrier between the passes.
// Thread: t sums the float4s t, t + T, ...; thread 0 of a block stores the block's sum.
// Costs : 8 n bytes of global memory; log2(kBlock) + 1 barriers; a second launch.
static __global__ void GPU_LAUNCH_BOUNDS(kBlock, kResidentBlocks)
    dot_partials(float* partials, const float* x, const float* y, Split split) {
  const float sum = block_sum_tree(thread_sum(x, y, split));
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

// *result = sum over b of partials[b]    partials (count), one block.
// Fixes : a block can't know when the others have left their sums; the next launch can.
// Idea  : the same tree once more.
// Thread: t sums partials[t], partials[t + kBlock], ...; thread 0 stores the result.
// Costs : 4 count bytes of global memory; log2(kBlock) + 1 barriers.
static __global__ void sum_partials(float* result, const float* partials, unsigned count) {
  // exercise: the sum of all partials, in an order that count alone decides (about 4 lines)
  float total = 0;
  for (unsigned b = threadIdx.x; b < count; b += kBlock) total += partials[b];
  total = block_sum_tree(total);
  if (threadIdx.x == 0) *result = total;
  // end exercise
}

void launch_two_pass(float* result, const float* x, const float* y, size_t n, void* workspace,
                     hipStream_t stream) {
  const Split split = split_vectors(n, {x, y});
  const unsigned blocks = fixed_blocks(split);
  float* const partials = workspace_at(workspace).partials;
  LAUNCH_ON(stream, dot_partials, blocks, kBlock, 0, partials, x, y, split);
  LAUNCH_ON(stream, sum_partials, 1, kBlock, 0, result, partials, blocks);
}

}  // namespace dot
