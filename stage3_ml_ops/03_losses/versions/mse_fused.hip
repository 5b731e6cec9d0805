// mse_fused: one pass for loss and gradient: they need the same difference.
#include "common/gpu.h"
#include "stage1_vector/03_dot/detail/block_sum.h"
#include "stage3_ml_ops/03_losses/losses.h"

namespace losses {

// grad[i] = scale (p[i] - t[i]), partials[b] = block b's sum of (p[i] - t[i])^2
// grad, p, t (n), partials (gridDim.x). grad may be p or t.
// Fixes : the gradient of mse_separate reads p and t a second time.
// Idea  : loss and gradient need the same difference: one pass computes both.
// Thread: thread k of T owns the elements k, k + T, ...; thread 0 of a block stores its sum.
// Costs : 12 n bytes of global memory; log2(kBlock) + 1 barriers.
static __global__ void squared_error_fused(float* partials, float* grad, const float* p,
                                           const float* t, size_t n, float scale) {
  const size_t threads = size_t{gridDim.x} * kBlock;
  float sum = 0;
  for (size_t i = size_t{blockIdx.x} * kBlock + threadIdx.x; i < n; i += threads) {
    // exercise: the sum and the gradient's element from one difference (about 3 lines)
    const float difference = p[i] - t[i];
    sum += difference * difference;
    grad[i] = scale * difference;
    // end exercise
  }
  sum = dot::block_sum_tree(sum);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

void launch_squared_error_fused(float* loss, float* grad, const float* p, const float* t, size_t n,
                                const Workspace& workspace, hipStream_t stream) {
  const unsigned blocks = scalar_blocks(n);
  LAUNCH_ON(stream, squared_error_fused, blocks, kBlock, 0, workspace.partials, grad, p, t, n,
            squared_error_scale(n));
  launch_mean(loss, workspace.partials, blocks, {n}, workspace.partials + blocks, stream);
}

}  // namespace losses
