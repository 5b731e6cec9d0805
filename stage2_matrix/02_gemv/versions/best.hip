// best: the version that suits the shape of a product.
#include "common/gpu.h"
#include "stage2_matrix/02_gemv/detail/plan.h"
#include "stage2_matrix/02_gemv/detail/sums.h"
#include "stage2_matrix/02_gemv/gemv.h"

namespace gemv {

// y = alpha A x + beta y    A (rows, cols), x (cols), y (rows), any sizes; for short rows.
// Fixes : vectorized reads a row with a wave or more: of a row of 8 elements most lanes read
//         nothing.
// Idea  : thread_per_row for a whole Product. Rows that are a few floats apart share lines.
// Thread: t owns y[t], y[t + T], ... with T threads in the grid.
// Costs : 4 rows cols bytes.
static __global__ void gemv_short_rows(Product p) {
  const size_t threads = size_t{gridDim.x} * kBlock;
  for (size_t row = size_t{blockIdx.x} * kBlock + threadIdx.x; row < p.rows; row += threads) {
    const float* a = p.a + row * p.lda;
    float sum = 0;
    for (size_t col = 0; col < p.cols; ++col) sum += a[col] * p.x[col];
    store(p, row, sum);
  }
}

static void launch_short_rows(const Product& product, hipStream_t stream) {
  const Product p = checked(product, false);
  if (p.rows == 0) return;
  LAUNCH_ON(stream, gemv_short_rows, grid_size(gpu::ceil_div(p.rows, kBlock)), kBlock, 0, p);
}

void best(bool transposed, const Product& product, const Workspace& workspace, hipStream_t stream) {
  if (transposed)
    launch_split_columns(product, workspace, stream);
  else if (product.cols <= kShortRow)
    launch_short_rows(product, stream);
  else
    launch_split_rows(product, workspace, stream);
}

}  // namespace gemv
