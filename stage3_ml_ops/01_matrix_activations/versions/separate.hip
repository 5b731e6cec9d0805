// separate: bias and activation in two kernels: the sums go to memory and come back.
#include "common/gpu.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage3_ml_ops/01_matrix_activations/matrix_activations.h"

namespace matrix_activations {

// y[r,c] = x[r,c] + bias[c]    x, y (rows, cols) as n = rows cols floats, bias (cols).
// Fixes : a CPU core takes the elements one after the other.
// Idea  : one thread per element of flat memory; its column is what the division by cols leaves.
// Thread: t owns y's elements t, t + T, ... of flat memory, with T threads in the grid.
// Costs : 8 bytes per element here, and 8 more in step 1.4's kernel; one 64-bit division.
static __global__ void add_bias(float* y, const float* x, const float* bias, size_t n,
                                size_t cols) {
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads)
    y[i] = x[i] + bias[i % cols];
}

void launch_bias(float* y, const float* x, const float* bias, size_t rows, size_t cols,
                 hipStream_t stream) {
  const size_t n = rows * cols;
  if (n == 0) return;
  LAUNCH_ON(stream, add_bias, vector_add::full_grid(n), vector_add::kBlock, 0, y, x, bias, n, cols);
}

template <class Activation>
void launch_forward_separate(float* y, const float* x, const float* bias, size_t rows, size_t cols,
                             hipStream_t stream) {
  launch_bias(y, x, bias, rows, cols, stream);
  launch_activation<Activation>(y, y, rows, cols, stream);
}

template <class Activation>
void launch_backward_separate(float* grad_x, const float* grad_y, const float* x, const float* bias,
                              size_t rows, size_t cols, hipStream_t stream) {
  launch_bias(grad_x, x, bias, rows, cols, stream);
  activations::launch_backward_vectorized<Activation>(grad_x, grad_y, grad_x, rows * cols, stream);
}

// The launchers that this file makes: forward and backward of each function.
template void launch_forward_separate<activations::Relu>(float*, const float*, const float*, size_t,
                                                         size_t, hipStream_t);
template void launch_forward_separate<activations::Sigmoid>(float*, const float*, const float*,
                                                            size_t, size_t, hipStream_t);
template void launch_forward_separate<activations::Tanh>(float*, const float*, const float*, size_t,
                                                         size_t, hipStream_t);
template void launch_forward_separate<activations::GeluErf>(float*, const float*, const float*,
                                                            size_t, size_t, hipStream_t);
template void launch_forward_separate<activations::GeluTanh>(float*, const float*, const float*,
                                                             size_t, size_t, hipStream_t);
template void launch_forward_separate<activations::Softplus>(float*, const float*, const float*,
                                                             size_t, size_t, hipStream_t);
template void launch_backward_separate<activations::Relu>(float*, const float*, const float*,
                                                          const float*, size_t, size_t,
                                                          hipStream_t);
template void launch_backward_separate<activations::Sigmoid>(float*, const float*, const float*,
                                                             const float*, size_t, size_t,
                                                             hipStream_t);
template void launch_backward_separate<activations::Tanh>(float*, const float*, const float*,
                                                          const float*, size_t, size_t,
                                                          hipStream_t);
template void launch_backward_separate<activations::GeluErf>(float*, const float*, const float*,
                                                             const float*, size_t, size_t,
                                                             hipStream_t);
template void launch_backward_separate<activations::GeluTanh>(float*, const float*, const float*,
                                                              const float*, size_t, size_t,
                                                              hipStream_t);
template void launch_backward_separate<activations::Softplus>(float*, const float*, const float*,
                                                              const float*, size_t, size_t,
                                                              hipStream_t);

}  // namespace matrix_activations
