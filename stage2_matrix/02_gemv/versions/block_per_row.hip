// block_per_row: a block sums a row, and adds its threads' sums in a tree in shared memory.
#include "common/gpu.h"
#include "stage1_vector/03_dot/detail/block_sum.h"
#include "stage2_matrix/02_gemv/detail/plan.h"
#include "stage2_matrix/02_gemv/gemv.h"

namespace gemv {

// y = A x    a (rows, cols), x (cols), y (rows).
// Fixes : the lanes of thread_per_row read addresses that lie a row apart.
// Idea  : a block reads a row: neighbours read neighbours; the tree of step 1.3 adds their sums.
// Thread: t sums columns t, t + kBlock, ... of the rows b, b + gridDim.x, ... of its block b.
// Costs : 4 rows cols bytes; log2(kBlock) + 2 barriers per row; 4 kBlock bytes of shared memory.
static __global__ void gemv_block_per_row(float* y, const float* a, const float* x, size_t rows,
                                          size_t cols) {
  for (size_t row = blockIdx.x; row < rows; row += gridDim.x) {
    // exercise: the block's threads share the row out; one of them stores (about 5 lines)
    float sum = 0;
    for (size_t col = threadIdx.x; col < cols; col += kBlock) sum += a[row * cols + col] * x[col];
    sum = dot::block_sum_tree(sum);
    if (threadIdx.x == 0) y[row] = sum;
    __syncthreads();  // every thread has read the sum: shared memory is free for the next row
    // end exercise
  }
}

void launch_block_per_row(float* y, const float* a, const float* x, size_t rows, size_t cols,
                          hipStream_t stream) {
  if (rows == 0) return;
  LAUNCH_ON(stream, gemv_block_per_row, grid_size(rows), kBlock, 0, y, a, x, rows, cols);
}

}  // namespace gemv
