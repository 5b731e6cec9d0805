// The activations of four neighbours, and the backward kernel of versions/vectorized.hip, for any
// slope: step 5.2 launches it with slopes that follow from y.
#pragma once

#include <algorithm>

#include "common/gpu.h"
#include "stage1_vector/01_vector_add/detail/grid.h"

namespace activations {

using vector_add::kBlock;
using vector_add::Split;
using vector_add::split_vectors;

inline constexpr int kVectors = 2;  // float4s of each input in flight per thread

// Blocks for kVectors float4s per thread, or for one single element per thread where there are
// more.
inline unsigned vector_blocks(const Split& split) {
  return vector_add::full_grid(
      std::max(gpu::ceil_div(split.vectors, kVectors), split.head + split.tail));
}

// f(x) for each of the four.
template <class Activation>
__device__ inline float4 value(float4 x) {
  const Activation f{};
  return make_float4(f(x.x), f(x.y), f(x.z), f(x.w));
}

// grad_y * f'(x), for one element or for each of four.
template <class Activation>
__device__ inline float chain_rule(float grad_y, float x) {
  return grad_y * Activation{}.derivative(x);
}
template <class Activation>
__device__ inline float4 chain_rule(float4 grad_y, float4 x) {
  const Activation f{};
  return make_float4(grad_y.x * f.derivative(x.x), grad_y.y * f.derivative(x.y),
                     grad_y.z * f.derivative(x.z), grad_y.w * f.derivative(x.w));
}

// grad_x = grad_y * f'(x)    grad_x, grad_y, x (n), any n, any alignment; `split` says where the
// float4s lie.
// Fixes : scalar asks for 4 bytes at a time and has nothing to ask for while it computes f'.
// Idea  : a thread loads kVectors float4s of both inputs before it uses the first.
// Thread: t owns the float4s t, t + T, ..., kVectors per round; of head and tail t, t + T, ...
// Costs : 12 n bytes of global memory; 32 kVectors bytes in flight, 8 kVectors registers.
template <class Activation>
static __global__ void backward_vectorized(float* grad_x, const float* grad_y, const float* x,
                                           Split split) {
  const size_t thread = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  const float4* x4 = reinterpret_cast<const float4*>(x + split.head);
  const float4* grad_y4 = reinterpret_cast<const float4*>(grad_y + split.head);
  float4* grad_x4 = reinterpret_cast<float4*>(grad_x + split.head);
  size_t v = thread;
  for (; v + (kVectors - 1) * threads < split.vectors; v += kVectors * threads) {
    float4 held_x[kVectors], held_grad[kVectors];
    for (int k = 0; k < kVectors; ++k) {
      held_x[k] = x4[v + k * threads];
      held_grad[k] = grad_y4[v + k * threads];
    }
    for (int k = 0; k < kVectors; ++k)
      grad_x4[v + k * threads] = chain_rule<Activation>(held_grad[k], held_x[k]);
  }
  for (; v < split.vectors; v += threads) grad_x4[v] = chain_rule<Activation>(grad_y4[v], x4[v]);
  for (size_t s = thread; s < split.head + split.tail; s += threads) {
    const size_t i = s < split.head ? s : s + 4 * split.vectors;
    grad_x[i] = grad_y[i] * Activation{}.derivative(x[i]);
  }
}

}  // namespace activations
