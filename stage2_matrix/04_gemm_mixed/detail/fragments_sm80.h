// Loads fragments from a stage in shared memory, and multiplies them.
#pragma once

#include "stage2_matrix/04_gemm_mixed/detail/instructions_sm80.h"
#include "stage2_matrix/04_gemm_mixed/detail/stage_sm80.h"

#if !defined(GPU_BACKEND_HIP)

namespace gemm_mixed {

// What a lane holds of A and B for one step along K of its warp's kWarpRows x kWarpColumns product:
// a fragment for each 16 rows of A and for each 16 columns of B, which is two multiplications wide.
template <class Tile>
struct Fragments {
  unsigned a[Tile::kWarpRows / 16][4];
  unsigned b[Tile::kWarpColumns / 16][4];
};

template <class Stage>
class FragmentLoader {
  using T = typename Stage::T;
  using Tile = typename Stage::Tile;
  static constexpr int kStepDepth = 2 * kPerChunk<T>;
  static constexpr int kTiles = Tile::kWarpColumns / 16;

 public:
  // warp_row, warp_column: where the warp's part of the block's tile begins.
  __device__ FragmentLoader(int warp_row, int warp_column) {
    const int lane = warp_lane();
    row_a_ = warp_row + lane % 16;
    chunk_a_ = lane / 16;
    GPU_UNROLL
    for (int j = 0; j < kTiles; ++j) {
      const int column = warp_column + j * 16;
      if constexpr (sizeof(T) == 2)
        places_b_[j] = Stage::place_b(lane % 16, column / kPerChunk<T> + lane / 16);
      else
        places_b_[j] =
            4 * Stage::place_b(lane % 4, column / kPerChunk<T> + lane / 16) + lane / 4 % 4;
    }
  }

  __device__ void load(Fragments<Tile>& fragments, const Stage& stage, int step) const {
    const uint4* a = stage.a + Stage::place_a(row_a_, 2 * step + chunk_a_);
    GPU_UNROLL
    for (int i = 0; i < Tile::kWarpRows / 16; ++i)
      load_matrices(fragments.a[i], a + i * 16 * Stage::kChunksA);

    const uint4* b = stage.b + step * kStepDepth * Stage::kChunksB;
    GPU_UNROLL
    for (int j = 0; j < kTiles; ++j) {
      if constexpr (sizeof(T) == 2) {
        load_transposed(fragments.b[j], b + places_b_[j]);
      } else {
        // Two rows of B, four apart, and two columns, eight apart. Eight columns are two chunks,
        // and the swizzle has put the second one two chunks before or behind the first.
        const unsigned* word = reinterpret_cast<const unsigned*>(b);
        const int first = places_b_[j], second = first ^ 8;
        fragments.b[j][0] = word[first];
        fragments.b[j][1] = word[first + 16 * Stage::kChunksB];
        fragments.b[j][2] = word[second];
        fragments.b[j][3] = word[second + 16 * Stage::kChunksB];
      }
    }
  }

 private:
  int row_a_, chunk_a_;
  int places_b_[kTiles];  // of 16-bit numbers in chunks, of tf32 in words
};

// sums += the product of a step's fragments. Every second row of tiles is taken backwards, so that
// its first multiplication uses the fragment of B that the last one has used.
template <class T, class Tile>
__device__ inline void multiply_fragments(
    float (&sums)[Tile::kWarpRows / 16][Tile::kWarpColumns / 8][4],
    const Fragments<Tile>& fragments) {
  constexpr int kTiles = Tile::kWarpColumns / 8;
  GPU_UNROLL
  for (int i = 0; i < Tile::kWarpRows / 16; ++i) {
    GPU_UNROLL
    for (int forward = 0; forward < kTiles; ++forward) {
      const int j = i % 2 == 0 ? forward : kTiles - 1 - forward;
      const unsigned* b = fragments.b[j / 2] + j % 2 * 2;
      multiply_add<T>(sums[i][j], fragments.a[i], b[0], b[1]);
    }
  }
}

}  // namespace gemm_mixed

#endif
