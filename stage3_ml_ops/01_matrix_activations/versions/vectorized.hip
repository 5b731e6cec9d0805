// vectorized: 16 bytes per load and store, row by row.
#include <cstdint>

#include "common/gpu.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage3_ml_ops/01_matrix_activations/detail/grid.h"
#include "stage3_ml_ops/01_matrix_activations/detail/passes.h"
#include "stage3_ml_ops/01_matrix_activations/matrix_activations.h"

namespace matrix_activations {

// One thread's part of kRows rows; below.
template <int kRows, class Pass>
__device__ inline void elementwise_rows(float* out, const Pass& pass, size_t row, size_t next_row,
                                        size_t cols, size_t first, size_t next);

constexpr int kRowsPerThread = 4;

// out[r,c] = pass(r * cols + c, c)    out (rows, cols), any sizes, as far behind a multiple
//         of 16 bytes in memory as the matrices of the pass.
// Fixes : fused_2d asks for 4 bytes per instruction, and has no load in flight while it computes f.
// Idea  : float4s between each row's head and tail, of kRowsPerThread rows at a time.
// Thread: (x, y) owns the float4s x, x + X, ... and of head and tail the elements x, x + X, ... of
//         the rows y, y + Y, ..., kRowsPerThread per round.
// Costs : the same bytes in a quarter of the instructions; up to 6 single elements per row. Rows of
//         an odd matrix are split in different ways: one at a time.
template <class Pass>
static __global__ void elementwise_vectorized(float* out, Pass pass, size_t rows, size_t cols) {
  const size_t first = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t next = size_t{gridDim.x} * blockDim.x;
  const size_t next_row = size_t{gridDim.y} * blockDim.y;
  size_t row = size_t{blockIdx.y} * blockDim.y + threadIdx.y;
  if (cols % 4 == 0)
    for (; row + (kRowsPerThread - 1) * next_row < rows; row += kRowsPerThread * next_row)
      elementwise_rows<kRowsPerThread>(out, pass, row, next_row, cols, first, next);
  for (; row < rows; row += next_row)
    elementwise_rows<1>(out, pass, row, next_row, cols, first, next);
}

// How a row that begins at `row` is split; of a matrix with an odd number of columns each row is
// split in another way. Step 1.1's detail/grid.h draws it.
__device__ inline vector_add::Split split_row(const float* row, size_t cols) {
  const size_t past = reinterpret_cast<std::uintptr_t>(row) % sizeof(float4) / sizeof(float);
  const size_t before = (4 - past) % 4;
  const size_t head = before < cols ? before : cols;
  const size_t vectors = (cols - head) / 4;
  return {head, vectors, cols - head - 4 * vectors};
}

// This thread's part of the kRows rows row, row + next_row, ..., which are all split alike: the
// float4s first, first + next, ... and the single elements of head and tail. The float4s of all
// kRows rows are on their way before the first is used, and share the biases.
template <int kRows, class Pass>
__device__ inline void elementwise_rows(float* out, const Pass& pass, size_t row, size_t next_row,
                                        size_t cols, size_t first, size_t next) {
  const size_t begin = row * cols, next_begin = next_row * cols;
  const vector_add::Split split = split_row(out + begin, cols);
  // exercise: the float4s of the rows, then their single elements (about 15 lines)
  for (size_t v = first; v < split.vectors; v += next) {
    const size_t column = split.head + 4 * v;
    const float4 biases = load_bias(pass.bias + column);
    typename Pass::Loaded loaded[kRows];
    for (int k = 0; k < kRows; ++k) loaded[k] = pass.load(begin + k * next_begin + column);
    for (int k = 0; k < kRows; ++k)
      *reinterpret_cast<float4*>(out + begin + k * next_begin + column) =
          pass.vector(loaded[k], biases);
  }
  for (size_t s = first; s < split.head + split.tail; s += next) {
    const size_t column = s < split.head ? s : s + 4 * split.vectors;
    for (int k = 0; k < kRows; ++k) {
      const size_t i = begin + k * next_begin + column;
      out[i] = pass(i, column);
    }
  }
  // end exercise
}

template <class Pass>
static void launch_elementwise_vectorized(float* out, Pass pass, size_t rows, size_t cols,
                                          hipStream_t stream) {
  if (rows == 0 || cols == 0) return;
  const Grid grid = grid_2d(gpu::ceil_div(rows, size_t{kRowsPerThread}), gpu::ceil_div(cols, 4));
  LAUNCH_ON(stream, (elementwise_vectorized<Pass>), grid.blocks, grid.threads, 0, out, pass, rows,
            cols);
}

template <class Activation>
void forward_vectorized(float* y, const float* x, const float* bias, size_t rows, size_t cols,
                        hipStream_t stream) {
  if (aligned_alike({y, x}))
    launch_elementwise_vectorized(y, Forward<Activation>{x, bias}, rows, cols, stream);
  else
    launch_forward_fused_2d<Activation>(y, x, bias, rows, cols, stream);
}

template <class Activation>
void launch_backward_vectorized(float* grad_x, const float* grad_y, const float* x,
                                const float* bias, size_t rows, size_t cols, hipStream_t stream) {
  if (aligned_alike({grad_x, grad_y, x}))
    launch_elementwise_vectorized(grad_x, Backward<Activation>{grad_y, x, bias}, rows, cols,
                                  stream);
  else
    launch_backward_fused_2d<Activation>(grad_x, grad_y, x, bias, rows, cols, stream);
}

// The launchers that this file makes: forward and backward of each function.
template void forward_vectorized<activations::Relu>(float*, const float*, const float*, size_t,
                                                    size_t, hipStream_t);
template void forward_vectorized<activations::Sigmoid>(float*, const float*, const float*, size_t,
                                                       size_t, hipStream_t);
template void forward_vectorized<activations::Tanh>(float*, const float*, const float*, size_t,
                                                    size_t, hipStream_t);
template void forward_vectorized<activations::GeluErf>(float*, const float*, const float*, size_t,
                                                       size_t, hipStream_t);
template void forward_vectorized<activations::GeluTanh>(float*, const float*, const float*, size_t,
                                                        size_t, hipStream_t);
template void forward_vectorized<activations::Softplus>(float*, const float*, const float*, size_t,
                                                        size_t, hipStream_t);
template void forward_vectorized<Identity>(float*, const float*, const float*, size_t, size_t,
                                           hipStream_t);
template void launch_backward_vectorized<activations::Relu>(float*, const float*, const float*,
                                                            const float*, size_t, size_t,
                                                            hipStream_t);
template void launch_backward_vectorized<activations::Sigmoid>(float*, const float*, const float*,
                                                               const float*, size_t, size_t,
                                                               hipStream_t);
template void launch_backward_vectorized<activations::Tanh>(float*, const float*, const float*,
                                                            const float*, size_t, size_t,
                                                            hipStream_t);
template void launch_backward_vectorized<activations::GeluErf>(float*, const float*, const float*,
                                                               const float*, size_t, size_t,
                                                               hipStream_t);
template void launch_backward_vectorized<activations::GeluTanh>(float*, const float*, const float*,
                                                                const float*, size_t, size_t,
                                                                hipStream_t);
template void launch_backward_vectorized<activations::Softplus>(float*, const float*, const float*,
                                                                const float*, size_t, size_t,
                                                                hipStream_t);

}  // namespace matrix_activations
