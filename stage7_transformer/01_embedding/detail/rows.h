// What the kernels of several versions do with rows: bad tokens, sums of rows, positions' sums.
#pragma once

#include "common/gpu.h"
#include "stage7_transformer/01_embedding/detail/plan.h"
#include "stage7_transformer/01_embedding/embedding.h"

namespace embedding {

// Leaves the first bad token at bad_token, unless that is null: nobody wants to know. The position
// is in the upper half of the word and the token in the lower: the smallest word is the first
// one's.
__device__ inline void report(unsigned long long* bad_token, size_t position, std::int32_t token) {
  if (bad_token != nullptr)
    atomicMin(bad_token,
              static_cast<unsigned long long>(position) << 32 | static_cast<std::uint32_t>(token));
}

__device__ inline void add_to(float& sum, float value) { sum += value; }
__device__ inline void add_to(float4& sum, float4 value) {
  sum.x += value.x, sum.y += value.y, sum.z += value.z, sum.w += value.w;
}

// The sum of the rows first, first + step, ... of Value v of a matrix (rows, values), in this
// order, kLoads of them on their way at a time.
template <class Value>
__device__ inline Value sum_of_rows(const float* matrix, size_t first, size_t rows, size_t step,
                                    size_t values, size_t v) {
  const Value* column = reinterpret_cast<const Value*>(matrix) + v;
  Value sum = {};
  size_t row = first;
  for (; row + (kLoads - 1) * step < rows; row += kLoads * step) {
    Value held[kLoads];
    GPU_UNROLL
    for (unsigned k = 0; k < kLoads; ++k) held[k] = column[(row + k * step) * values];
    GPU_UNROLL
    for (unsigned k = 0; k < kLoads; ++k) add_to(sum, held[k]);
  }
  for (; row < rows; row += step) add_to(sum, column[row * values]);
  return sum;
}

// The sums of the positions that block number `block` of `blocks` owns.
template <class Value>
__device__ inline void sum_positions(const Scatter& out, size_t block, size_t blocks) {
  const size_t values = out.shape.C / kWidth<Value>;
  const size_t v = size_t{blockIdx.y} * blockDim.x + threadIdx.x;
  if (v >= values) return;
  for (size_t t = block * blockDim.y + threadIdx.y; t < out.shape.T_max; t += blocks * blockDim.y) {
    const size_t rows = t < out.shape.T ? out.shape.positions() : 0;
    reinterpret_cast<Value*>(out.grad_position)[t * values + v] =
        sum_of_rows<Value>(out.grad_y, t, rows, out.shape.T, values, v);
  }
}

}  // namespace embedding
