// The ring of float_ring, and how a thread multiplies its stages.
#pragma once

#include "stage2_matrix/03_gemm/detail/product.h"
#include "stage2_matrix/03_gemm/detail/thread_tile.h"
#include "stage2_matrix/03_gemm/detail/tile_loader.h"
#include "stage2_matrix/04_gemm_mixed/detail/ring_sm90.h"
#include "stage2_matrix/04_gemm_mixed/detail/tensor_map_sm90.h"
#include "stage2_matrix/04_gemm_mixed/detail/tile_sm80.h"

#if !defined(GPU_BACKEND_HIP)

namespace gemm_mixed {

// 2.3's tile with 16 x 8 results per thread, and what the ring adds.
struct FloatTile : gemm::Shape<256, 128, 32, 16, 8> {
  static constexpr int kStages = 4, kChunk = 4, kChunks = kTileK / kChunk;  // places along K
  static constexpr int kBlockThreads = kWarpGroup + kThreads, kBox = 32;    // columns
  // Of a thread. A launch gives each of the three groups 168, a third of all.
  static constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;
  static_assert(kProducerRegisters + kThreads / kWarpGroup * kConsumerRegisters <= 3 * 168);
};

// Where tile `tile` of C begins, of rows x columns tiles. The producer and those that multiply ask
// for it. Tiles are twice as high as warp_specialized's, so half as many are below each other.
__device__ inline gemm::TileOrigin float_tile(unsigned tile, unsigned rows, unsigned columns) {
  const TilePlace at = tile_place(tile, rows, columns, kRasterRows / 2);
  return {size_t{at.row} * FloatTile::kTileM, size_t{at.column} * FloatTile::kTileN};
}

using FloatSums = float[FloatTile::kThreadM][FloatTile::kThreadN];  // of a thread

// A K-major tile of A is a box: 256 rows of 32 numbers along K, swizzled. Other tiles are boxes of
// 32 columns, one behind the other, whose rows are places along K, in order.
struct FloatStage {
  float a[FloatTile::kTileM * FloatTile::kTileK];
  float b[FloatTile::kTileN * FloatTile::kTileK];
};

// `full` and `empty` are as in Ring; here every warp that multiplies arrives at `empty`.
struct FloatRing {
  FloatStage stages[FloatTile::kStages];
  PhaseBarrier full[FloatTile::kStages], empty[FloatTile::kStages];

  // One thread calls this before all use, then the block's __syncthreads().
  __device__ void init() {
    for (int stage = 0; stage < FloatTile::kStages; ++stage) {
      full[stage].init(1);
      empty[stage].init(FloatTile::kThreads / kLanes);
    }
    publish_barriers();
  }
};

// Begins to copy a tile of `columns` columns in boxes. One thread calls this.
__device__ inline void copy_boxes(float* to, const CUtensorMap& map, int k, int column, int columns,
                                  PhaseBarrier& full) {
  using Tile = FloatTile;
  for (int i = 0; i < columns / Tile::kBox; ++i)
    load_box(to + i * Tile::kBox * Tile::kTileK, map, BoxPlace{k, column + i * Tile::kBox, 0, 0},
             full);
}

// Where column `column` of a tile of boxes is, at k = 0. A thread's groups begin half a box apart
// (A), the first one in a box's first half, or a box apart (B). So the place of first + n step is
// the sum of both places.
__device__ inline int place_of_column(int column) {
  return column / FloatTile::kBox * FloatTile::kBox * FloatTile::kTileK + column % FloatTile::kBox;
}
template <int kCount>
__device__ __forceinline__ void load_across(float (&fragment)[kCount], const float* first,
                                            int step) {
  GPU_UNROLL
  for (int group = 0; group < kCount / 4; ++group) {
    const float4 four = *reinterpret_cast<const float4*>(first + place_of_column(group * step));
    fragment[4 * group] = four.x, fragment[4 * group + 1] = four.y;
    fragment[4 * group + 2] = four.z, fragment[4 * group + 3] = four.w;
  }
}

// A multiply-add reads three registers. The even ones are in one bank, the odd ones in another, and
// two of one bank take a cycle longer, unless the one before had the same number in the same place.
// So a number of A stays for a row of products, and the rows go forwards and back: at each turn a
// number of B stays. Counted in the machine code, 100 of 512 products wait in NN and 33 in TN (nvcc
// 13.0).

// sums[j] += a * b[j]
__device__ __forceinline__ void add_row(float (&sums)[FloatTile::kThreadN], float a,
                                        const float (&b)[FloatTile::kThreadN], bool back) {
  GPU_UNROLL_INNER
  for (int turn = 0; turn < FloatTile::kThreadN; ++turn) {
    const int j = back ? FloatTile::kThreadN - 1 - turn : turn;
    sums[j] += a * b[j];
  }
}

// A thread's numbers of B for a chunk of four places along K, all of them in registers.
struct FloatsOfB {
  using Tile = FloatTile;

  __device__ explicit FloatsOfB(gemm::ThreadTile own) : own_b(place_of_column(own.col)) {}

  __device__ __forceinline__ void go_to(const FloatStage& stage, int chunk) {
    from = stage.b + own_b + chunk * Tile::kChunk * Tile::kBox;
  }
  __device__ __forceinline__ void load_row(int k) {
    load_across(rows[k], from + k * Tile::kBox, 4 * gemm::kLanesN);
  }
  __device__ __forceinline__ void begin(const FloatStage& stage) {
    go_to(stage, 0);
    GPU_UNROLL
    for (int k = 0; k < Tile::kChunk; ++k) load_row(k);
  }

