// What `fused` does with a float or with the four of a float4, and with the sums of a block's
// teams.
#pragma once

#include <type_traits>

#include "common/gpu.h"
#include "stage7_transformer/02_layernorm/detail/pass.h"
#include "stage7_transformer/02_layernorm/detail/team.h"

namespace layernorm_backward {

using layernorm::plus;

__device__ inline float times(float a, float b) { return a * b; }
__device__ inline float4 times(float4 a, float4 b) {
  return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}
__device__ inline float normal(float x, float mean, float rstd) { return (x - mean) * rstd; }
__device__ inline float4 normal(float4 x, float mean, float rstd) {
  return make_float4(normal(x.x, mean, rstd), normal(x.y, mean, rstd), normal(x.z, mean, rstd),
                     normal(x.w, mean, rstd));
}
__device__ inline float gradient(float g, float n, float rstd, float mean_g, float mean_gn) {
  return rstd * (g - mean_g - n * mean_gn);
}
__device__ inline float4 gradient(float4 g, float4 n, float rstd, float mean_g, float mean_gn) {
  return make_float4(
      gradient(g.x, n.x, rstd, mean_g, mean_gn), gradient(g.y, n.y, rstd, mean_g, mean_gn),
      gradient(g.z, n.z, rstd, mean_g, mean_gn), gradient(g.w, n.w, rstd, mean_g, mean_gn));
}

// The sums of the block's teams, in the order of the teams, to partials (2, values): a block that
// is one team just stores them, waves add theirs up in shared memory.
template <class Team, class Value, unsigned kValues>
__device__ inline void leave_sums(Value* partials, const Value (&sum_gain)[kValues],
                                  const Value (&sum_bias)[kValues], unsigned values) {
  const unsigned rank = Team::rank();
  if constexpr (std::is_same_v<Team, layernorm::RowWave>) {
    __shared__ Value sums[2][kValues * gpu::kMaxWaveSize];
    const int waves = static_cast<int>(Team::kBlockThreads) / gpu::wave_size();
    for (int wave = 0; wave < waves; ++wave) {
      if (wave == gpu::wave_id()) {
        GPU_UNROLL
        for (unsigned k = 0; k < kValues; ++k) {
          const unsigned i = rank + k * Team::size();
          sums[0][i] = wave == 0 ? sum_gain[k] : plus(sums[0][i], sum_gain[k]);
          sums[1][i] = wave == 0 ? sum_bias[k] : plus(sums[1][i], sum_bias[k]);
        }
      }
      __syncthreads();  // the first wave + 1 waves' sums are in shared memory
    }
    for (unsigned v = threadIdx.x; v < values; v += Team::kBlockThreads) {
      partials[v] = sums[0][v];
      partials[values + v] = sums[1][v];
    }
  } else {
    GPU_UNROLL
    for (unsigned k = 0; k < kValues; ++k) {
      const unsigned i = rank + k * Team::size();
      if (i < values) partials[i] = sum_gain[k], partials[values + i] = sum_bias[k];
    }
  }
}

}  // namespace layernorm_backward
