// Multiply-adds of four numbers at once. Step 6.4 uses them, too.
#pragma once

#include "common/gpu.h"

namespace train_mnist {

// sum + the products of the four.
__device__ inline float dot4(float4 a, float4 b, float sum) {
  return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

// sum += a * b, for each of the four.
__device__ inline void add_scaled(float4& sum, float a, float4 b) {
  sum.x = fmaf(a, b.x, sum.x), sum.y = fmaf(a, b.y, sum.y);
  sum.z = fmaf(a, b.z, sum.z), sum.w = fmaf(a, b.w, sum.w);
}

}  // namespace train_mnist
