// The passes of versions/online.hip with any Output: 3.3 stores the gradient of a loss with them.
#pragma once

#include <cstddef>

#include "common/gpu.h"
#include "stage3_ml_ops/02_softmax/detail/row.h"
#include "stage3_ml_ops/02_softmax/softmax.h"

namespace softmax {

// As softmax_online in versions/online.hip, but it stores what `output` makes of each probability.
template <bool kAlignedAlike, class Output>
static __global__ void GPU_LAUNCH_BOUNDS(kOnlineThreads, kOnlineBlocks)
    softmax_online_with_output(float* y, const float* x, size_t rows, size_t cols, Output output) {
  using Team = BlockTeam<kOnlineThreads>;
  constexpr size_t kStep = size_t{kOnlineVectors} * kOnlineThreads;
  for (size_t r = Team::first_row(); r < rows; r += Team::rows_in_grid()) {
    const Row<kAlignedAlike> row(y + r * cols, x + r * cols, cols);
    const float single = row.load_single(Team::rank());
    MaxSum part = merge(nothing(), {single, 1.0f});
    float4 held[kOnlineVectors];
    for (size_t begin = 0; begin < row.vectors; begin += kStep) {
      load_vectors<Team>(held, row, begin, row.vectors);
      const float max = max_of(held, part.max);
      part.sum = part.sum * exponential(part.max - max) + exponentials(held, max);
      part.max = max;
    }
    const auto output_row = output.row(r);
    const MaxSum whole = Team::merge(part);
    if (Team::rank() == 0) output_row.finish(whole);
    const float scale = 1.0f / whole.sum;
    for (size_t step = gpu::ceil_div(row.vectors, kStep); step-- > 0;) {
      load_vectors<Team>(held, row, step * kStep, row.vectors);
      exponentials(held, whole.max);
      store<Team>(row, output_row, held, step * kStep, row.vectors, scale);
    }
    store_single(row, output_row, Team::rank(), exponential(single - whole.max), scale);
  }
}

template <class Output>
void launch_online(float* y, const float* x, size_t rows, size_t cols, Output output,
                   hipStream_t stream) {
  const unsigned blocks = row_blocks(rows, 1, kOnlineThreads);
  if (aligned_alike(y, x))
    LAUNCH_ON(stream, (softmax_online_with_output<true, Output>), blocks, kOnlineThreads, 0, y, x,
              rows, cols, output);
  else
    LAUNCH_ON(stream, (softmax_online_with_output<false, Output>), blocks, kOnlineThreads, 0, y, x,
              rows, cols, output);
}

// What is stored is the softmax itself.
inline void launch_online(float* y, const float* x, size_t rows, size_t cols, Probabilities,
                          hipStream_t stream) {
  launch_online(y, x, rows, cols, stream);
}

}  // namespace softmax
