// fused_2d: a grid of the matrix's shape: nothing to divide.
#include "common/gpu.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage3_ml_ops/01_matrix_activations/detail/grid.h"
#include "stage3_ml_ops/01_matrix_activations/detail/passes.h"
#include "stage3_ml_ops/01_matrix_activations/matrix_activations.h"

namespace matrix_activations {

// out[r,c] = pass(r * cols + c, c)    out (rows, cols), any sizes.
// Fixes : fused_flat divides to find an element's column.
// Idea  : the grid has two dimensions too: x counts columns, y rows.
// Thread: (x, y) owns the columns x, x + X, ... of the rows y, y + Y, ... in a grid of X by Y.
// Costs : threads beyond the last column do nothing.
template <class Pass>
static __global__ void elementwise_2d(float* out, Pass pass, size_t rows, size_t cols) {
  // exercise: the loops over this thread's rows and columns (about 7 lines)
  const size_t first_column = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t first_row = size_t{blockIdx.y} * blockDim.y + threadIdx.y;
  const size_t next_column = size_t{gridDim.x} * blockDim.x;
  const size_t next_row = size_t{gridDim.y} * blockDim.y;
  for (size_t row = first_row; row < rows; row += next_row)
    for (size_t column = first_column; column < cols; column += next_column)
      out[row * cols + column] = pass(row * cols + column, column);
  // end exercise
}

template <class Pass>
static void launch_elementwise_2d(float* out, Pass pass, size_t rows, size_t cols,
                                  hipStream_t stream) {
  if (rows == 0 || cols == 0) return;
  const Grid grid = grid_2d(rows, cols);
  LAUNCH_ON(stream, (elementwise_2d<Pass>), grid.blocks, grid.threads, 0, out, pass, rows, cols);
}

template <class Activation>
void launch_forward_fused_2d(float* y, const float* x, const float* bias, size_t rows, size_t cols,
                             hipStream_t stream) {
  launch_elementwise_2d(y, Forward<Activation>{x, bias}, rows, cols, stream);
}

template <class Activation>
void launch_backward_fused_2d(float* grad_x, const float* grad_y, const float* x, const float* bias,
                              size_t rows, size_t cols, hipStream_t stream) {
  launch_elementwise_2d(grad_x, Backward<Activation>{grad_y, x, bias}, rows, cols, stream);
}

// The launchers that this file makes: forward and backward of each function.
template void launch_forward_fused_2d<activations::Relu>(float*, const float*, const float*, size_t,
                                                         size_t, hipStream_t);
template void launch_forward_fused_2d<activations::Sigmoid>(float*, const float*, const float*,
                                                            size_t, size_t, hipStream_t);
template void launch_forward_fused_2d<activations::Tanh>(float*, const float*, const float*, size_t,
                                                         size_t, hipStream_t);
template void launch_forward_fused_2d<activations::GeluErf>(float*, const float*, const float*,
                                                            size_t, size_t, hipStream_t);
template void launch_forward_fused_2d<activations::GeluTanh>(float*, const float*, const float*,
                                                             size_t, size_t, hipStream_t);
template void launch_forward_fused_2d<activations::Softplus>(float*, const float*, const float*,
                                                             size_t, size_t, hipStream_t);
template void launch_forward_fused_2d<Identity>(float*, const float*, const float*, size_t, size_t,
                                                hipStream_t);
template void launch_backward_fused_2d<activations::Relu>(float*, const float*, const float*,
                                                          const float*, size_t, size_t,
                                                          hipStream_t);
template void launch_backward_fused_2d<activations::Sigmoid>(float*, const float*, const float*,
                                                             const float*, size_t, size_t,
                                                             hipStream_t);
template void launch_backward_fused_2d<activations::Tanh>(float*, const float*, const float*,
                                                          const float*, size_t, size_t,
                                                          hipStream_t);
template void launch_backward_fused_2d<activations::GeluErf>(float*, const float*, const float*,
                                                             const float*, size_t, size_t,
                                                             hipStream_t);
template void launch_backward_fused_2d<activations::GeluTanh>(float*, const float*, const float*,
                                                              const float*, size_t, size_t,
                                                              hipStream_t);
template void launch_backward_fused_2d<activations::Softplus>(float*, const float*, const float*,
                                                              const float*, size_t, size_t,
                                                              hipStream_t);

}  // namespace matrix_activations
