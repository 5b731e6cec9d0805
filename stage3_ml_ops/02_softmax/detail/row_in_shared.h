// The kernel of row_in_shared with any Output, and its launcher: 3.3 stores the gradient of a loss
// with it.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cstddef>

#include "common/gpu.h"
#include "stage3_ml_ops/02_softmax/detail/row.h"

namespace softmax {

// kept[v] = the float4 v of the row, for those that `load_vectors` brought with the same begin and
// end.
template <class Team, unsigned kVectors>
__device__ inline void keep(float4* kept, const float4 (&held)[kVectors], size_t begin,
                            size_t end) {
  const size_t first = begin + Team::rank();
  const unsigned within = reach<Team, kVectors>(first, end);
  GPU_UNROLL
  for (unsigned k = 0; k < kVectors; ++k)
    if (k * Team::size() < within) kept[first + k * Team::size()] = held[k];
}

// Y = softmax(X)    X, Y (rows, cols), any rows; in_shared = how many float4s shared memory holds.
// Fixes : row_in_registers ends where a thread's registers end, and near that end a multiprocessor
//         holds one block only.
// Idea  : shared memory is as large as all registers together: a thread keeps there what its
//         registers do not hold. It takes the exponentials of the one part while the other arrives.
// Thread: t of the block owns the float4s t, t + kSharedThreads, ... of the row, and at most one
//         single one. No other thread reads its shared memory: no barrier for it.
// Costs : 1 read and 1 write; 4 kSharedVectors registers and 16 bytes of shared memory for each
//         float4 beyond them; 2 barriers per row.
template <class Output>
static __global__ void GPU_LAUNCH_BOUNDS(kSharedThreads, kSharedBlocks)
    softmax_row_in_shared(float* y, const float* x, size_t rows, size_t cols, size_t in_shared,
                          Output output) {
  using Team = BlockTeam<kSharedThreads>;
  constexpr size_t kStep = size_t{kSharedVectors} * kSharedThreads;
  DYNAMIC_SHARED(float4, kept);
  for (size_t r = Team::first_row(); r < rows; r += Team::rows_in_grid()) {
    const Row<true> row(y + r * cols, x + r * cols, cols);
    const size_t split = in_shared < row.vectors ? in_shared : row.vectors;

    float4 held[kSharedVectors];
    MaxSum shared_part = nothing();
    for (size_t begin = 0; begin < split; begin += kStep) {
      load_vectors<Team>(held, row, begin, split);
      keep<Team>(kept, held, begin, split);
      shared_part.max = max_of(held, shared_part.max);
    }
    load_vectors<Team>(held, row, split, row.vectors);
    float single = row.load_single(Team::rank());
    const auto output_row = output.row(r);
    for (size_t v = Team::rank(); v < split; v += kSharedThreads) {
      const float4 e = exponential(kept[v], shared_part.max);
      kept[v] = e;
      shared_part.sum += sum_of(e);
    }

    MaxSum part;
    part.max = fmaxf(max_of(held, -FLT_MAX), single);
    single = exponential(single - part.max);
    part.sum = exponentials(held, part.max) + single;
    const MaxSum whole = Team::merge(merge(part, shared_part));
    if (Team::rank() == 0) output_row.finish(whole);

    const float scale = probability_scale(part.max, whole);
    store<Team>(row, output_row, held, split, row.vectors, scale);
    store_single(row, output_row, Team::rank(), single, scale);
    const float shared_scale = probability_scale(shared_part.max, whole);
    for (size_t v = Team::rank(); v < split; v += kSharedThreads)
      store(row, output_row, v, kept[v], shared_scale);
  }
}

// Returns false, and launches nothing, where registers and shared memory together do not hold a row
// or y is not aligned like x.
template <class Output>
bool launch_row_in_shared(float* y, const float* x, size_t rows, size_t cols, Output output,
                          hipStream_t stream) {
  constexpr size_t kInRegisters = size_t{kSharedVectors} * kSharedThreads;
  const size_t vectors = cols / 4, in_shared = vectors - std::min(vectors, kInRegisters);
  const size_t bytes = in_shared * sizeof(float4);
  if (bytes + sizeof(MaxSum) * kMaxWaves > gpu::max_shared_bytes() || !aligned_alike(y, x))
    return false;
  gpu::allow_shared_bytes(softmax_row_in_shared<Output>, bytes);
  LAUNCH_ON(stream, (softmax_row_in_shared<Output>), row_blocks(rows, 1, kSharedThreads),
            kSharedThreads, bytes, y, x, rows, cols, in_shared, output);
  return true;
}

// Compiled in versions/row_in_shared.hip.
extern template bool launch_row_in_shared(float*, const float*, size_t, size_t, Probabilities,
                                          hipStream_t);

}  // namespace softmax
