// mse_separate: the loss in one pass, its gradient in another.
#include "common/gpu.h"
#include "stage1_vector/03_dot/detail/block_sum.h"
#include "stage3_ml_ops/03_losses/losses.h"

namespace losses {

// partials[b] = sum of (p[i] - t[i])^2 over block b's share    p, t (n), partials (gridDim.x).
// Fixes : a CPU core takes the elements one after the other.
// Idea  : the reduction of 1.3 with another product; the grid follows from n alone.
// Thread: thread k of T sums over i = k, k + T, ...; thread 0 of a block stores the block's sum.
// Costs : 8 n bytes of global memory; log2(kBlock) + 1 barriers.
static __global__ void squared_error_sum(float* partials, const float* p, const float* t,
                                         size_t n) {
  const size_t threads = size_t{gridDim.x} * kBlock;
  float sum = 0;
  for (size_t i = size_t{blockIdx.x} * kBlock + threadIdx.x; i < n; i += threads) {
    const float difference = p[i] - t[i];
    sum += difference * difference;
  }
  sum = dot::block_sum_tree(sum);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

// grad[i] = scale (p[i] - t[i])    grad, p, t (n).
// Fixes : training needs the slope, not the loss.
// Idea  : one element per thread, as in 1.1.
// Thread: thread k of T owns grad[k], grad[k + T], ...
// Costs : 12 n bytes of global memory.
static __global__ void squared_error_gradient(float* grad, const float* p, const float* t, size_t n,
                                              float scale) {
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads)
    grad[i] = scale * (p[i] - t[i]);
}

void launch_squared_error_loss(float* loss, const float* p, const float* t, size_t n,
                               const Workspace& workspace, hipStream_t stream) {
  const unsigned blocks = scalar_blocks(n);
  LAUNCH_ON(stream, squared_error_sum, blocks, kBlock, 0, workspace.partials, p, t, n);
  launch_mean(loss, workspace.partials, blocks, {n}, workspace.partials + blocks, stream);
}

void launch_squared_error_separate(float* loss, float* grad, const float* p, const float* t,
                                   size_t n, const Workspace& workspace, hipStream_t stream) {
  launch_squared_error_loss(loss, p, t, n, workspace, stream);
  if (n > 0)
    LAUNCH_ON(stream, squared_error_gradient, vector_add::full_grid(n), kBlock, 0, grad, p, t, n,
              squared_error_scale(n));
}

}  // namespace losses
