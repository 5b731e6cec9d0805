// split_rows: long rows are cut into slices, whose sums a second launch adds.
#include "common/gpu.h"
#include "stage2_matrix/02_gemv/detail/plan.h"
#include "stage2_matrix/02_gemv/detail/sums.h"
#include "stage2_matrix/02_gemv/gemv.h"

namespace gemv {

// y[i] = alpha (sum over s of partials[s, i]) + beta y[i]    partials (slices, count), y (count).
// Fixes : vectorized gives kRows rows to a block. 128 rows are 64 blocks, and half of a large
// device
//         has nothing to do. Where there are more rows, split_rows is vectorized.
// Idea  : gemv_vectorized leaves a sum per row and slice; this kernel adds them, in a fixed order,
// so
//         that every run gives the same bits. A launch is the barrier between the two.
// Thread: t owns y[t], y[t + T], ... with T threads in the grid.
// Costs : 4 slices count bytes, which the caches still hold; a second launch.
static __global__ void add_slices(Product p, const float* partials, size_t count, unsigned slices) {
  const size_t threads = size_t{gridDim.x} * kBlock;
  for (size_t i = size_t{blockIdx.x} * kBlock + threadIdx.x; i < count; i += threads) {
    float sum = 0;
    for (unsigned s = 0; s < slices; ++s) sum += partials[s * count + i];
    store(p, i, sum);
  }
}

void launch_add_slices(const Product& p, const float* partials, size_t count, unsigned slices,
                       hipStream_t stream) {
  if (slices > 1)
    LAUNCH_ON(stream, add_slices, grid_size(gpu::ceil_div(count, kBlock)), kBlock, 0, p, partials,
              count, slices);
}

void launch_split_rows(const Product& product, const Workspace& workspace, hipStream_t stream) {
  const Product p = checked(product, false);
  const RowPlan plan = plan_rows(p, true);
  launch_rows(p, workspace.partials, plan, stream);
  launch_add_slices(p, workspace.partials, p.rows, plan.slices, stream);
}

}  // namespace gemv
