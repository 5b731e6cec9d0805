// What all kernels of whole steps compute for a point: tanh, and softmax with cross-entropy.
#pragma once

#include "common/gpu.h"
#include "stage3_ml_ops/02_softmax/detail/team.h"

namespace train_toy {

// 1 / x for x >= 1, infinity too, to within 4 u. The operator would branch to round correctly.
__device__ inline float reciprocal(float x) { return __fdividef(1.0f, x); }

// tanh(z) = 2 / (1 + exp(-2 z)) - 1: an exponential and a reciprocal, without branch or sign. Where
// exp overflows, the reciprocal is the 0 that is wanted. Near 0 the terms cancel, and the result is
// off by a few u, not a few u times z; as a term of a sum it is as good.
__device__ inline float tangent(float z) {
  const float e = gpu::exp2_flushed(-2.88539008f * z);  // 2 / ln 2
  return fmaf(2.0f, reciprocal(1.0f + e), -1.0f);
}

// The loss of a point with these logits, of which there are `classes`, at most kSize. The logarithm
// needs the maximum: it must not overflow.
template <int kSize>
__device__ inline float cross_entropy(const float (&logits)[kSize], int classes, int label) {
  float max = logits[0], of_label = logits[0], sum = 0;
  GPU_UNROLL
  for (int c = 1; c < kSize; ++c) {
    if (c < classes) max = fmaxf(max, logits[c]);
    if (c == label) of_label = logits[c];
  }
  GPU_UNROLL
  for (int c = 0; c < kSize; ++c)
    if (c < classes) sum += softmax::exponential(logits[c] - max);
  return logf(sum) + (max - of_label);
}

}  // namespace train_toy
