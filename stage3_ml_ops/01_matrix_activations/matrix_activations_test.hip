// Mistakes that matrix_activations_test.cpp must see fail, as kernels.
#include "common/gpu.h"
#include "stage1_vector/04_activations/detail/formulas.h"

namespace matrix_activations_test {

using activations::Relu;
using activations::Sigmoid;

void launch_bias_of_row(float* y, const float* x, const float* bias, size_t rows, size_t cols,
                        hipStream_t stream);
void launch_without_bounds_check(float* y, const float* x, const float* bias, size_t rows,
                                 size_t cols, hipStream_t stream);
void launch_no_bias_in_backward(float* grad_x, const float* grad_y, const float* x,
                                const float* bias, size_t rows, size_t cols, hipStream_t stream);
void launch_slope_of_output(float* grad_x, const float* grad_y, const float* x, const float* bias,
                            size_t rows, size_t cols, hipStream_t stream);

constexpr unsigned kThreads = 256;  // per block

static unsigned blocks_of(size_t n) { return static_cast<unsigned>(gpu::ceil_div(n, kThreads)); }

// The bias that is added is the row's.
static __global__ void bias_of_row(float* y, const float* x, const float* bias, size_t n,
                                   size_t cols) {
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) y[i] = Relu{}(x[i] + bias[i / cols]);
}

// A thread beyond the last column writes into the next row, and behind the last one.
static __global__ void without_bounds_check(float* y, const float* x, const float* bias,
                                            size_t cols) {
  const size_t column = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t i = blockIdx.y * cols + column;
  y[i] = column < cols ? Relu{}(x[i] + bias[column]) : 0.0f;
}

// The slope at x, as if there were no bias.
static __global__ void no_bias_in_backward(float* grad_x, const float* grad_y, const float* x,
                                           size_t n) {
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) grad_x[i] = grad_y[i] * Sigmoid{}.derivative(x[i]);
}

// f'(f(x)) in place of f'(x).
static __global__ void slope_of_output(float* grad_x, const float* grad_y, const float* x,
                                       const float* bias, size_t n, size_t cols) {
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) grad_x[i] = grad_y[i] * Sigmoid{}.derivative(Sigmoid{}(x[i] + bias[i % cols]));
}

void launch_bias_of_row(float* y, const float* x, const float* bias, size_t rows, size_t cols,
                        hipStream_t stream) {
  LAUNCH_ON(stream, bias_of_row, blocks_of(rows * cols), kThreads, 0, y, x, bias, rows * cols,
            cols);
}

void launch_without_bounds_check(float* y, const float* x, const float* bias, size_t rows,
                                 size_t cols, hipStream_t stream) {
  const dim3 blocks(static_cast<unsigned>(gpu::ceil_div(cols, 8)), static_cast<unsigned>(rows));
  LAUNCH_ON(stream, without_bounds_check, blocks, 8, 0, y, x, bias, cols);
}

void launch_no_bias_in_backward(float* grad_x, const float* grad_y, const float* x, const float*,
                                size_t rows, size_t cols, hipStream_t stream) {
  LAUNCH_ON(stream, no_bias_in_backward, blocks_of(rows * cols), kThreads, 0, grad_x, grad_y, x,
            rows * cols);
}

void launch_slope_of_output(float* grad_x, const float* grad_y, const float* x, const float* bias,
                            size_t rows, size_t cols, hipStream_t stream) {
  LAUNCH_ON(stream, slope_of_output, blocks_of(rows * cols), kThreads, 0, grad_x, grad_y, x, bias,
            rows * cols, cols);
}

}  // namespace matrix_activations_test
