// The kernel of row_in_registers with any Output, and its launcher: 3.3 stores the gradient of a
// loss with it.
#pragma once

#include <cfloat>
#include <cstddef>

#include "common/gpu.h"
#include "stage3_ml_ops/02_softmax/detail/row.h"

namespace softmax {

// Y = softmax(X)    X, Y (rows, cols), any rows; cols / 4 <= kVectors * the team's threads.
// Fixes : online reads the row twice.
// Idea  : the team holds the row in its registers: read once, all loads on their way at the same
//         time. Each thread takes exponentials by its own maximum, without waiting for the others,
//         and rescales them when the row's is known.
// Thread: t of the team owns the float4s t, t + team, ... of the row, and at most one single one.
// Costs : 1 read and 1 write; 4 kVectors registers; 2 barriers per row, none in a wave.
template <class Team, unsigned kVectors, unsigned kResidentBlocks, class Output>
static __global__ void GPU_LAUNCH_BOUNDS(Team::kBlockThreads, kResidentBlocks)
    softmax_row_in_registers(float* y, const float* x, size_t rows, size_t cols, Output output) {
  for (size_t r = Team::first_row(); r < rows; r += Team::rows_in_grid()) {
    const Row<true> row(y + r * cols, x + r * cols, cols);
    float4 held[kVectors];
    load_vectors<Team>(held, row, 0, row.vectors);
    float single = row.load_single(Team::rank());
    const auto output_row = output.row(r);
    MaxSum part;
    part.max = fmaxf(max_of(held, -FLT_MAX), single);
    single = exponential(single - part.max);
    part.sum = exponentials(held, part.max) + single;
    const MaxSum whole = Team::merge(part);
    if (Team::rank() == 0) output_row.finish(whole);
    const float scale = probability_scale(part.max, whole);
    store<Team>(row, output_row, held, 0, row.vectors, scale);
    store_single(row, output_row, Team::rank(), single, scale);
  }
}

// Returns false, and launches nothing, where the team can't hold a row.
template <class Team, unsigned kVectors, unsigned kResidentBlocks, class Output>
inline bool launch_team(float* y, const float* x, size_t rows, size_t cols, Output output,
                        hipStream_t stream) {
  const unsigned threads = Team::host_size();
  if (cols / 4 > size_t{kVectors} * threads) return false;
  LAUNCH_ON(stream, (softmax_row_in_registers<Team, kVectors, kResidentBlocks, Output>),
            row_blocks(rows, Team::kBlockThreads / threads, Team::kBlockThreads),
            Team::kBlockThreads, 0, y, x, rows, cols, output);
  return true;
}

// Returns false, and launches nothing, where no team can hold a row or y is not aligned like x. A
// team that is larger than its rows has idle threads.
template <class Output>
bool launch_row_in_registers(float* y, const float* x, size_t rows, size_t cols, Output output,
                             hipStream_t stream) {
  return aligned_alike(y, x) &&
         (launch_team<WaveTeam, 1, 4>(y, x, rows, cols, output, stream) ||
          launch_team<WaveTeam, 2, 4>(y, x, rows, cols, output, stream) ||
          launch_team<WaveTeam, 4, 4>(y, x, rows, cols, output, stream) ||
          launch_team<WaveTeam, 8, 3>(y, x, rows, cols, output, stream) ||
          launch_team<BlockTeam<256>, 4, 4>(y, x, rows, cols, output, stream) ||
          launch_team<BlockTeam<512>, 4, 2>(y, x, rows, cols, output, stream) ||
          launch_team<BlockTeam<512>, 8, 2>(y, x, rows, cols, output, stream) ||
          launch_team<BlockTeam<512>, 16, 1>(y, x, rows, cols, output, stream) ||
          launch_team<BlockTeam<512>, 25, 1>(y, x, rows, cols, output, stream));
}

// Compiled in versions/row_in_registers.hip.
extern template bool launch_row_in_registers(float*, const float*, size_t, size_t, Probabilities,
                                             hipStream_t);

}  // namespace softmax
