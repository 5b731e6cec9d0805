// What flash keeps in shared memory, and the tiles that it chooses from.
#pragma once

#include "stage7_transformer/04_attention/detail/choose_tile.h"
#include "stage7_transformer/04_attention/detail/tile.h"
#include "stage7_transformer/04_attention/detail/tile_products.h"

namespace attention {

// What a block keeps in shared memory: its queries, a tile of keys and one of values, and the
// probabilities on their way from lane to lane.
template <class Tile>
struct alignas(16) ForwardTiles {
  float q[Tile::kOwn][Tile::kStride];
  float k[Tile::kOther][Tile::kStride], v[Tile::kOther][Tile::kStride];
  Lines<Tile> probabilities;
};

// (numbers of a head, rows and keys of a thread, groups of threads, blocks per multiprocessor)
template <int kHead>
struct ForwardCandidates;
template <>
struct ForwardCandidates<16> {
  using List = Candidates<ScoreTile<16, 4, 8, 4, 4>>;
};
template <>
struct ForwardCandidates<32> {
  using List = Candidates<ScoreTile<32, 8, 8, 4, 2>, ScoreTile<32, 4, 8, 4, 3>>;
};
template <>
struct ForwardCandidates<64> {
  using List = Candidates<ScoreTile<64, 8, 8, 4, 2>, ScoreTile<64, 4, 4, 4, 3>>;
};
template <>
struct ForwardCandidates<128> {
  using List = Candidates<ScoreTile<128, 8, 4, 8, 1>, ScoreTile<128, 4, 8, 8, 1>,
                          ScoreTile<128, 4, 2, 4, 2>>;
};
template <>
struct ForwardCandidates<256> {
  using List = Candidates<ScoreTile<256, 4, 4, 8, 1>, ScoreTile<256, 4, 4, 4, 1>,
                          ScoreTile<256, 4, 1, 2, 1>>;
};

}  // namespace attention
