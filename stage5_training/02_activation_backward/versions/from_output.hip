// from_output: f' from y: x need not be stored by the forward pass.
//
// Fixes : x has to be kept for the way back, beside y, which the next layer keeps anyway.
// Idea  : where y = f(x) says what f'(x) is, a slope that takes y goes into the same kernels.
// Costs : digits of small slopes: 1 - y has those that y's rounding has left.
#include "common/gpu.h"
#include "stage5_training/02_activation_backward/detail/rounds.h"
#include "stage5_training/02_activation_backward/detail/without_bias.h"

namespace activation_backward {

using activations::Relu;
using activations::Sigmoid;
using activations::Softplus;
using activations::Tanh;

// OfOutput<F> is F with derivative(y) = f'(x) where y = f(x).

// y is positive where x is.
template <>
struct OfOutput<activations::Relu> : activations::Relu {};

// y (1 - y): a difference and a product.
template <>
struct OfOutput<activations::Sigmoid> : activations::Sigmoid {
  __host__ __device__ float derivative(float y) const { return y * (1.0f - y); }
};

// 1 - y^2 as a product, which keeps the digits of a small slope: two sums and a product.
template <>
struct OfOutput<activations::Tanh> : activations::Tanh {
  __host__ __device__ float derivative(float y) const { return (1.0f - y) * (1.0f + y); }
};

// exp(y) = 1 + exp(x), so that sigmoid(x) = 1 - exp(-y): 6 u from expm1f (3 ulp, OpenCL's promise).
template <>
struct OfOutput<activations::Softplus> : activations::Softplus {
  // exercise: the slope, given y; a small one keeps its digits, too (about 1 line)
  __host__ __device__ float derivative(float y) const { return -expm1f(-y); }
  // end exercise
};

template <class Activation>
float slope_of_output(float y) {
  return OfOutput<Activation>{}.derivative(y);
}

// The functions that this file is compiled for.
template void launch_without_bias<OfOutput<Relu>>(float*, const float*, const float*, size_t,
                                                  size_t, hipStream_t);
template void launch_without_bias<OfOutput<Sigmoid>>(float*, const float*, const float*, size_t,
                                                     size_t, hipStream_t);
template void launch_without_bias<OfOutput<Tanh>>(float*, const float*, const float*, size_t,
                                                  size_t, hipStream_t);
template void launch_without_bias<OfOutput<Softplus>>(float*, const float*, const float*, size_t,
                                                      size_t, hipStream_t);
template void launch_vectorized<OfOutput<Relu>>(float*, float*, const float*, const float*, size_t,
                                                size_t, float, Workspace&, hipStream_t);
template void launch_vectorized<OfOutput<Sigmoid>>(float*, float*, const float*, const float*,
                                                   size_t, size_t, float, Workspace&, hipStream_t);
template void launch_vectorized<OfOutput<Tanh>>(float*, float*, const float*, const float*, size_t,
                                                size_t, float, Workspace&, hipStream_t);
template void launch_vectorized<OfOutput<Softplus>>(float*, float*, const float*, const float*,
                                                    size_t, size_t, float, Workspace&, hipStream_t);
template float slope_of_output<Relu>(float);
template float slope_of_output<Sigmoid>(float);
template float slope_of_output<Tanh>(float);
template float slope_of_output<Softplus>(float);

}  // namespace activation_backward
