// thread_per_row: a thread goes over a row three times.
#include <algorithm>
#include <cfloat>

#include "common/gpu.h"
#include "stage3_ml_ops/02_softmax/softmax.h"

namespace softmax {

// Y = softmax(X)    X, Y (rows, cols), any sizes.
// Fixes : a CPU core takes the rows one after the other.
// Idea  : rows are independent: one thread per row, in three passes: maximum, sum, quotient. GPUs
//         have an instruction for 2^x, so exp(d) is written as 2^(d log2(e)).
// Thread: thread t of the grid owns row t.
// Costs : 3 reads and 1 write; the lanes of a wave read addresses a whole row apart.
static __global__ void softmax_thread_per_row(float* y, const float* x, size_t rows, size_t cols) {
  const size_t row = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  const float* row_x = x + row * cols;
  float* row_y = y + row * cols;
  float max = -FLT_MAX, sum = 0;
  for (size_t c = 0; c < cols; ++c) max = fmaxf(max, row_x[c]);
  for (size_t c = 0; c < cols; ++c) sum += exp2f(1.44269504f * (row_x[c] - max));
  const float scale = 1.0f / sum;
  for (size_t c = 0; c < cols; ++c) row_y[c] = scale * exp2f(1.44269504f * (row_x[c] - max));
}

constexpr size_t kRowThreads = 256;            // per block
constexpr size_t kMostRows = size_t{1} << 31;  // of one launch: AMD counts its threads in 32 bits

void launch_thread_per_row(float* y, const float* x, size_t rows, size_t cols, hipStream_t stream) {
  if (cols == 0) return;
  for (size_t begin = 0; begin < rows; begin += kMostRows) {  // once, unless there are very many
    const size_t count = std::min(rows - begin, kMostRows);
    LAUNCH_ON(stream, softmax_thread_per_row, gpu::ceil_div(count, kRowThreads), kRowThreads, 0,
              y + begin * cols, x + begin * cols, count, cols);
  }
}

}  // namespace softmax
