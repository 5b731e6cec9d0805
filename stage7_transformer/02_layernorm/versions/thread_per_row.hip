// thread_per_row: a thread computes mean, variance and y of a row.
#include "common/gpu.h"
#include "stage3_ml_ops/02_softmax/detail/grid.h"
#include "stage7_transformer/02_layernorm/layernorm.h"

namespace layernorm {

// y = (x - mean) rstd gain + bias    x, y (rows, cols), any sizes.
// Fixes : a CPU core takes the rows one after the other.
// Idea  : rows are independent; one thread for each. The formulas as they are: mean, variance, y.
// Thread: t of the grid's T threads owns the rows t, t + T, ...
// Costs : 3 reads and 1 write of every element; the lanes of a wave read addresses a row apart.
static __global__ void layernorm_thread_per_row(float* y, float* means, float* rstds,
                                                const float* x, const float* gain,
                                                const float* bias, size_t rows, size_t cols,
                                                float eps) {
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t row = size_t{blockIdx.x} * blockDim.x + threadIdx.x; row < rows; row += threads) {
    const float* row_x = x + row * cols;
    const float first = row_x[0], n = static_cast<float>(cols);
    // exercise: the mean of x - first, then that of the squared differences from it (about 8 lines)
    float sum = 0, squares = 0;
    for (size_t c = 0; c < cols; ++c) sum += row_x[c] - first;
    const float mean = sum / n;
    for (size_t c = 0; c < cols; ++c) {
      const float e = row_x[c] - first - mean;
      squares += e * e;
    }
    const float variance = squares / n;
    // end exercise
    const float with_eps = variance + eps, rstd = with_eps == 0 ? 0.0f : 1.0f / sqrtf(with_eps);
    if (means != nullptr) means[row] = first + mean;
    if (rstds != nullptr) rstds[row] = rstd;
    for (size_t c = 0; c < cols; ++c)
      y[row * cols + c] = (row_x[c] - first - mean) * rstd * gain[c] + bias[c];
  }
}

void launch_thread_per_row(const Pass& pass, const float* x, hipStream_t stream) {
  constexpr unsigned kThreads = 256;
  if (pass.rows > 0)
    LAUNCH_ON(stream, layernorm_thread_per_row, softmax::row_blocks(pass.rows, kThreads, kThreads),
              kThreads, 0, pass.y, pass.mean, pass.rstd, x, pass.gain, pass.bias, pass.rows,
              pass.cols, pass.eps);
}

}  // namespace layernorm
