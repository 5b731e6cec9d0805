// vectorized: 16 bytes per load, several loads in flight.
#include "common/gpu.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage1_vector/04_activations/activations.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage1_vector/04_activations/detail/vectors.h"

namespace activations {

// y = f(x)    x, y (n), any n, any alignment; `split` says where the float4s lie.
// Fixes : scalar asks for 4 bytes at a time and has nothing to ask for while it computes f.
// Idea  : a thread loads kVectors float4s before it uses the first.
// Thread: t owns the float4s t, t + T, ..., kVectors per round; of head and tail t, t + T, ...
// Costs : 8 n bytes of global memory; 16 kVectors bytes in flight, 4 kVectors registers.
template <class Activation>
static __global__ void forward_vectorized(float* y, const float* x, Split split) {
  const size_t thread = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  // exercise: rounds of kVectors float4s, the float4s left over, the single ones (about 15 lines)
  const float4* x4 = reinterpret_cast<const float4*>(x + split.head);
  float4* y4 = reinterpret_cast<float4*>(y + split.head);
  size_t v = thread;
  for (; v + (kVectors - 1) * threads < split.vectors; v += kVectors * threads) {
    float4 held[kVectors];
    for (int k = 0; k < kVectors; ++k) held[k] = x4[v + k * threads];
    for (int k = 0; k < kVectors; ++k) y4[v + k * threads] = value<Activation>(held[k]);
  }
  for (; v < split.vectors; v += threads) y4[v] = value<Activation>(x4[v]);
  for (size_t s = thread; s < split.head + split.tail; s += threads) {
    const size_t i = s < split.head ? s : s + 4 * split.vectors;
    y[i] = Activation{}(x[i]);
  }
  // end exercise
}

template <class Activation>
void launch_forward_vectorized(float* y, const float* x, size_t n, hipStream_t stream) {
  if (n == 0) return;
  const Split split = split_vectors(n, {y, x});
  LAUNCH_ON(stream, (forward_vectorized<Activation>), vector_blocks(split), kBlock, 0, y, x, split);
}

// backward_vectorized is the same loop with two inputs, in detail/vectors.h.
template <class Activation>
void launch_backward_vectorized(float* grad_x, const float* grad_y, const float* x, size_t n,
                                hipStream_t stream) {
  if (n == 0) return;
  const Split split = split_vectors(n, {grad_x, grad_y, x});
  LAUNCH_ON(stream, (backward_vectorized<Activation>), vector_blocks(split), kBlock, 0, grad_x,
            grad_y, x, split);
}

// The launchers that this file makes: forward and backward of each function.
template void launch_forward_vectorized<Relu>(float*, const float*, size_t, hipStream_t);
template void launch_forward_vectorized<Sigmoid>(float*, const float*, size_t, hipStream_t);
template void launch_forward_vectorized<Tanh>(float*, const float*, size_t, hipStream_t);
template void launch_forward_vectorized<GeluErf>(float*, const float*, size_t, hipStream_t);
template void launch_forward_vectorized<GeluTanh>(float*, const float*, size_t, hipStream_t);
template void launch_forward_vectorized<Softplus>(float*, const float*, size_t, hipStream_t);
template void launch_backward_vectorized<Relu>(float*, const float*, const float*, size_t,
                                               hipStream_t);
template void launch_backward_vectorized<Sigmoid>(float*, const float*, const float*, size_t,
                                                  hipStream_t);
template void launch_backward_vectorized<Tanh>(float*, const float*, const float*, size_t,
                                               hipStream_t);
template void launch_backward_vectorized<GeluErf>(float*, const float*, const float*, size_t,
                                                  hipStream_t);
template void launch_backward_vectorized<GeluTanh>(float*, const float*, const float*, size_t,
                                                   hipStream_t);
template void launch_backward_vectorized<Softplus>(float*, const float*, const float*, size_t,
                                                   hipStream_t);

}  // namespace activations
