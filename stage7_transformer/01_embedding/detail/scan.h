// Sums over the lanes and threads before one's own, and where the counts of a sort lie.
#pragma once

#include "common/gpu.h"
#include "stage3_ml_ops/02_softmax/detail/grid.h"
#include "stage7_transformer/01_embedding/detail/plan.h"

namespace embedding {

inline constexpr unsigned kDigits = 1u << kDigitBits;
inline constexpr unsigned kCounts = kDigits * softmax::kMaxWaves;

// Where number i of counts lies: a word is left out behind every 8, so that threads that each read
// 8 of them in order meet in no bank.
__device__ inline unsigned place_of(unsigned i) { return i + i / 8; }

// The sum of `value` over the lanes up to this one.
__device__ inline unsigned sum_up_to_lane(unsigned value) {
  for (int distance = 1; distance < gpu::wave_size(); distance *= 2) {
    const unsigned other = gpu::wave_shfl_up(value, distance);
    if (gpu::lane_id() >= distance) value += other;
  }
  return value;
}

// The sum of `value` over the threads before this one.
__device__ inline unsigned sum_of_those_before(unsigned value) {
  __shared__ unsigned totals[softmax::kMaxWaves];
  const int waves = static_cast<int>(blockDim.x) / gpu::wave_size();
  const unsigned sum = sum_up_to_lane(value);
  if (gpu::lane_id() == gpu::wave_size() - 1) totals[gpu::wave_id()] = sum;
  __syncthreads();  // every wave's sum is in `totals`
  const unsigned of_wave = gpu::lane_id() < waves ? totals[gpu::lane_id()] : 0;
  const unsigned before = gpu::wave_shfl(sum_up_to_lane(of_wave) - of_wave, gpu::wave_id());
  return before + sum - value;
}

}  // namespace embedding
