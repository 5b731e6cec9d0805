// softmax_jacobian: the chain rule as it is written.
#include "common/gpu.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage5_training/02_activation_backward/softmax_backward.h"

namespace activation_backward {

// grad_x[r,j] = sum over k of p[r,j] (1[j=k] - p[r,k]) grad_p[r,k]    all (rows, cols).
// Fixes : a CPU core takes the rows one after the other.
// Idea  : the chain rule as it is written: a row's gradient times its Jacobian, never stored.
// Thread: t owns the elements t, t + T, ... of flat memory.
// Costs : rows cols^2 multiplications; the row comes out of the caches.
static __global__ void softmax_backward_jacobian(float* grad_x, const float* grad_p, const float* p,
                                                 size_t rows, size_t cols) {
  const size_t n = rows * cols, threads = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads) {
    const size_t begin = i - i % cols;
    float sum = 0;
    for (size_t k = begin; k < begin + cols; ++k) {
      const float slope = p[i] * ((k == i ? 1.0f : 0.0f) - p[k]);
      sum += slope * grad_p[k];
    }
    grad_x[i] = sum;
  }
}

void launch_softmax_jacobian(float* grad_x, const float* grad_p, const float* p, size_t rows,
                             size_t cols, hipStream_t stream) {
  const size_t n = rows * cols;
  if (n > 0)
    LAUNCH_ON(stream, softmax_backward_jacobian, vector_add::full_grid(n), vector_add::kBlock, 0,
              grad_x, grad_p, p, rows, cols);
}

double roundings_softmax_jacobian(size_t cols) { return static_cast<double>(cols); }

}  // namespace activation_backward
