// Device functions for the sums of a product. Later steps use them for sums of their own.
#pragma once

#include "common/gpu.h"
#include "stage2_matrix/02_gemv/gemv.h"

namespace gemv {

// y[i] = alpha sum + beta y[i], without reading y where beta is 0.
__device__ inline void store(const Product& p, size_t i, float sum) {
  const float scaled = p.alpha * sum;
  p.y[i] = p.beta == 0 ? scaled : scaled + p.beta * p.y[i];
}

// Sum number i of `count` of this block's slice (blockIdx.y): final where there is only one slice,
// else one of those that add_slices will add up.
__device__ inline void deliver(const Product& p, float* partials, size_t count, size_t i,
                               float sum) {
  if (gridDim.y == 1)
    store(p, i, sum);
  else
    partials[blockIdx.y * count + i] = sum;
}

// sum += a · x: one element of a row times one of x, or four times four.
__device__ inline void add_dot(float& sum, float a, float x) { sum += a * x; }
__device__ inline void add_dot(float& sum, float4 a, float4 x) {
  sum += a.x * x.x;
  sum += a.y * x.y;
  sum += a.z * x.z;
  sum += a.w * x.w;
}

// One element of a row, or four with a sum each, times the one element of x that belongs to the
// row.
__device__ inline void scale_add(float& sum, float a, float x) { sum += a * x; }
__device__ inline void scale_add(float4& sum, float4 a, float x) {
  sum.x += a.x * x, sum.y += a.y * x, sum.z += a.z * x, sum.w += a.w * x;
}

}  // namespace gemv
