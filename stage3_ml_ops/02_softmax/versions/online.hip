// online: maximum and sum in one pass. Its passes with another Output are in detail/online.h.
#include "common/gpu.h"
#include "stage3_ml_ops/02_softmax/detail/row.h"
#include "stage3_ml_ops/02_softmax/softmax.h"

namespace softmax {

// Y = softmax(X)    X, Y (rows, cols), any sizes.
// Fixes : three passes read the row three times, 4 bytes per load.
// Idea  : maximum and sum in one pass: where a larger element appears, the sum so far is rescaled.
//         float4s, several on their way; the second pass walks back, over what is still in cache.
// Thread: t of the block owns the float4s t, t + kOnlineThreads, ... of the row, and a single one.
// Costs : 2 reads, of which the cache may serve one, and 1 write; 2 barriers per row.
template <bool kAlignedAlike>
static __global__ void GPU_LAUNCH_BOUNDS(kOnlineThreads, kOnlineBlocks)
    softmax_online(float* y, const float* x, size_t rows, size_t cols) {
  using Team = BlockTeam<kOnlineThreads>;
  constexpr size_t kStep = size_t{kOnlineVectors} * kOnlineThreads;
  constexpr Probabilities::Row stored{};  // as they are
  __shared__ MaxSum parts[kMaxWaves];
  for (size_t r = Team::first_row(); r < rows; r += Team::rows_in_grid()) {
    const Row<kAlignedAlike> row(y + r * cols, x + r * cols, cols);
    const float single = row.load_single(Team::rank());
    MaxSum part = merge(nothing(), {single, 1.0f});
    float4 held[kOnlineVectors];
    // exercise: for each step, load, then merge maximum and sum of `held` into part (about 6 lines)
    for (size_t begin = 0; begin < row.vectors; begin += kStep) {
      load_vectors<Team>(held, row, begin, row.vectors);
      const float max = max_of(held, part.max);
      part.sum = part.sum * exponential(part.max - max) + exponentials(held, max);
      part.max = max;
    }
    // end exercise
    // exercise: merge waves, leave one part per wave in `parts`, merge those (about 6 lines)
    part = wave_merge(part);
    __syncthreads();  // nobody reads the parts of the row before any more
    if (gpu::lane_id() == 0) parts[gpu::wave_id()] = part;
    __syncthreads();  // every wave's part is in `parts`
    const int waves = static_cast<int>(kOnlineThreads) / gpu::wave_size();
    const MaxSum whole = wave_merge(gpu::lane_id() < waves ? parts[gpu::lane_id()] : nothing());
    // end exercise
    const float scale = 1.0f / whole.sum;
    for (size_t step = gpu::ceil_div(row.vectors, kStep); step-- > 0;) {
      load_vectors<Team>(held, row, step * kStep, row.vectors);
      exponentials(held, whole.max);
      store<Team>(row, stored, held, step * kStep, row.vectors, scale);
    }
    store_single(row, stored, Team::rank(), exponential(single - whole.max), scale);
  }
}

void launch_online(float* y, const float* x, size_t rows, size_t cols, hipStream_t stream) {
  if (rows == 0 || cols == 0) return;
  const unsigned blocks = row_blocks(rows, 1, kOnlineThreads);
  if (aligned_alike(y, x))
    LAUNCH_ON(stream, softmax_online<true>, blocks, kOnlineThreads, 0, y, x, rows, cols);
  else
    LAUNCH_ON(stream, softmax_online<false>, blocks, kOnlineThreads, 0, y, x, rows, cols);
}

}  // namespace softmax
