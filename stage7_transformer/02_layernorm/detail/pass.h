// What the versions that share a row among threads do with its mean and variance, and with float4s.
#pragma once

#include "common/gpu.h"
#include "stage3_ml_ops/02_softmax/detail/row.h"
#include "stage7_transformer/01_embedding/detail/plan.h"
#include "stage7_transformer/02_layernorm/layernorm.h"

namespace layernorm {

// rstd = 1 / sqrt(variance + eps), or 0 for 0. One thread of the team stores mean and rstd.
template <class Team, class Y>
__device__ inline float finish(const PassOf<Y>& pass, size_t row, float mean, float variance) {
  const float with_eps = variance + pass.eps;
  const float rstd = with_eps == 0 ? 0.0f : 1.0f / sqrtf(with_eps);
  if (Team::rank() == 0) {
    if (pass.mean != nullptr) pass.mean[row] = mean;
    if (pass.rstd != nullptr) pass.rstd[row] = rstd;
  }
  return rstd;
}

// The floats in a Value: a float4 where every row of every array begins at a multiple of 16 bytes,
// else a float.
using embedding::kWidth;

// The sum of a Value.
__device__ inline float total(float x) { return x; }
__device__ inline float total(float4 x) { return softmax::sum_of(x); }
__device__ inline float plus(float a, float b) { return a + b; }
__device__ inline float4 plus(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

}  // namespace layernorm
