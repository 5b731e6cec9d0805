// What is computed for one element, or for four neighbours: a pass, which each kernel of this step
// from fused_flat on takes, so that forward and backward are one kernel.
//
// A pass holds its inputs; pass(i, column) is the output's element i, which lies in `column`.
// pass.load(i) are the inputs' four elements from there on, where i is a multiple of 16 bytes, and
// pass.vector(loaded, four biases) the output's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/gpu.h"
#include "stage1_vector/01_vector_add/detail/operations.h"
#include "stage1_vector/04_activations/detail/vectors.h"

namespace matrix_activations {

__device__ inline float4 load_vector(const float* from) {
  return *reinterpret_cast<const float4*>(from);
}

// The bias of four neighbours. It begins where it likes, and the rows of an odd matrix begin all
// over the place, so these four need not lie at a multiple of 16 bytes.
__device__ inline float4 load_bias(const float* bias) {
  if (reinterpret_cast<std::uintptr_t>(bias) % sizeof(float4) == 0) return load_vector(bias);
  return make_float4(bias[0], bias[1], bias[2], bias[3]);
}

// y = f(x + bias).
template <class Activation>
struct Forward {
  const float *x, *bias;
  __device__ float operator()(size_t i, size_t column) const {
    return Activation{}(x[i] + bias[column]);
  }

  struct Loaded {
    float4 x;
  };
  __device__ Loaded load(size_t i) const { return {load_vector(x + i)}; }
  __device__ static float4 vector(const Loaded& loaded, float4 biases) {
    return activations::value<Activation>(vector_add::apply(vector_add::Add{}, loaded.x, biases));
  }
};

// grad_x = grad_y * f'(x + bias).
template <class Activation>
struct Backward {
  const float *grad_y, *x, *bias;
  __device__ float operator()(size_t i, size_t column) const {
    return grad_y[i] * Activation{}.derivative(x[i] + bias[column]);
  }

  struct Loaded {
    float4 grad_y, x;
  };
  __device__ Loaded load(size_t i) const { return {load_vector(grad_y + i), load_vector(x + i)}; }
  __device__ static float4 vector(const Loaded& loaded, float4 biases) {
    return activations::chain_rule<Activation>(
        loaded.grad_y, vector_add::apply(vector_add::Add{}, loaded.x, biases));
  }
};

}  // namespace matrix_activations
