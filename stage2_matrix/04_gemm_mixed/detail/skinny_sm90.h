// The parts of the product of a few rows: its ring, and how the slices of a tile are added.
#pragma once

#include <algorithm>

#include "stage2_matrix/04_gemm_mixed/detail/cluster_sm90.h"

#if !defined(GPU_BACKEND_HIP)

namespace gemm_mixed {

// A tile is all rows of C, at most kRows, and kColumns columns. Two consumers multiply 128 columns
// each, two boxes of B; one thread of the warp behind them copies.
template <int kTheRows>
struct SkinnyTile {
  static constexpr int kRows = kTheRows, kColumns = 256, kDepth = 64, kSteps = kDepth / 16;
  static constexpr int kConsumers = 2, kBoxes = kColumns / 64 / kConsumers;
  static constexpr int kProducer = kConsumers * kWarpGroup, kThreads = kProducer + kLanes;
  // 204, 200 or 192 KiB: 32 of a stage are B's.
  static constexpr int kStages = kRows == 16 ? 6 : kRows == 64 ? 5 : 4;
  // A row of sums. Eight columns and four pairs of rows use all banks once.
  static constexpr int kPitch = kColumns + 4;
};

template <class T, int kRows>
struct SkinnyShared {
  using Tile = SkinnyTile<kRows>;
  struct Stage {
    T a[kRows * Tile::kDepth];                    // one box
    T b[Tile::kColumns / 64][Tile::kDepth * 64];  // boxes of 64 columns
  };
  union {
    Stage stages[Tile::kStages];
    float sums[kRows * Tile::kPitch];  // of this block's slice, when all stages are multiplied
  };
  PhaseBarrier full[Tile::kStages], empty[Tile::kStages];  // as in detail/ring_sm90.h

  // One thread calls this before all use, then the block's __syncthreads().
  __device__ void init() {
    for (int stage = 0; stage < Tile::kStages; ++stage) {
      full[stage].init(1);
      empty[stage].init(Tile::kConsumers);
    }
    publish_barriers();
  }
};

// The producer's part for one step along K. One thread calls this.
template <class T, int kRows>
__device__ inline void fill_stage(SkinnyShared<T, kRows>& shared, RingPlace place,
                                  const CUtensorMap& map_a, const CUtensorMap& map_b, int column,
                                  int k) {
  auto& stage = shared.stages[place.stage];
  PhaseBarrier& full = shared.full[place.stage];
  shared.empty[place.stage].wait(place.parity ^ 1);  // in the first round: empty from the start
  full.expect(sizeof stage);
  load_box(stage.a, map_a, 0, k, full);
  GPU_UNROLL
  for (int i = 0; i < SkinnyTile<kRows>::kColumns / 64; ++i)
    load_box(stage.b[i], map_b, k, column + i * 64, full);
}

// A consumer's part: begins to multiply its columns of a complete stage; `add`: to the sums.
// sums[i] are those of its box i: 64 columns of C and kRows rows.
template <class T, int kRows>
__device__ __forceinline__ void multiply_stage(float (&sums)[SkinnyTile<kRows>::kBoxes][kRows / 2],
                                               const typename SkinnyShared<T, kRows>::Stage& stage,
                                               int consumer, bool add) {
  using Tile = SkinnyTile<kRows>;
  begin_wgmma();
  GPU_UNROLL
  for (int step = 0; step < Tile::kSteps; ++step) GPU_UNROLL
  for (int i = 0; i < Tile::kBoxes; ++i)
    multiply_swapped<T>(sums[i],
                        describe_b(stage.b[consumer * Tile::kBoxes + i], sizeof stage.b[0], step),
                        describe_a(stage.a, step), add || step > 0);
  end_wgmma();
}

// Leaves a consumer's sums where the whole cluster finds them, row by row of C.
template <int kRows>
__device__ inline void keep_sums(float* kept,
                                 const float (&sums)[SkinnyTile<kRows>::kBoxes][kRows / 2],
                                 int consumer) {
  using Tile = SkinnyTile<kRows>;
  const int thread = static_cast<int>(threadIdx.x) % kWarpGroup, lane = thread % kLanes;
  GPU_UNROLL
  for (int i = 0; i < Tile::kBoxes; ++i) {
    const int column = (consumer * Tile::kBoxes + i) * 64 + thread / kLanes * 16 + lane / 4;
    GPU_UNROLL
    for (int j = 0; j < kRows / 2; ++j) {
      const int row = j / 4 * 8 + lane % 4 * 2 + j % 2;
      kept[row * Tile::kPitch + column + j % 4 / 2 * 8] = sums[i][j];
    }
  }
}

inline constexpr unsigned kMostSlices = 8;  // the blocks of a cluster

// Adds the sums that the blocks of the cluster have kept, slice by slice from the first one on, and
// stores them to the tile's M rows of C from `column` on: each block a share of all.
template <int kRows>
__device__ inline void add_slices(float* c, const float* kept, size_t M, size_t N, size_t column,
                                  unsigned slices) {
  using Tile = SkinnyTile<kRows>;
  constexpr unsigned kQuads = Tile::kColumns / 4;  // four sums, 16 bytes of C
  const unsigned begin = block_of_cluster() * blockDim.x + threadIdx.x;
  for (unsigned i = begin; i < M * kQuads; i += slices * blockDim.x) {
    const unsigned row = i / kQuads, at = i % kQuads * 4;
    if (column + at >= N) continue;  // N is a multiple of 4
    const auto* own = reinterpret_cast<const float4*>(kept + row * Tile::kPitch + at);
    float4 parts[kMostSlices];
    GPU_UNROLL
    for (unsigned s = 0; s < kMostSlices; ++s)  // all are under way before one is added
      parts[s] = s < slices ? load_of(s, own) : float4{0, 0, 0, 0};
    float4 sum = parts[0];
    GPU_UNROLL
    for (unsigned s = 1; s < kMostSlices; ++s)
      sum = {sum.x + parts[s].x, sum.y + parts[s].y, sum.z + parts[s].z, sum.w + parts[s].w};
    *reinterpret_cast<float4*>(c + row * N + column + at) = sum;
  }
}

// Into how many slices of K the tiles are cut: as many as take the least time, counted in stages of
// a multiprocessor. at_once(slices): how many tiles are computed at the same time.
template <class AtOnce>
unsigned choose_slices(unsigned tiles, unsigned steps, AtOnce&& at_once) {
  constexpr unsigned kBeginAndEnd = 4;  // what a block needs beside its stages, in stages
  unsigned best = 1, least = ~0u;
  for (unsigned slices = 1; slices <= std::min(kMostSlices, steps); ++slices) {
    const unsigned rounds = gpu::ceil_div(tiles, std::max(1u, at_once(slices)));
    const unsigned stages = rounds * (gpu::ceil_div(steps, slices) + kBeginAndEnd);
    if (stages < least) least = stages, best = slices;
  }
  return best;
}

}  // namespace gemm_mixed

#endif
