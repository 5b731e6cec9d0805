// vectorized: two rows share what is read of x, with many 16-byte loads in flight. From here on a
// version computes the whole Product: alpha, beta, gaps between rows, arrays at any alignment.
#include "common/gpu.h"
#include "stage1_vector/03_dot/detail/block_sum.h"
#include "stage2_matrix/02_gemv/detail/plan.h"
#include "stage2_matrix/02_gemv/detail/sums.h"
#include "stage2_matrix/02_gemv/gemv.h"

namespace gemv {

// y = alpha A x + beta y    A (rows, cols), x (cols), y (rows), any sizes. With several slices of
//                           columns (gridDim.y): partials[s, i] = row i of A times x in slice s.
// Fixes : wave_per_row has one 4-byte load of A in flight per lane, and reads x for every row.
// Idea  : kRows rows at a time share what is read of x; all their loads, 16 bytes each where Value
//         is float4, are in flight together. A team is as wide as the rows are long.
// Thread: (t, g) of block (b, s) sums Values t, t + team, ... of slice s in kRows rows of team g.
// Costs : 4 rows cols bytes of A; 4 cols bytes of x and 2 barriers per kRows rows;
//         4 kRowLoads (kRows + 1) registers for what is in flight.
template <class Value>
static __global__ void GPU_LAUNCH_BOUNDS(kBlock, kResidentBlocks)
    gemv_vectorized(Product p, float* partials) {
  __shared__ float sums[kBlock][kRows];  // one row per wave is used
  constexpr unsigned kWidth = sizeof(Value) / sizeof(float),
                     kLoads = loads_in_flight(kWidth, kRowLoads);
  const unsigned team = blockDim.x;
  const size_t values = p.cols / kWidth, slice = gpu::ceil_div(values, gridDim.y);
  const size_t begin = blockIdx.y * slice, end = min(begin + slice, values);
  const Value* x = reinterpret_cast<const Value*>(p.x);

  const size_t rows_per_block = size_t{blockDim.y} * kRows;
  for (size_t block_row = blockIdx.x * rows_per_block; block_row < p.rows;
       block_row += gridDim.x * rows_per_block) {
    const size_t first_row = block_row + threadIdx.y * kRows;
    // Behind the last row the last one is read again: no branch, and nothing new from memory.
    const Value* rows[kRows];
    for (unsigned r = 0; r < kRows; ++r)
      rows[r] = reinterpret_cast<const Value*>(p.a + min(first_row + r, p.rows - 1) * p.lda);
    float sum[kRows] = {};
    // exercise: rounds of kLoads Values of each row, the Values left over (about 14 lines)
    size_t v = begin + threadIdx.x;
    for (; v + (kLoads - 1) * team < end; v += kLoads * team) {
      Value held_x[kLoads], held_a[kRows][kLoads];
      for (unsigned k = 0; k < kLoads; ++k) {
        held_x[k] = x[v + k * team];
        for (unsigned r = 0; r < kRows; ++r) held_a[r][k] = rows[r][v + k * team];
      }
      for (unsigned k = 0; k < kLoads; ++k)
        for (unsigned r = 0; r < kRows; ++r) add_dot(sum[r], held_a[r][k], held_x[k]);
    }
    for (; v < end; v += team)
      for (unsigned r = 0; r < kRows; ++r) add_dot(sum[r], rows[r][v], x[v]);
    // end exercise
    if (blockIdx.y == 0)  // the columns behind the last float4
      for (size_t col = values * kWidth + threadIdx.x; col < p.cols; col += team)
        for (unsigned r = 0; r < kRows; ++r)
          sum[r] += reinterpret_cast<const float*>(rows[r])[col] * p.x[col];

    for (unsigned r = 0; r < kRows; ++r) {
      sum[r] = dot::wave_sum(sum[r]);
      if (gpu::lane_id() == 0) sums[gpu::wave_id()][r] = sum[r];
    }
    __syncthreads();  // every wave's sums are in shared memory
    const unsigned waves = team / static_cast<unsigned>(gpu::wave_size());
    if (threadIdx.x < kRows && first_row + threadIdx.x < p.rows) {
      float total = 0;
      for (unsigned w = 0; w < waves; ++w) total += sums[threadIdx.y * waves + w][threadIdx.x];
      deliver(p, partials, p.rows, first_row + threadIdx.x, total);
    }
    __syncthreads();  // the sums have been read: the next rows may overwrite them
  }
}

void launch_rows(const Product& p, float* partials, const RowPlan& plan, hipStream_t stream) {
  if (p.rows == 0) return;
  const dim3 block(plan.team, kBlock / plan.team);
  const dim3 grid(grid_size(gpu::ceil_div(p.rows, size_t{block.y} * kRows)), plan.slices);
  if (plan.width == 4)
    LAUNCH_ON(stream, gemv_vectorized<float4>, grid, block, 0, p, partials);
  else
    LAUNCH_ON(stream, gemv_vectorized<float>, grid, block, 0, p, partials);
}

void launch_vectorized(const Product& product, const Workspace&, hipStream_t stream) {
  const Product p = checked(product, false);
  launch_rows(p, nullptr, plan_rows(p, false), stream);
}

}  // namespace gemv
