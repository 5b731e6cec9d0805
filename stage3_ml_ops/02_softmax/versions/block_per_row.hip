// block_per_row: a block shares a row.
#include <cfloat>

#include "common/gpu.h"
#include "stage1_vector/03_dot/detail/block_sum.h"
#include "stage3_ml_ops/02_softmax/detail/team.h"
#include "stage3_ml_ops/02_softmax/softmax.h"

namespace softmax {

// The largest `value` of the block, in every thread: the tree of dot::block_sum_tree with another
// operation. Wait at a barrier before calling it again.
__device__ inline float block_max_tree(float value) {
  __shared__ float largest[kBlock];
  largest[threadIdx.x] = value;
  __syncthreads();  // every thread's value is in `largest`
  for (unsigned half = kBlock / 2; half > 0; half /= 2) {
    if (threadIdx.x < half)
      largest[threadIdx.x] = fmaxf(largest[threadIdx.x], largest[threadIdx.x + half]);
    __syncthreads();  // largest[0, half) hold the maximum of everything
  }
  return largest[0];
}

// Y = softmax(X)    X, Y (rows, cols), any sizes.
// Fixes : the lanes of thread_per_row use 4 bytes of every 32 that the memory sends.
// Idea  : the threads of a block share a row: neighbours read neighbours; trees in shared memory.
// Thread: t of the block owns the columns t, t + kBlock, ... of the row blockIdx.x.
// Costs : 3 reads and 1 write; 2 log2(kBlock) + 2 barriers per row, 8 kBlock bytes shared.
static __global__ void softmax_block_per_row(float* y, const float* x, size_t rows, size_t cols) {
  for (size_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const float* row_x = x + row * cols;
    float* row_y = y + row * cols;
    // exercise: the three passes, with the trees between them (about 7 lines)
    float max = -FLT_MAX, sum = 0;
    for (size_t c = threadIdx.x; c < cols; c += kBlock) max = fmaxf(max, row_x[c]);
    max = block_max_tree(max);
    for (size_t c = threadIdx.x; c < cols; c += kBlock) sum += exponential(row_x[c] - max);
    sum = dot::block_sum_tree(sum);
    const float scale = 1.0f / sum;
    for (size_t c = threadIdx.x; c < cols; c += kBlock)
      row_y[c] = scale * exponential(row_x[c] - max);
    // end exercise
  }
}

void launch_block_per_row(float* y, const float* x, size_t rows, size_t cols, hipStream_t stream) {
  if (rows == 0 || cols == 0) return;
  LAUNCH_ON(stream, softmax_block_per_row, row_blocks(rows, 1, kBlock), kBlock, 0, y, x, rows,
            cols);
}

}  // namespace softmax
