// The parts of the product of a few rows: its ring, and how the slices of K are added.
#pragma once

#include "stage2_matrix/04_gemm_mixed/detail/cluster_shape.h"
#include "stage2_matrix/04_gemm_mixed/detail/cluster_sm90.h"

#if !defined(GPU_BACKEND_HIP)

namespace gemm_mixed {

// A tile is all rows of C, at most kRows, and the 64 columns of a wgmma. One warp group multiplies;
// one thread of the warp behind it copies.
template <class T, int kRows>
struct SkinnyShared {
  static constexpr int kColumns = 64, kDepth = 64, kSteps = kDepth / 16,
                       kBoxRows = kRows / int{kMostSharers};
  // How many steps further one cluster begins than the one before it. All tiles need A: at the same
  // step all clusters would ask few slices of the L2 cache for the same 16 KiB, and wait. On an
  // H200, N = K = 8192, M = 128: 39.1 us in place of 42.2. With fewer rows A is less, and to read
  // the rows of B from end to end is worth more: M = 64 takes 36.5 us in place of 35.9.
  static constexpr int kApart = kRows > 64 ? 23 : 0;
  static constexpr int kProducer = kWarpGroup, kThreads = kProducer + kLanes;
  struct Stage {
    T a[kMostSharers][kBoxRows * kDepth];  // boxes
    T b[kDepth * kColumns];                // one box
  };
  static constexpr int kStages = 200 * 1024 / static_cast<int>(sizeof(Stage));
  static constexpr int kPitch = kColumns + 4;  // of sums: lanes that store together use all banks

  union {
    Stage stages[kStages];
    float sums[kRows * kPitch];  // of this block's slice, when all stages are multiplied
  };
  PhaseBarrier full[kStages], empty[kStages];  // as in detail/ring_sm90.h

  // One thread calls this before all use, then sync_cluster_relaxed().
  __device__ void init(unsigned sharers) {
    for (int stage = 0; stage < kStages; ++stage) {
      full[stage].init(1);
      empty[stage].init(static_cast<int>(sharers));
    }
    publish_barriers();
  }
};

// A thread's sums of a tile of kRows rows.
template <int kRows>
using SkinnySums = float[kRows / 2];

// The producer's part for one step along K: B for this block, and its share of A for the blocks
// from `first` on that share it. One thread calls this.
template <class T, int kRows>
__device__ inline void fill_stage(SkinnyShared<T, kRows>& shared, RingPlace place,
                                  const CUtensorMap& map_a, const CUtensorMap& map_b, int column,
                                  int k, unsigned first, unsigned sharers) {
  using Tile = SkinnyShared<T, kRows>;
  auto& stage = shared.stages[place.stage];
  PhaseBarrier& full = shared.full[place.stage];
  shared.empty[place.stage].wait(place.parity ^ 1);  // in the first round: empty from the start
  full.expect(sizeof stage);
  load_box(stage.b, map_b, k, column, full);
  for (unsigned i = block_of_cluster() - first; i < kMostSharers; i += sharers)
    load_box_for(((1u << sharers) - 1) << first, stage.a[i], map_a,
                 static_cast<int>(i) * Tile::kBoxRows, k, full);
}

// Begins to multiply a complete stage; `add`: to the sums.
template <class T, int kRows>
__device__ __forceinline__ void multiply_stage(SkinnySums<kRows>& sums,
                                               const SkinnyShared<T, kRows>& shared, int stage,
                                               bool add) {
  const auto& [a, b] = shared.stages[stage];
  begin_wgmma();
  GPU_UNROLL
  for (int step = 0; step < SkinnyShared<T, kRows>::kSteps; ++step)
    multiply_swapped<T>(sums, describe_b(b, sizeof b, step), describe_a(a, step), add || step > 0);
  end_wgmma();
}

// Stores the warp group's sums of a tile to `to`, whose rows are `pitch` floats: those of the first
// `rows` rows and `columns` columns. A thread has two columns, 8 apart, and returns at the first
// one that C lacks: a guard in every store became 64 branches.
template <int kRows>
__device__ inline void store_sums(float* to, size_t pitch, size_t rows, size_t columns,
                                  const SkinnySums<kRows>& sums) {
  const unsigned warp = threadIdx.x / kLanes, lane = threadIdx.x % kLanes, first = lane % 4 * 2;
  GPU_UNROLL
  for (unsigned half = 0; half < 2; ++half) {
    const size_t column = warp * 16 + lane / 4 + half * 8;
    if (column >= columns) return;
    float* row = to + first * pitch + column;
    GPU_UNROLL
    for (unsigned j = 0; j < kRows / 8; ++j, row += 8 * pitch) {
      const float* two = sums + j * 4 + half * 2;
      if (j * 8 + first < rows) row[0] = two[0];
      if (j * 8 + first + 1 < rows) row[pitch] = two[1];
    }
  }
}

// Adds the sums that the blocks of this tile have kept, slice by slice from the first one on, and
// stores them to M rows of C from `column` on. Each of these blocks does a share of them.
template <class T, int kRows>
__device__ inline void add_slices(float* c, const SkinnyShared<T, kRows>& shared, size_t M,
                                  size_t N, size_t column, ClusterShape shape) {
  using Tile = SkinnyShared<T, kRows>;
  constexpr unsigned kQuads = Tile::kColumns / 4;  // of a row, 16 bytes each
  constexpr unsigned kAtOnce = kRows / 16;  // where two blocks share the tile: all of a thread's
  const unsigned slice = block_of_cluster() / shape.sharers;
  const unsigned sharer = block_of_cluster() % shape.sharers;
  const unsigned quads = static_cast<unsigned>(M) * kQuads, stride = shape.slices * blockDim.x;
  for (unsigned i = slice * blockDim.x + threadIdx.x; i < quads; i += kAtOnce * stride) {
    float sums[kAtOnce][4] = {};
    for (unsigned s = 0; s < shape.slices; ++s) {
      GPU_UNROLL
      for (unsigned j = 0; j < kAtOnce; ++j) {  // that many loads are under way
        const unsigned next = i + j * stride, quad = next < quads ? next : i;
        const float* own = shared.sums + quad / kQuads * Tile::kPitch + quad % kQuads * 4;
        const auto more = load_of(s * shape.sharers + sharer, reinterpret_cast<const float4*>(own));
        sums[j][0] += more.x, sums[j][1] += more.y, sums[j][2] += more.z, sums[j][3] += more.w;
      }
    }
    GPU_UNROLL
    for (unsigned j = 0; j < kAtOnce; ++j) {
      const unsigned quad = i + j * stride;
      const size_t row = quad / kQuads, at = column + quad % kQuads * 4;
      if (row >= M || at >= N) continue;  // N is a multiple of 4
      reinterpret_cast<float4*>(c)[(row * N + at) / 4] =
          make_float4(sums[j][0], sums[j][1], sums[j][2], sums[j][3]);
    }
  }
}

}  // namespace gemm_mixed

#endif
