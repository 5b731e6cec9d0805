// What the versions with an `Update` compute: the new y from x and the old y, one float each.
#pragma once

#include "common/gpu.h"

namespace axpy {

struct Scale {
  float alpha;
  __host__ __device__ float operator()(float x, float /*y*/) const { return alpha * x; }
};

struct Axpy {
  float alpha;
  __host__ __device__ float operator()(float x, float y) const { return alpha * x + y; }
};

}  // namespace axpy
