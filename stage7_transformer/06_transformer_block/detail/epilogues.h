// What the epilogues of several versions do to a sum while it is in a register.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "common/gpu.h"
#include "common/half.h"
#include "stage1_vector/04_activations/detail/formulas.h"

namespace transformer_block {

using activations::GeluTanh;  // GPT-2's

// The same to some 20 binary digits, for what is stored with 8: an exponential is one instruction,
// a quotient two.
struct QuickGelu {
  __device__ float operator()(float x) const {
    return x * __fdividef(1.0f, 1.0f + gpu::exp2_flushed(-argument(x)));
  }
  // s + x z' s (1 - s) with s = sigmoid(z). Where e is 0 only s counts: z' may be infinite there.
  __device__ float derivative(float x) const {
    const float z = argument(x), slope = 1.5957691f + 0.21406435f * x * x;
    const float e = gpu::exp2_flushed(-fabsf(z)), r = __fdividef(1.0f, 1.0f + e);
    const float s = z < 0 ? e * r : r;
    return s + (e > 0 ? x * slope * (e * r * r) : 0.0f);
  }

 private:
  // GeluTanh's z, over log(2).
  __device__ static float argument(float x) { return x * (2.3022082f + 0.10294324f * x * x); }
};

// Whether an array begins at a multiple of two of its elements.
template <class T>
__device__ inline bool begins_evenly(const T* array) {
  return reinterpret_cast<std::uintptr_t>(array) % (2 * sizeof(T)) == 0;
}
// Elements i and i + 1, i even, of an array that begins evenly. No kernel that calls this writes to
// the array.
__device__ inline float2 load_two(const float* array, size_t i) {
  return __ldg(reinterpret_cast<const float2*>(array + i));
}
__device__ inline float2 load_two(const gpu::bfloat16* array, size_t i) {
  const unsigned both = __ldg(reinterpret_cast<const unsigned*>(array + i));
  gpu::bfloat16 two[2];
  memcpy(two, &both, sizeof both);
  return make_float2(gpu::to_float(two[0]), gpu::to_float(two[1]));
}

// sum + bias + what went round the box.
struct AddResidual {
  const float* bias;
  const float* residual;
  size_t cols;
  __device__ float operator()(float sum, size_t row, size_t col, const float*) const {
    return residual[row * cols + col] + (sum + bias[col]);
  }
  __device__ float2 two(float first, float second, size_t row, size_t col) const {
    const float2 b = load_two(bias, col), r = load_two(residual, row * cols + col);
    return make_float2(r.x + (first + b.x), r.y + (second + b.y));
  }
  __device__ bool fits_two() const { return begins_evenly(bias) && begins_evenly(residual); }
};

// The gradient of GELU's argument from that of its result. S: what the arguments are kept as, float
// or bfloat16.
template <class S>
struct TimesGeluSlope {
  using Gelu = std::conditional_t<std::is_same_v<S, float>, GeluTanh, QuickGelu>;
  const S* sums;
  size_t cols;
  __device__ float operator()(float sum, size_t row, size_t col, const float*) const {
    return sum * Gelu{}.derivative(gpu::to_float(sums[row * cols + col]));
  }
  __device__ float2 two(float first, float second, size_t row, size_t col) const {
    const float2 x = load_two(sums, row * cols + col);
    return make_float2(first * Gelu{}.derivative(x.x), second * Gelu{}.derivative(x.y));
  }
  __device__ bool fits_two() const { return begins_evenly(sums); }
};

}  // namespace transformer_block
