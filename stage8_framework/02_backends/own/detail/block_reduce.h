// Many values of a block become one, whatever `combine` makes of two.
#pragma once

#include "common/gpu.h"
#include "stage1_vector/01_vector_add/detail/grid.h"

namespace own {

// combine(...) over the values of all threads of a block of vector_add::kBlock threads, in every
// thread. It is the tree of 1.3, so the order depends on nothing but the block. All threads call
// it.
template <class T, class Combine>
__device__ inline T block_reduce(T value, const Combine& combine) {
  __shared__ T values[vector_add::kBlock];
  __syncthreads();  // what an earlier call has left was read by all
  values[threadIdx.x] = value;
  __syncthreads();  // every thread's value is there
  for (unsigned half = vector_add::kBlock / 2; half > 0; half /= 2) {
    if (threadIdx.x < half)
      values[threadIdx.x] = combine(values[threadIdx.x], values[threadIdx.x + half]);
    __syncthreads();  // values[0, half) hold all there is
  }
  return values[0];
}

}  // namespace own
