// shared_tree: a tree in shared memory, one atomic per block.
#include "common/gpu.h"
#include "stage1_vector/03_dot/detail/grid.h"
#include "stage1_vector/03_dot/dot.h"

namespace dot {

// *result += x·y    x, y (n), any n; *result is 0 before.
// Fixes : atomic makes n threads queue up for one address.
// Idea  : threads sum in a register, the block in a tree in shared memory; one atomic per block.
//           sums     0 1 2 3 4 5 6 7    each round the lower half adds the upper half to itself
//           round 1  0+4 1+5 2+6 3+7
//           round 2  0+4+2+6 1+5+3+7
//           round 3  all
// Thread: t sums x[i] * y[i] over i = t, t + T, ...; thread 0 of a block adds the block's sum.
// Costs : 8 n bytes of global memory; log2(kBlock) + 1 barriers, 4 kBlock bytes of shared memory.
static __global__ void dot_shared_tree(float* result, const float* x, const float* y, size_t n) {
  __shared__ float sums[kBlock];
  const size_t thread = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  float sum = 0;
  for (size_t i = thread; i < n; i += threads) sum += x[i] * y[i];
  // exercise: the tree; say at each barrier what is true after it (about 6 lines)
  sums[threadIdx.x] = sum;
  __syncthreads();  // every thread's sum is in sums
  for (unsigned half = kBlock / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();  // sums[0, half) hold the sum of everything
  }
  // end exercise
  if (threadIdx.x == 0) atomicAdd(result, sums[0]);
}

void launch_shared_tree(float* result, const float* x, const float* y, size_t n,
                        void* /*workspace*/, hipStream_t stream) {
  HIP_CHECK(hipMemsetAsync(result, 0, sizeof(float), stream));
  LAUNCH_ON(stream, dot_shared_tree, dot_blocks(n), kBlock, 0, result, x, y, n);
}

}  // namespace dot
