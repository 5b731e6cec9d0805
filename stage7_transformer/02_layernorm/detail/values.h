// Arithmetic on Values: a float, or the four of a float4.
#pragma once

#include "common/gpu.h"
#include "stage7_transformer/02_layernorm/detail/pass.h"

namespace layernorm {

__device__ inline float sum_of_squares(float x) { return x * x; }
__device__ inline float sum_of_squares(float4 x) {
  return (x.x * x.x + x.y * x.y) + (x.z * x.z + x.w * x.w);
}
__device__ inline float minus(float a, float b) { return a - b; }
__device__ inline float4 minus(float4 a, float b) {
  return make_float4(a.x - b, a.y - b, a.z - b, a.w - b);
}
__device__ inline float normalized(float e, float rstd, float gain, float bias) {
  return e * rstd * gain + bias;
}
__device__ inline float4 normalized(float4 e, float rstd, float4 gain, float4 bias) {
  return make_float4(normalized(e.x, rstd, gain.x, bias.x), normalized(e.y, rstd, gain.y, bias.y),
                     normalized(e.z, rstd, gain.z, bias.z), normalized(e.w, rstd, gain.w, bias.w));
}

// Of gain or bias the Values that a thread has from number `at` on.
template <class Team, class Value, unsigned kCount>
__device__ inline void load_columns(Value (&to)[kCount], const float* vector, unsigned at,
                                    unsigned values) {
  GPU_UNROLL
  for (unsigned k = 0; k < kCount; ++k) {
    const unsigned v = Team::rank() + (at + k) * Team::size();
    if (v < values) to[k] = reinterpret_cast<const Value*>(vector)[v];
  }
}

}  // namespace layernorm
