// wave_per_row: a wave shares a row.
#include <cfloat>

#include "common/gpu.h"
#include "stage1_vector/03_dot/detail/block_sum.h"
#include "stage3_ml_ops/02_softmax/detail/team.h"
#include "stage3_ml_ops/02_softmax/softmax.h"

namespace softmax {

// Y = softmax(X)    X, Y (rows, cols), any sizes.
// Fixes : block_per_row waits at 18 barriers per row, and its threads have little of a short row.
// Idea  : a wave per row: shuffles instead of shared memory and barriers.
// Thread: lane l of a wave owns the columns l, l + wave size, ... of the wave's row.
// Costs : 3 reads and 1 write; no barrier, no shared memory. Slower than block_per_row at every
//         committed shape: as many threads work at more rows at a time (8 times as many with waves
//         of 32), more than the cache keeps from one pass to the next. It is the step to
//         row_in_registers, where a wave holds its row.
static __global__ void softmax_wave_per_row(float* y, const float* x, size_t rows, size_t cols) {
  const size_t waves_per_block = kBlock / static_cast<unsigned>(gpu::wave_size());
  const size_t wave = blockIdx.x * waves_per_block + static_cast<size_t>(gpu::wave_id());
  const size_t lane = static_cast<size_t>(gpu::lane_id());
  const size_t lanes = static_cast<size_t>(gpu::wave_size());
  for (size_t row = wave; row < rows; row += gridDim.x * waves_per_block) {
    const float* row_x = x + row * cols;
    float* row_y = y + row * cols;
    float max = -FLT_MAX, sum = 0;
    for (size_t c = lane; c < cols; c += lanes) max = fmaxf(max, row_x[c]);
    max = wave_max(max);
    for (size_t c = lane; c < cols; c += lanes) sum += exponential(row_x[c] - max);
    sum = dot::wave_sum(sum);
    const float scale = 1.0f / sum;
    for (size_t c = lane; c < cols; c += lanes) row_y[c] = scale * exponential(row_x[c] - max);
  }
}

void launch_wave_per_row(float* y, const float* x, size_t rows, size_t cols, hipStream_t stream) {
  if (rows == 0 || cols == 0) return;
  LAUNCH_ON(stream, softmax_wave_per_row,
            row_blocks(rows, kBlock / gpu::device_wave_size(), kBlock), kBlock, 0, y, x, rows,
            cols);
}

}  // namespace softmax
