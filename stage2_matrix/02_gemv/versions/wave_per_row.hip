// wave_per_row: a wave sums a row, and adds its lanes' sums by shuffles.
#include "common/gpu.h"
#include "stage1_vector/03_dot/detail/block_sum.h"
#include "stage2_matrix/02_gemv/detail/plan.h"
#include "stage2_matrix/02_gemv/gemv.h"

namespace gemv {

// y = A x    a (rows, cols), x (cols), y (rows).
// Fixes : block_per_row waits at barriers, and leaves threads idle in rows shorter than a block.
//         For rows of 16384 elements neither matters: both run at the limit. Few long rows are
//         slower than in block_per_row, because they have fewer waves than the device can hold.
// Idea  : a wave reads a row; its lanes add their sums by shuffles, without a barrier.
// Thread: lane l of wave w sums columns l, l + wave, ... of the rows w, w + all waves, ...
// Costs : 4 rows cols bytes; log2(wave) shuffles per row.
static __global__ void gemv_wave_per_row(float* y, const float* a, const float* x, size_t rows,
                                         size_t cols) {
  // exercise: this wave's rows, the lanes' share of each, their sum (about 10 lines)
  const unsigned wave = static_cast<unsigned>(gpu::wave_size());
  const unsigned lane = static_cast<unsigned>(gpu::lane_id());
  const unsigned waves_per_block = kBlock / wave;
  const size_t waves = size_t{gridDim.x} * waves_per_block;
  for (size_t row = size_t{blockIdx.x} * waves_per_block + threadIdx.x / wave; row < rows;
       row += waves) {
    float sum = 0;
    for (size_t col = lane; col < cols; col += wave) sum += a[row * cols + col] * x[col];
    sum = dot::wave_sum(sum);
    if (lane == 0) y[row] = sum;
  }
  // end exercise
}

void launch_wave_per_row(float* y, const float* a, const float* x, size_t rows, size_t cols,
                         hipStream_t stream) {
  if (rows == 0) return;
  const size_t blocks = gpu::ceil_div(rows, kBlock / gpu::device_wave_size());
  LAUNCH_ON(stream, gemv_wave_per_row, grid_size(blocks), kBlock, 0, y, a, x, rows, cols);
}

}  // namespace gemv