  int own_b;  // where the thread's first number is in a tile
  const float* from;
  float rows[Tile::kChunk][Tile::kThreadN];
};

// A thread's numbers of A and B on their way from a stage to the products, for a chunk of four
// places along K at a time. begin() loads the first numbers of a stage. multiply() takes the chunk
// whose first numbers are in registers, and loads those of chunk `next_chunk` of stage `next`.
//
// Here the places along K of A lie in rows of their own (TN): a load brings four rows' numbers at
// one place. The chunk's numbers of B are all in registers: 24 loads for 512 products.
template <bool kKMajorA>
struct FloatFragments {
  using Tile = FloatTile;
  static constexpr int kGroups = Tile::kThreadM / 4;

  __device__ explicit FloatFragments(gemm::ThreadTile own)
      : own_a(place_of_column(own.row)), b(own) {}

  __device__ __forceinline__ void begin(const FloatStage& stage) {
    go_to(stage, 0);
    load_rows(0, 0, 0);
    b.begin(stage);
  }
  __device__ __forceinline__ void multiply(FloatSums& sums, const FloatStage& next,
                                           int next_chunk) {
    GPU_UNROLL
    for (int group = 0; group < kGroups; ++group) {
      const bool is_last = group + 1 == kGroups;
      if (is_last) b.go_to(next, next_chunk);
      GPU_UNROLL
      for (int k = 0; k < Tile::kChunk; ++k) {
        const int later = k + 1 == Tile::kChunk ? group + 1 : group;
        if (later == kGroups) go_to(next, next_chunk);
        load_rows((k + 1) % 2, later % kGroups, (k + 1) % Tile::kChunk);
        GPU_UNROLL
        for (int turn = 0; turn < 4; ++turn) {
          const int row = turn < 2 ? 2 * turn : 2 * turn - 3;  // those in even registers first
          add_row(sums[4 * group + row], a[k % 2][row], b.rows[k], turn % 2 == 1);
        }
        if (is_last) b.load_row(k);
      }
    }
  }

 private:
  __device__ __forceinline__ void go_to(const FloatStage& stage, int chunk) {
    from_a = stage.a + own_a + chunk * Tile::kChunk * Tile::kBox;
  }
  // Place k of the chunk, of group `group` of the thread's rows.
  __device__ __forceinline__ void load_rows(int to, int group, int k) {
    load_across(a[to], from_a + k * Tile::kBox + place_of_column(group * 4 * gemm::kLanesM), 0);
  }

  int own_a;            // where the thread's first number of A is in a tile
  const float* from_a;  // and in this chunk
  float a[2][4];
  FloatsOfB b;
};

// A is K-major (NN): a load brings a row's four places along K. The chunk's numbers of B are all in
// registers, and two rows of A at a time: 24 loads for 512 products.
template <>
struct FloatFragments<true> {
  using Tile = FloatTile;
  static constexpr int kPairs = Tile::kThreadM / 2;

  __device__ explicit FloatFragments(gemm::ThreadTile own)
      : own_a(own.row * Tile::kTileK + own.row % 8 * Tile::kChunk), b(own) {}

  __device__ __forceinline__ void begin(const FloatStage& stage) {
    go_to(stage, 0);
    load_rows(0, 0);
    b.begin(stage);
  }
  __device__ __forceinline__ void multiply(FloatSums& sums, const FloatStage& next,
                                           int next_chunk) {
    GPU_UNROLL
    for (int pair = 0; pair < kPairs; ++pair) {
      const bool is_last = pair + 1 == kPairs;
      if (is_last) go_to(next, next_chunk), b.go_to(next, next_chunk);
      load_rows((pair + 1) % 2, (pair + 1) % kPairs);
      GPU_UNROLL
      for (int k = 0; k < Tile::kChunk; ++k) {
        GPU_UNROLL
        for (int row = 0; row < 2; ++row)
          add_row(sums[2 * pair + row], a[pair % 2][row][k], b.rows[k], row == 1);
        if (is_last) b.load_row(k);
      }
    }
  }

 private:
  // A row's chunks are swizzled: bits 0 to 2 of its number say how. Rows 16 apart are alike.
  __device__ __forceinline__ void go_to(const FloatStage& stage, int chunk) {
    const int first = own_a ^ chunk * Tile::kChunk;
    GPU_UNROLL
    for (int i = 0; i < 4; ++i) rows[i] = stage.a + (first ^ i * Tile::kChunk);
  }
  // Rows 2 pair and 2 pair + 1 of the thread's 16.
  __device__ __forceinline__ void load_rows(int to, int pair) {
    GPU_UNROLL
    for (int row = 0; row < 2; ++row) {
      const int i = 2 * pair + row;
      const int step = i / 4 * 4 * gemm::kLanesM + i % 4;
      const float4 four = *reinterpret_cast<const float4*>(rows[i % 4] + step * Tile::kTileK);
      float(&to_row)[Tile::kChunk] = a[to][row];
      to_row[0] = four.x, to_row[1] = four.y, to_row[2] = four.z, to_row[3] = four.w;
    }
  }

  int own_a;
  const float* rows[4];
  float a[2][2][Tile::kChunk];
  FloatsOfB b;
};

}  // namespace gemm_mixed

#endif
