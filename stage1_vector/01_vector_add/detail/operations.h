// What the versions with an `Operation` compute, for one float and for a float4.
#pragma once

#include "common/gpu.h"

namespace vector_add {

struct Add {
  template <class T>
  __host__ __device__ T operator()(T x, T y) const {
    return x + y;
  }
};

struct Multiply {
  template <class T>
  __host__ __device__ T operator()(T x, T y) const {
    return x * y;
  }
};

template <class Operation>
__device__ inline float4 apply(Operation operation, float4 x, float4 y) {
  return make_float4(operation(x.x, y.x), operation(x.y, y.y), operation(x.z, y.z),
                     operation(x.w, y.w));
}

}  // namespace vector_add
