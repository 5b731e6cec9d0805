// Sums over a wave and over a block, for any kernel. versions/shared_tree.hip and
// versions/wave_shuffle.hip teach them, each written out in its kernel for kBlock threads and one
// result in thread 0. These return the sum to the caller and take blocks of any power of two.
#pragma once

#include "common/gpu.h"
#include "stage1_vector/03_dot/detail/grid.h"

namespace dot {

// The sum of `value` over the block, in every thread; the order of the additions depends on
// kThreads alone, so the bits are the same on every device. All threads of the block call it, and
// wait at a barrier before they call it again: one of them may still be reading.
template <unsigned kThreads = kBlock>
__device__ inline float block_sum_tree(float value) {
  static_assert((kThreads & (kThreads - 1)) == 0, "a tree halves the block again and again");
  __shared__ float sums[kThreads];
  sums[threadIdx.x] = value;
  __syncthreads();  // every thread's value is in sums
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();  // sums[0, half) hold the sum of everything
  }
  return sums[0];
}

// The sum of `value` over the wave, or over each group of `lanes` neighbours, a power of two, in
// every lane: lanes 2^k apart exchange and add. All lanes of the wave call it.
__device__ inline float wave_sum(float value, int lanes = gpu::wave_size()) {
  for (int distance = lanes / 2; distance > 0; distance /= 2)
    value += gpu::wave_shfl_xor(value, distance);
  return value;
}

// The sum of `value` over the block, in the threads of wave 0; the order depends on the size of a
// wave. All threads of the block call it, and wait at a barrier before they call it again: wave 0
// may still be reading.
template <unsigned kThreads = kBlock>
__device__ inline float block_sum(float value) {
  __shared__ float sums[kThreads];  // one per wave is used
  value = wave_sum(value);
  if (gpu::lane_id() == 0) sums[gpu::wave_id()] = value;
  __syncthreads();  // every wave's sum is in sums
  const int waves = static_cast<int>(kThreads) / gpu::wave_size();
  if (gpu::wave_id() == 0) value = wave_sum(gpu::lane_id() < waves ? sums[gpu::lane_id()] : 0.0f);
  return value;
}

}  // namespace dot
