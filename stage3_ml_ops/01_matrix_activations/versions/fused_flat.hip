// fused_flat: one kernel; a division per element finds its column.
#include "common/gpu.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage3_ml_ops/01_matrix_activations/detail/passes.h"
#include "stage3_ml_ops/01_matrix_activations/matrix_activations.h"

namespace matrix_activations {

// out[r,c] = pass(r * cols + c, c)    out (rows, cols) as n = rows cols floats, any sizes.
// Fixes : separate stores the sum of x and bias, and reads it back to compute f.
// Idea  : the sum stays in a register: a pass adds the bias and applies f, or f', at once.
// Thread: t owns out's elements t, t + T, ... of flat memory, with T threads in the grid.
// Costs : one 64-bit division per element, as many instructions as a tanh.
template <class Pass>
static __global__ void elementwise_flat(float* out, Pass pass, size_t n, size_t cols) {
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads)
    out[i] = pass(i, i % cols);
}

template <class Pass>
static void launch_elementwise_flat(float* out, Pass pass, size_t rows, size_t cols,
                                    hipStream_t stream) {
  const size_t n = rows * cols;
  if (n == 0) return;
  LAUNCH_ON(stream, (elementwise_flat<Pass>), vector_add::full_grid(n), vector_add::kBlock, 0, out,
            pass, n, cols);
}

template <class Activation>
void launch_forward_fused_flat(float* y, const float* x, const float* bias, size_t rows,
                               size_t cols, hipStream_t stream) {
  launch_elementwise_flat(y, Forward<Activation>{x, bias}, rows, cols, stream);
}

template <class Activation>
void launch_backward_fused_flat(float* grad_x, const float* grad_y, const float* x,
                                const float* bias, size_t rows, size_t cols, hipStream_t stream) {
  launch_elementwise_flat(grad_x, Backward<Activation>{grad_y, x, bias}, rows, cols, stream);
}

// The launchers that this file makes: forward and backward of each function.
template void launch_forward_fused_flat<activations::Relu>(float*, const float*, const float*,
                                                           size_t, size_t, hipStream_t);
template void launch_forward_fused_flat<activations::Sigmoid>(float*, const float*, const float*,
                                                              size_t, size_t, hipStream_t);
template void launch_forward_fused_flat<activations::Tanh>(float*, const float*, const float*,
                                                           size_t, size_t, hipStream_t);
template void launch_forward_fused_flat<activations::GeluErf>(float*, const float*, const float*,
                                                              size_t, size_t, hipStream_t);
template void launch_forward_fused_flat<activations::GeluTanh>(float*, const float*, const float*,
                                                               size_t, size_t, hipStream_t);
template void launch_forward_fused_flat<activations::Softplus>(float*, const float*, const float*,
                                                               size_t, size_t, hipStream_t);
template void launch_backward_fused_flat<activations::Relu>(float*, const float*, const float*,
                                                            const float*, size_t, size_t,
                                                            hipStream_t);
template void launch_backward_fused_flat<activations::Sigmoid>(float*, const float*, const float*,
                                                               const float*, size_t, size_t,
                                                               hipStream_t);
template void launch_backward_fused_flat<activations::Tanh>(float*, const float*, const float*,
                                                            const float*, size_t, size_t,
                                                            hipStream_t);
template void launch_backward_fused_flat<activations::GeluErf>(float*, const float*, const float*,
                                                               const float*, size_t, size_t,
                                                               hipStream_t);
template void launch_backward_fused_flat<activations::GeluTanh>(float*, const float*, const float*,
                                                                const float*, size_t, size_t,
                                                                hipStream_t);
template void launch_backward_fused_flat<activations::Softplus>(float*, const float*, const float*,
                                                                const float*, size_t, size_t,
                                                                hipStream_t);

}  // namespace matrix_activations
