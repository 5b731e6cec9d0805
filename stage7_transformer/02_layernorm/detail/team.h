// Who shares a row: a wave or a block. A team's sum is in all of its threads.
#pragma once

#include "common/gpu.h"
#include "stage1_vector/03_dot/detail/block_sum.h"
#include "stage3_ml_ops/02_softmax/detail/team.h"

namespace layernorm {

// Two sums that follow each other have different slots: a thread may still read the shared memory
// of the first one when another already writes that of the second.

inline constexpr unsigned kBlock = softmax::kBlock;  // threads per block where nothing else is said

struct RowWave : softmax::WaveTeam {
  template <unsigned kSlot>
  __device__ static float sum(float value) {
    return dot::wave_sum(value);
  }
  __device__ static void sync() { gpu::wave_sync(); }
};

template <unsigned kThreads>
struct RowBlock : softmax::BlockTeam<kThreads> {
  template <unsigned kSlot>
  __device__ static float sum(float value) {
    __shared__ float sums[softmax::kMaxWaves];  // of each slot its own
    value = dot::wave_sum(value);
    if (gpu::lane_id() == 0) sums[gpu::wave_id()] = value;
    __syncthreads();  // every wave's sum is in `sums`, and nobody reads the other slot any more
    const int waves = static_cast<int>(kThreads) / gpu::wave_size();
    return dot::wave_sum(gpu::lane_id() < waves ? sums[gpu::lane_id()] : 0.0f);
  }
  __device__ static void sync() {
    __syncthreads();  // every thread of the block has come here
  }
};

// Blocks for `rows` that teams share out among them.
template <class Team>
inline unsigned team_blocks(size_t rows) {
  return softmax::row_blocks(rows, Team::kBlockThreads / Team::host_size(), Team::kBlockThreads);
}

}  // namespace layernorm
