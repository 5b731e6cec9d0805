// A thread's share of a dot product. versions/loads_in_flight.hip teaches it, written out in its
// kernel; this is the same loop as a function.
#pragma once

#include "common/gpu.h"
#include "stage1_vector/03_dot/detail/grid.h"

namespace dot {

// sum += x * y, for each of the four.
__device__ inline void multiply_add(float4& sum, float4 x, float4 y) {
  sum.x += x.x * y.x, sum.y += x.y * y.y, sum.z += x.z * y.z, sum.w += x.w * y.w;
}

// This thread's share of the sum: the float4s t, t + T, ..., and of head and tail the elements t,
// t + T, ..., with T threads in the grid. 2 kLoads loads of 16 bytes are in flight.
__device__ inline float thread_sum(const float* x, const float* y, const Split& split) {
  const size_t thread = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  const float4* x4 = reinterpret_cast<const float4*>(x + split.head);
  const float4* y4 = reinterpret_cast<const float4*>(y + split.head);
  float4 sum = make_float4(0, 0, 0, 0);
  size_t v = thread;
  for (; v + (kLoads - 1) * threads < split.vectors; v += kLoads * threads) {
    float4 held_x[kLoads], held_y[kLoads];
    for (int k = 0; k < kLoads; ++k) {
      held_x[k] = x4[v + k * threads];
      held_y[k] = y4[v + k * threads];
    }
    for (int k = 0; k < kLoads; ++k) multiply_add(sum, held_x[k], held_y[k]);
  }
  for (; v < split.vectors; v += threads) multiply_add(sum, x4[v], y4[v]);
  for (size_t s = thread; s < split.head + split.tail; s += threads) {
    const size_t i = s < split.head ? s : s + 4 * split.vectors;
    sum.x += x[i] * y[i];
  }
  return (sum.x + sum.y) + (sum.z + sum.w);
}

}  // namespace dot
