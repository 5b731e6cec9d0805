// The loop over the steps of a span, for kernels that do more than one.
#pragma once

#include "common/gpu.h"
#include "stage1_vector/03_dot/detail/block_sum.h"
#include "stage5_training/06_train_toy/network.h"

namespace train_toy {

// Calls step(schedule, loss) for each step of the span, loss being where its loss goes, or null:
// null is a constant in the inner loop, where no code for losses remains. A schedule is read a step
// ahead, since global memory may take longer than a step; the hyperparameters never change.
template <class Step>
__device__ inline void for_each_step(const Span& span, const Arrays& arrays, Step step) {
  Schedule next = arrays.schedules[0];
  unsigned i = 0;
  const auto take_next = [&] {
    Schedule schedule = next;
    if (++i < span.count) next = arrays.schedules[i];
    schedule.hyper = arrays.hyper;
    return schedule;
  };
  while (i < span.count) {
    const unsigned slot = (span.done + i) / span.every;
    const unsigned recorded = (slot + 1) * span.every - span.done - 1;
    const unsigned end = recorded < span.count ? recorded : span.count;
    while (i < end) step(take_next(), nullptr);
    if (i < span.count) step(take_next(), arrays.curve + slot);
  }
}

// The mean of losses[0], losses[stride], ...: wave 0 computes it, and thread 0 writes it.
__device__ inline void write_mean(float* mean, const float* losses, int stride, int points) {
  if (gpu::wave_id() != 0) return;
  float sum = 0;
  for (int i = gpu::lane_id(); i < points; i += gpu::wave_size()) sum += losses[i * stride];
  sum = dot::wave_sum(sum);
  if (threadIdx.x == 0) *mean = sum / static_cast<float>(points);
}

}  // namespace train_toy
