// The pair (maximum, sum of exponentials) that is known of a part of a row, how threads merge their
// pairs, and who shares a row: a block or a wave.
#pragma once

#include <cfloat>
#include <cstddef>

#include "common/gpu.h"
#include "stage1_vector/03_dot/detail/block_sum.h"
#include "stage3_ml_ops/02_softmax/detail/grid.h"

namespace softmax {

// exp(difference) for differences of at most 0. GPUs have an instruction for 2^x: exp2f takes half
// the instructions of expf, and a block that computes for less time keeps the memory busy longer.
__device__ inline float exponential(float difference) { return exp2f(1.44269504f * difference); }

// The largest `value` of the wave, in every lane, as dot::wave_sum.
__device__ inline float wave_max(float value) {
  for (int distance = gpu::wave_size() / 2; distance > 0; distance /= 2)
    value = fmaxf(value, gpu::wave_shfl_xor(value, distance));
  return value;
}

// What is known of a part of a row: its maximum, and the sum of exp(x - max) over its elements.
//
//   {3, s} and {5, t}  are together  {5, s exp(3 - 5) + t}     (Milakov and Gimelshein: Online
//                                                  normalizer calculation for softmax, 2018)
//
// The maximum of no elements is the smallest finite float rather than -infinity: -infinity minus
// -infinity would be NaN, but exp(-infinity - smallest) is the 0 that a masked element shall count.
struct MaxSum {
  float max, sum;
};

__device__ inline MaxSum nothing() { return {-FLT_MAX, 0.0f}; }

__device__ inline MaxSum merge(MaxSum a, MaxSum b) {
  const float max = fmaxf(a.max, b.max);
  return {max, a.sum * exponential(a.max - max) + b.sum * exponential(b.max - max)};
}

// exp(x - max) becomes a probability of the whole row when it is multiplied by this.
__device__ inline float probability_scale(float max, MaxSum whole) {
  return exponential(max - whole.max) / whole.sum;
}

// The parts of all lanes together, in every lane: one exponential per lane, as the maximum of all
// is found first.
__device__ inline MaxSum wave_merge(MaxSum part) {
  const float max = wave_max(part.max);
  return {max, dot::wave_sum(part.sum * exponential(part.max - max))};
}

// The parts of all threads of a block of whole waves together, in every thread. versions/online.hip
// teaches it, written out in its kernel. The first barrier makes a second call safe.
__device__ inline MaxSum block_merge(MaxSum part) {
  __shared__ MaxSum parts[kMaxWaves];
  part = wave_merge(part);
  __syncthreads();  // nobody reads the parts of the row before any more
  if (gpu::lane_id() == 0) parts[gpu::wave_id()] = part;
  __syncthreads();  // every wave's part is in `parts`
  const int waves = static_cast<int>(blockDim.x) / gpu::wave_size();
  return wave_merge(gpu::lane_id() < waves ? parts[gpu::lane_id()] : nothing());
}

// Kernels are written for a team of threads that share a row: a block, or each wave of a block.

template <unsigned kThreads>
struct BlockTeam {
  static constexpr unsigned kBlockThreads = kThreads;
  static unsigned host_size() { return kThreads; }
  __device__ static unsigned size() { return kThreads; }
  __device__ static unsigned rank() { return threadIdx.x; }
  __device__ static size_t first_row() { return blockIdx.x; }
  __device__ static size_t rows_in_grid() { return gridDim.x; }
  __device__ static MaxSum merge(MaxSum part) { return block_merge(part); }
};

struct WaveTeam {
  static constexpr unsigned kBlockThreads = kBlock;
  static unsigned host_size() { return gpu::device_wave_size(); }
  __device__ static unsigned size() { return static_cast<unsigned>(gpu::wave_size()); }
  __device__ static unsigned rank() { return static_cast<unsigned>(gpu::lane_id()); }
  __device__ static size_t first_row() {
    return size_t{blockIdx.x} * (kBlock / size()) + static_cast<size_t>(gpu::wave_id());
  }
  __device__ static size_t rows_in_grid() { return size_t{gridDim.x} * (kBlock / size()); }
  __device__ static MaxSum merge(MaxSum part) { return wave_merge(part); }
};

}  // namespace softmax
