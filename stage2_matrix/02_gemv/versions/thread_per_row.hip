// thread_per_row: a thread sums a row.
#include <algorithm>

#include "common/gpu.h"
#include "stage2_matrix/02_gemv/gemv.h"

namespace gemv {

// y = A x    a (rows, cols), x (cols), y (rows).
// Fixes : a CPU core takes the rows one after the other.
// Idea  : one thread per row: no thread needs another.
// Thread: thread t of the grid owns y[t].
// Costs : 4 rows cols bytes, of which a wave asks in each step for one element of each of its rows:
//         addresses that lie a row apart.
static __global__ void gemv_thread_per_row(float* y, const float* a, const float* x, size_t rows,
                                           size_t cols) {
  // exercise: this thread's row and its product with x (about 5 lines)
  const size_t row = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  float sum = 0;
  for (size_t col = 0; col < cols; ++col) sum += a[row * cols + col] * x[col];
  y[row] = sum;
  // end exercise
}

constexpr size_t kRowThreads = 256;            // per block
constexpr size_t kMostRows = size_t{1} << 31;  // of one launch: AMD counts its threads in 32 bits

void launch_thread_per_row(float* y, const float* a, const float* x, size_t rows, size_t cols,
                           hipStream_t stream) {
  for (size_t begin = 0; begin < rows; begin += kMostRows) {  // once, unless there are very many
    const size_t count = std::min(rows - begin, kMostRows);
    LAUNCH_ON(stream, gemv_thread_per_row, gpu::ceil_div(count, kRowThreads), kRowThreads, 0,
              y + begin, a + begin * cols, x, count, cols);
  }
}

}  // namespace gemv
