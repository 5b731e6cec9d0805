// A block's part of a step of fused and persistent: samples go forward and back in registers.
#pragma once

#include <algorithm>
#include <cstddef>

#include "common/gpu.h"
#include "stage5_training/07_train_sales/detail/owned.h"

namespace train_sales {

inline constexpr unsigned kLoads = 8;  // blocks' sums on their way per thread

// A hidden unit's slots in registers: its weights and bias, its weight in the output and the
// output's bias; or the gradients of those.
struct Unit {
  float row[kRow];
  float out_weight, out_bias;
};

__device__ inline Unit load_unit(const float* slots, unsigned unit) {
  Unit result;
  GPU_UNROLL
  for (unsigned k = 0; k < kRow; ++k) result.row[k] = slots[unit * kRow + k];
  result.out_weight = slots[kOutWeights + unit];
  result.out_bias = slots[kOutBias];
  return result;
}

// Takes the samples group, group + kGroups, ... of a tile forward: sums[s] is this unit's sum
// before ReLU, y[s] the prediction without the output's bias.
__device__ inline void forward_tile(float (&sums)[kSamples], float (&y)[kSamples], const Unit& unit,
                                    const float4 (*tile)[kParts]) {
  const unsigned group = threadIdx.x / kHidden;
  GPU_UNROLL
  for (unsigned s = 0; s < kSamples; ++s) {
    const float4* row = tile[group + s * kGroups];
    float sum = unit.row[kFeatures];
    GPU_UNROLL
    for (unsigned part = 0; part < kFeatureParts; ++part) {
      const float4 x = row[part];
      sum = fmaf(unit.row[4 * part], x.x, sum);
      sum = fmaf(unit.row[4 * part + 1], x.y, sum);
      sum = fmaf(unit.row[4 * part + 2], x.z, sum);
      sum = fmaf(unit.row[4 * part + 3], x.w, sum);
    }
    sums[s] = sum, y[s] = fmaxf(sum, 0.0f) * unit.out_weight;
  }
  // The sum over the units of a group: all its lanes get it. The samples' exchanges overlap.
  for (unsigned distance = kHidden / 2; distance > 0; distance /= 2) {
    GPU_UNROLL
    for (unsigned s = 0; s < kSamples; ++s)
      y[s] += gpu::wave_shfl_xor(y[s], static_cast<int>(distance));
  }
}

// What the prediction of sample `sample` of a tile is off; 0 for those behind the first `count`.
__device__ inline float error_of(float y, const Unit& unit, const float4* row, unsigned sample,
                                 unsigned count) {
  return sample < count ? y + unit.out_bias - row[kFeatureParts].x : 0.0f;
}

// Takes a tile forward and back, as versions/fused.hip does in its kernel: adds to the unit's
// gradient and to the sum of the squared errors. scale is 2 / batch.
__device__ inline void add_tile(Unit& gradient, float& loss, const Unit& unit,
                                const float4 (*tile)[kParts], unsigned count, float scale) {
  const unsigned group = threadIdx.x / kHidden;
  float sums[kSamples], y[kSamples];
  forward_tile(sums, y, unit, tile);
  GPU_UNROLL
  for (unsigned s = 0; s < kSamples; ++s) {
    const float4* row = tile[group + s * kGroups];
    const float error = error_of(y[s], unit, row, group + s * kGroups, count);
    loss = fmaf(error, error, loss);
    const float grad_y = scale * error;
    gradient.out_bias += grad_y;
    gradient.out_weight = fmaf(grad_y, fmaxf(sums[s], 0.0f), gradient.out_weight);
    const float grad_sum = sums[s] > 0 ? grad_y * unit.out_weight : 0.0f;
    gradient.row[kFeatures] += grad_sum;
    GPU_UNROLL
    for (unsigned part = 0; part < kFeatureParts; ++part) {
      const float4 x = row[part];
      gradient.row[4 * part] = fmaf(grad_sum, x.x, gradient.row[4 * part]);
      gradient.row[4 * part + 1] = fmaf(grad_sum, x.y, gradient.row[4 * part + 1]);
      gradient.row[4 * part + 2] = fmaf(grad_sum, x.z, gradient.row[4 * part + 2]);
      gradient.row[4 * part + 3] = fmaf(grad_sum, x.w, gradient.row[4 * part + 3]);
    }
  }
}

__device__ inline void add(float4& sum, float4 x) {
  sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
}

// sums[part] = the block's gradients and loss, in slots. `of_groups` is shared memory, which no
// thread reads any more.
__device__ inline void sum_block(float4* sums, float (*of_groups)[kSlots], const Unit& gradient,
                                 float loss) {
  const unsigned group = threadIdx.x / kHidden, unit = threadIdx.x % kHidden;
  float* slots = of_groups[group];
  GPU_UNROLL
  for (unsigned k = 0; k < kRow; ++k) slots[unit * kRow + k] = gradient.row[k];
  slots[kOutWeights + unit] = gradient.out_weight;
  if (unit == 0) {
    slots[kOutBias] = gradient.out_bias, slots[kOutBias + 1] = loss;
    slots[kOutBias + 2] = slots[kOutBias + 3] = 0;
  }
  __syncthreads();  // every group's gradients are there; nobody reads the tile any more
  if (threadIdx.x >= kSlotParts) return;
  float4 sum = make_float4(0, 0, 0, 0);
  for (unsigned g = 0; g < kGroups; ++g)
    add(sum, reinterpret_cast<const float4*>(of_groups[g])[threadIdx.x]);
  sums[threadIdx.x] = sum;
}

// This thread's part of the sum over all blocks, in their order.
__device__ inline float4 sum_of_blocks(const float4* sums, unsigned blocks) {
  float4 sum = make_float4(0, 0, 0, 0);
  unsigned b = 0;
  for (; b + kLoads <= blocks; b += kLoads) {
    float4 held[kLoads];
    GPU_UNROLL
    for (unsigned k = 0; k < kLoads; ++k) held[k] = sums[(b + k) * kSlotParts + threadIdx.x];
    GPU_UNROLL
    for (unsigned k = 0; k < kLoads; ++k) add(sum, held[k]);
  }
  for (; b < blocks; ++b) add(sum, sums[b * kSlotParts + threadIdx.x]);
  return sum;
}

// The mean loss of the batch is in the part that begins with the bias of the output.
__device__ inline bool has_loss(unsigned part) { return part == kOutBias / 4; }

// One block per tile, as far as there are multiprocessors: persistent's must all run at once.
inline unsigned blocks_for(size_t batch) {
  int device = 0, multiprocessors = 0;
  HIP_CHECK(hipGetDevice(&device));
  HIP_CHECK(hipDeviceGetAttribute(&multiprocessors, hipDeviceAttributeMultiprocessorCount, device));
  const size_t most = std::min(kMaxBlocks, static_cast<unsigned>(multiprocessors));
  return static_cast<unsigned>(std::min(gpu::ceil_div(batch, kTile), most));
}

}  // namespace train_sales
