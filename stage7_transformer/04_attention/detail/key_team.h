// How the lanes of split_keys share the numbers of a key.
#pragma once

#include <cstddef>

#include "common/gpu.h"
#include "common/half.h"
#include "stage7_transformer/04_attention/detail/key_slices.h"

namespace attention {

// kLanes neighbours share a key: each has kChunks times 16 bytes of its numbers, and the same
// columns of kRows queries and of what becomes of them.
template <class T, int kLanes_, int kChunks_, int kRows_>
struct KeyTeam {
  static constexpr int kLanes = kLanes_, kChunks = kChunks_, kRows = kRows_;
  static constexpr int kInChunk = 16 / sizeof(T), kNumbers = kChunks * kInChunk;
  static constexpr int kDepth = kLanes * kNumbers;  // heads have at most so many numbers
  static constexpr int kTeams = kSliceBlock / kLanes;
  static constexpr int kKeys = kRows == 1 && kChunks == 1 ? 4 : 2;  // that a team has on their way
  static constexpr int kStep = kTeams * kKeys;                      // keys that a block has
  static constexpr int kBlocks = kChunks == 1 ? 3 : 2;              // resident, by their registers

  // The column of number i of this thread.
  __device__ static int column(int i) {
    const int lane = static_cast<int>(threadIdx.x) % kLanes;
    return (i / kInChunk * kLanes + lane) * kInChunk + i % kInChunk;
  }
};

// Calls use(KeyTeam) with the smallest team for heads of D numbers, and rows for Tq queries.
template <class T, int kRows, class Use>
auto with_key_team_of(size_t D, Use use) {
  constexpr int kFewer = kRows < 2 ? kRows : 2;
  if constexpr (sizeof(T) == 2) {
    if (D <= 64) return use(KeyTeam<T, 8, 1, kRows>{});
    if (D <= 128) return use(KeyTeam<T, 16, 1, kRows>{});
    return use(KeyTeam<T, 16, 2, kFewer>{});
  } else {
    if (D <= 32) return use(KeyTeam<T, 8, 1, kRows>{});
    if (D <= 64) return use(KeyTeam<T, 16, 1, kRows>{});
    if (D <= 128) return use(KeyTeam<T, 16, 2, kRows>{});
    return use(KeyTeam<T, 16, 4, kFewer>{});
  }
}
template <class T, class Use>
auto with_key_team(const Problem& p, Use use) {
  return p.Tq == 1 ? with_key_team_of<T, 1>(p.D, use) : with_key_team_of<T, 4>(p.D, use);
}

// 16 bytes of a row.
template <class T>
struct alignas(16) Chunk {
  T numbers[16 / sizeof(T)];
};

// This thread's numbers of the kKeys rows from `row` on, of which there are `left`: 0 for those
// that are not there, and for columns from D on.
template <class T, class Team, bool kAligned>
__device__ inline void load_keys(Chunk<T> (&to)[Team::kKeys][Team::kChunks], const T* row,
                                 size_t stride, int left, int D) {
  GPU_UNROLL
  for (int n = 0; n < Team::kKeys; ++n, row += stride) {
    GPU_UNROLL
    for (int c = 0; c < Team::kChunks; ++c) {
      const int column = Team::column(c * Team::kInChunk);
      to[n][c] = {};
      if constexpr (kAligned) {
        if (n < left && column < D) to[n][c] = *reinterpret_cast<const Chunk<T>*>(row + column);
      } else {
        GPU_UNROLL
        for (int i = 0; i < Team::kInChunk; ++i)
          if (n < left && column + i < D) to[n][c].numbers[i] = row[column + i];
      }
    }
  }
}

}  // namespace attention
