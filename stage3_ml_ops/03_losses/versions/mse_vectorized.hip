// mse_vectorized: 16 bytes per load, a tile of them in flight.
#include "common/gpu.h"
#include "stage1_vector/03_dot/detail/block_sum.h"
#include "stage3_ml_ops/03_losses/losses.h"

namespace losses {

// Adds (p - t)^2 to sum and returns the gradient's element; then the same for four.
__device__ static inline float squared_error(float p, float t, float scale, float& sum) {
  const float difference = p - t;
  sum += difference * difference;
  return scale * difference;
}
__device__ static inline float4 squared_error(float4 p, float4 t, float scale, float4& sum) {
  return make_float4(squared_error(p.x, t.x, scale, sum.x), squared_error(p.y, t.y, scale, sum.y),
                     squared_error(p.z, t.z, scale, sum.z), squared_error(p.w, t.w, scale, sum.w));
}

// grad[i] = scale (p[i] - t[i]), partials[b] = block b's sum of (p[i] - t[i])^2
// grad, p, t (n), any alignment, partials (gridDim.x). grad may be p or t.
// Fixes : mse_fused asks for 4 bytes at a time, from addresses all over the arrays.
// Idea  : a block takes tiles of kBlock * kVectors float4s; all of a tile is in flight at once.
// Thread: t owns the float4s t, t + kBlock, ... of each tile; of head and tail t, t + T, ...
// Costs : 12 n bytes of global memory; log2(kBlock) + 1 barriers; 32 kVectors bytes in flight.
static __global__ void squared_error_vectorized(float* partials, float* grad, const float* p,
                                                const float* t, Split split, float scale) {
  constexpr size_t kTile = size_t{kBlock} * kVectors;
  const float4* p4 = reinterpret_cast<const float4*>(p + split.head);
  const float4* t4 = reinterpret_cast<const float4*>(t + split.head);
  float4* grad4 = reinterpret_cast<float4*>(grad + split.head);
  float4 sum = make_float4(0, 0, 0, 0);
  for (size_t tile = blockIdx.x * kTile; tile < split.vectors; tile += gridDim.x * kTile) {
    size_t v = tile + threadIdx.x;
    if (tile + kTile <= split.vectors) {
      float4 held_p[kVectors], held_t[kVectors];
      for (size_t k = 0; k < kVectors; ++k) {
        held_p[k] = p4[v + k * kBlock];
        held_t[k] = t4[v + k * kBlock];
      }
      for (size_t k = 0; k < kVectors; ++k)
        grad4[v + k * kBlock] = squared_error(held_p[k], held_t[k], scale, sum);
    } else {  // the last tile
      for (; v < split.vectors; v += kBlock) grad4[v] = squared_error(p4[v], t4[v], scale, sum);
    }
  }
  const size_t threads = size_t{gridDim.x} * kBlock;
  for (size_t s = size_t{blockIdx.x} * kBlock + threadIdx.x; s < split.head + split.tail;
       s += threads) {
    const size_t i = s < split.head ? s : s + 4 * split.vectors;
    grad[i] = squared_error(p[i], t[i], scale, sum.x);
  }
  const float total = dot::block_sum_tree((sum.x + sum.y) + (sum.z + sum.w));
  if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

void launch_squared_error_vectorized(float* loss, float* grad, const float* p, const float* t,
                                     size_t n, const Workspace& workspace, hipStream_t stream) {
  const Split split = split_vectors(n, {grad, p, t});
  const unsigned blocks = tile_blocks(split);
  LAUNCH_ON(stream, squared_error_vectorized, blocks, kBlock, 0, workspace.partials, grad, p, t,
            split, squared_error_scale(n));
  launch_mean(loss, workspace.partials, blocks, {n}, workspace.partials + blocks, stream);
}

}  // namespace losses
