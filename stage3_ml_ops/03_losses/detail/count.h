// Counting the labels of a small batch in one block.
#pragma once

#include <cstddef>

#include "common/gpu.h"
#include "stage3_ml_ops/03_losses/detail/grid.h"
#include "stage3_ml_ops/03_losses/detail/targets.h"

namespace losses {

// How many of the rows first + t, first + t + kBlock, ... are not ignored, of kLoads of them for
// thread t. A float counts kOneBlock rows exactly.
__device__ inline float counted_from(const Targets& targets, size_t first) {
  int labels[kLoads];
  GPU_UNROLL
  for (int i = 0; i < kLoads; ++i) {  // all loads before the first comparison
    const size_t row = first + threadIdx.x + static_cast<size_t>(i) * kBlock;
    labels[i] = row < targets.rows ? targets.labels[row] : 0;
  }
  float counted = 0;
  GPU_UNROLL
  for (int i = 0; i < kLoads; ++i) {
    const size_t row = first + threadIdx.x + static_cast<size_t>(i) * kBlock;
    const int label = class_of(labels[i], targets.classes, targets.ignore_index);
    counted += row < targets.rows && label != kIgnored ? 1.0f : 0.0f;
  }
  return counted;
}

}  // namespace losses
