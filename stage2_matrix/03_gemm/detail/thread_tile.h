// Which results of a block's tile a thread owns, and how it multiplies them from shared memory.
#pragma once

#include "common/gpu.h"

namespace gemm {

// Where a thread's results lie in the block's tile: groups of 4 x 4, row_step and col_step apart.
struct ThreadTile {
  int row, col;            // of the first group's first result
  int row_step, col_step;  // between the groups' first results
};

// All groups of a thread side by side: one rectangle of kThreadM x kThreadN.
template <class Shape>
struct BlockedTiles {
  __device__ static ThreadTile of(int thread) {
    constexpr int kAcross = Shape::kTileN / Shape::kThreadN;
    return {thread / kAcross * Shape::kThreadM, thread % kAcross * Shape::kThreadN, 4, 4};
  }
};

// 32 neighbouring threads make kLanesM x kLanesN groups of 4 x 4 results, then the same again
// kLanesM groups down or kLanesN groups across. That is one wave on most devices, and half a wave
// where waves have 64 lanes. Only speed depends on it.
inline constexpr int kLanesM = 4, kLanesN = 8, kLanes = kLanesM * kLanesN;

//   lane   0  1  4  5  8  9 12 13     Lanes 0 and 1 read the same float4 of A, lanes 0 and 2 the
//          2  3  6  7 10 11 14 15     same one of B, and so on: shared memory serves such pairs at
//         16 17 20 21 24 25 28 29     once. For each k a group of lanes reads 16 neighbouring
//         floats 18 19 22 23 26 27 30 31     of A and 32 of B, which lie in different banks.
template <class Shape>
struct WaveTiles {
  __host__ __device__ static ThreadTile of(int thread) {
    constexpr int kWaveM = kLanesM * Shape::kThreadM, kWaveN = kLanesN * Shape::kThreadN;
    static_assert(Shape::kTileM % kWaveM == 0 && Shape::kTileN % kWaveN == 0,
                  "wave tiles cover the block's tile");
    constexpr int kAcross = Shape::kTileN / kWaveN;
    const int wave = thread / kLanes, lane = thread % kLanes;
    const int lane_row = lane / 2 % 2 + lane / (2 * kLanesN) * 2;
    const int lane_col = lane % 2 + lane / 4 % (kLanesN / 2) * 2;
    return {wave / kAcross * kWaveM + 4 * lane_row, wave % kAcross * kWaveN + 4 * lane_col,
            4 * kLanesM, 4 * kLanesN};
  }
};

// fragment = this thread's kCount numbers of a row of a tile in shared memory: groups of four, the
// first at `first`, `step` apart. All float4s must be aligned.
template <int kCount>
__device__ inline void load_fragment(float (&fragment)[kCount], const float* first, int step) {
  GPU_UNROLL
  for (int group = 0; group < kCount / 4; ++group) {
    const float4 four = *reinterpret_cast<const float4*>(first + group * step);
    fragment[4 * group] = four.x, fragment[4 * group + 1] = four.y;
    fragment[4 * group + 2] = four.z, fragment[4 * group + 3] = four.w;
  }
}

// sums[i][j] += a[i] * b[j]
//
// A multiply-add reads three registers. NVIDIA's lie in two banks, the even ones in one and the odd
// ones in the other. Two of one bank take a cycle longer, unless the multiply-add before had the
// same number in the same place. So the rows go forwards and back in turn: where one turns into the
// next, a number of b stays.
template <int kThreadM, int kThreadN>
__device__ inline void add_outer_product(float (&sums)[kThreadM][kThreadN],
                                         const float (&a)[kThreadM], const float (&b)[kThreadN]) {
#if defined(GPU_BACKEND_CPU)
  constexpr int kRowsInTurn = 1;  // vector instructions go forwards only
#else
  constexpr int kRowsInTurn = 2;
#endif
  GPU_UNROLL
  for (int i = 0; i < kThreadM; ++i) {
    GPU_UNROLL_INNER
    for (int turn = 0; turn < kThreadN; ++turn) {
      const int j = i % kRowsInTurn == 0 ? turn : kThreadN - 1 - turn;
      sums[i][j] += a[i] * b[j];
    }
  }
}

}  // namespace gemm
