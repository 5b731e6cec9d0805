// A mean in a fixed order: every version ends in it.
#include "common/gpu.h"
#include "stage1_vector/03_dot/detail/block_sum.h"
#include "stage3_ml_ops/03_losses/losses.h"

namespace losses {

// The sum of values[first], values[first + step], ..., kLoads of them in flight at a time.
__device__ static inline float strided_sum(const float* values, size_t n, size_t first,
                                           size_t step) {
  float sum = 0;
  size_t i = first;
  for (; i + (kLoads - 1) * step < n; i += kLoads * step) {
    float held[kLoads];
    for (int k = 0; k < kLoads; ++k) held[k] = values[i + static_cast<size_t>(k) * step];
    for (int k = 0; k < kLoads; ++k) sum += held[k];
  }
  for (; i < n; i += step) sum += values[i];
  return sum;
}

// partials[b] = the sum of block b's share of values    values (n), partials (gridDim.x).
// Fixes : one block alone takes long for many values.
// Idea  : grid and tree follow from n alone, so the order is always the same.
// Thread: t sums the values t, t + T, ...; thread 0 of a block stores the block's sum.
// Costs : 4 n bytes of global memory; log2(kBlock) + 1 barriers.
static __global__ void sum_in_order(float* partials, const float* values, size_t n) {
  const size_t thread = size_t{blockIdx.x} * kBlock + threadIdx.x;
  const float sum = dot::block_sum_tree(strided_sum(values, n, thread, size_t{gridDim.x} * kBlock));
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

// *mean = (sum of values) / count    values (n), one block.
// Fixes : the blocks' sums are still many numbers.
// Idea  : the same tree once more, and the division where the sum is.
// Thread: t sums the values t, t + kBlock, ...; thread 0 stores the mean.
// Costs : 4 n bytes of global memory; log2(kBlock) + 1 barriers.
static __global__ void mean_in_order(float* mean, const float* values, size_t n, Count count) {
  const float sum = dot::block_sum_tree(strided_sum(values, n, threadIdx.x, kBlock));
  if (threadIdx.x == 0) *mean = sum / count.value();
}

void launch_mean(float* mean, const float* values, size_t n, Count count, float* partials,
                 hipStream_t stream) {
  const unsigned blocks = mean_blocks(n);
  if (blocks > 1) {
    LAUNCH_ON(stream, sum_in_order, blocks, kBlock, 0, partials, values, n);
    values = partials, n = blocks;
  }
  LAUNCH_ON(stream, mean_in_order, 1, kBlock, 0, mean, values, n, count);
}

}  // namespace losses
