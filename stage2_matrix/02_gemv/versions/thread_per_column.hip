// thread_per_column: A^T x, a thread sums a column.
#include "common/gpu.h"
#include "stage2_matrix/02_gemv/detail/plan.h"
#include "stage2_matrix/02_gemv/detail/sums.h"
#include "stage2_matrix/02_gemv/gemv.h"

namespace gemv {

// y = alpha A^T x + beta y    A (rows, cols), x (rows), y (cols), any sizes.
// Fixes : the versions above would need a transposed copy of A, three times the bytes.
// Idea  : one thread per column; neighbours read neighbours in every row.
// Thread: t owns y[t], y[t + T], ... with T threads in the grid.
// Costs : 4 rows cols bytes, asked for by only as many threads as there are columns.
static __global__ void gemv_thread_per_column(Product p) {
  const size_t threads = size_t{gridDim.x} * kBlock;
  for (size_t col = size_t{blockIdx.x} * kBlock + threadIdx.x; col < p.cols; col += threads) {
    float sum = 0;
    for (size_t row = 0; row < p.rows; ++row) sum += p.a[row * p.lda + col] * p.x[row];
    store(p, col, sum);
  }
}

void launch_thread_per_column(const Product& product, const Workspace&, hipStream_t stream) {
  const Product p = checked(product, true);
  if (p.cols == 0) return;
  LAUNCH_ON(stream, gemv_thread_per_column, grid_size(gpu::ceil_div(p.cols, kBlock)), kBlock, 0, p);
}

}  // namespace gemv
