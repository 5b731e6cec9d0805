// scalar: one element per thread.
#include <algorithm>

#include "common/gpu.h"
#include "stage1_vector/04_activations/activations.h"
#include "stage1_vector/04_activations/detail/formulas.h"

namespace activations {

// y = f(x)    x, y (n). `Activation` is f: Relu{}(x) is max(x, 0), and so on.
// Fixes : a CPU core takes the elements one after the other.
// Idea  : one thread per element; threads behind the last element do nothing.
// Thread: thread t of the grid owns y[t].
// Costs : 8 n bytes of global memory; 4 bytes in flight per thread.
template <class Activation>
static __global__ void forward_scalar(float* y, const float* x, size_t n) {
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) y[i] = Activation{}(x[i]);
}

// grad_x = grad_y * f'(x)    grad_x, grad_y, x (n). Activation{}.derivative(x) is f'(x).
// Fixes : forward keeps y only; backward needs the slope at x, which it computes anew from x.
// Idea  : one thread per element; threads behind the last element do nothing.
// Thread: thread t of the grid owns grad_x[t].
// Costs : 12 n bytes of global memory; 8 bytes in flight per thread.
template <class Activation>
static __global__ void backward_scalar(float* grad_x, const float* grad_y, const float* x,
                                       size_t n) {
  // exercise: the chain rule for this thread's element, if it has one (about 2 lines)
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) grad_x[i] = grad_y[i] * Activation{}.derivative(x[i]);
  // end exercise
}

constexpr size_t kScalarBlock = 256;                // threads per block
constexpr size_t kScalarThreads = size_t{1} << 31;  // of one launch: AMD counts them in 32 bits

template <class Activation>
void launch_forward_scalar(float* y, const float* x, size_t n, hipStream_t stream) {
  for (size_t begin = 0; begin < n; begin += kScalarThreads) {  // once, unless n is huge
    const size_t count = std::min(n - begin, kScalarThreads);
    LAUNCH_ON(stream, (forward_scalar<Activation>), gpu::ceil_div(count, kScalarBlock),
              kScalarBlock, 0, y + begin, x + begin, count);
  }
}

template <class Activation>
void launch_backward_scalar(float* grad_x, const float* grad_y, const float* x, size_t n,
                            hipStream_t stream) {
  for (size_t begin = 0; begin < n; begin += kScalarThreads) {
    const size_t count = std::min(n - begin, kScalarThreads);
    LAUNCH_ON(stream, (backward_scalar<Activation>), gpu::ceil_div(count, kScalarBlock),
              kScalarBlock, 0, grad_x + begin, grad_y + begin, x + begin, count);
  }
}

// The launchers that this file makes: forward and backward of each function.
template void launch_forward_scalar<Relu>(float*, const float*, size_t, hipStream_t);
template void launch_forward_scalar<Sigmoid>(float*, const float*, size_t, hipStream_t);
template void launch_forward_scalar<Tanh>(float*, const float*, size_t, hipStream_t);
template void launch_forward_scalar<GeluErf>(float*, const float*, size_t, hipStream_t);
template void launch_forward_scalar<GeluTanh>(float*, const float*, size_t, hipStream_t);
template void launch_forward_scalar<Softplus>(float*, const float*, size_t, hipStream_t);
template void launch_backward_scalar<Relu>(float*, const float*, const float*, size_t, hipStream_t);
template void launch_backward_scalar<Sigmoid>(float*, const float*, const float*, size_t,
                                              hipStream_t);
template void launch_backward_scalar<Tanh>(float*, const float*, const float*, size_t, hipStream_t);
template void launch_backward_scalar<GeluErf>(float*, const float*, const float*, size_t,
                                              hipStream_t);
template void launch_backward_scalar<GeluTanh>(float*, const float*, const float*, size_t,
                                               hipStream_t);
template void launch_backward_scalar<Softplus>(float*, const float*, const float*, size_t,
                                               hipStream_t);

}  // namespace activations
