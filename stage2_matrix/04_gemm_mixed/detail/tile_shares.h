// How float_ring deals its tiles out to the blocks. Plain C++ and device code.
#pragma once

#include <algorithm>
#include <cstddef>

#include "common/gpu_runtime.h"

namespace gemm_mixed {

// Steps first to end - 1 along K of a tile.
struct TilePiece {
  unsigned tile, first, end;
};

// Each block takes a whole tile per round, as long as there is one for every block. The steps of
// the tiles that remain are shared evenly, tile by tile. 3 tiles of 8 steps for 4 blocks:
//
//     tile 0                tile 1                tile 2
//     0 0 0 0 0 0 | 1 1     1 1 1 1 | 2 2 2 2     2 2 | 3 3 3 3 3 3      the step's block
//     part 0        1       2         3           4     5
//
// The sums of a part are added to those of the tile's other parts when all are there.
struct TileShares {
  unsigned blocks, rounds, steps;   // steps: of a tile
  unsigned shared;                  // tiles, behind those of the rounds
  unsigned sharers, share, longer;  // blocks; steps of each; the first blocks that have one more

  __host__ __device__ unsigned whole() const { return rounds * blocks; }

  // The first of the block's shared steps, counted from the first shared tile on.
  __host__ __device__ unsigned begin(unsigned block) const {
    if (block > sharers) block = sharers;
    return block * share + (block < longer ? block : longer);
  }
  // The block that has this shared step.
  __host__ __device__ unsigned block_of(unsigned step) const {
    const unsigned of_longer = longer * (share + 1);
    return step < of_longer ? step / (share + 1) : longer + (step - of_longer) / share;
  }

  // What a block has to do, piece by piece.
  __host__ __device__ unsigned pieces(unsigned block) const {
    const unsigned first = begin(block), end = begin(block + 1);
    return first == end ? rounds : rounds + (end - 1) / steps - first / steps + 1;
  }
  __host__ __device__ TilePiece piece(unsigned block, unsigned i) const {
    if (i < rounds) return {block + i * blocks, 0, steps};
    const unsigned first = begin(block), tile = first / steps + i - rounds;
    const unsigned left = begin(block + 1) - tile * steps;
    return {whole() + tile, i == rounds ? first % steps : 0, left < steps ? left : steps};
  }

  // With each next part of the shared tiles either the block is the next one, or the tile, or both.
  __host__ __device__ unsigned part(unsigned block, unsigned tile) const {
    return block + tile - whole();
  }
  unsigned parts() const { return shared == 0 ? 0 : sharers + shared - 1; }
};

// For `tiles` tiles of `steps` steps, where so many blocks run at the same time.
inline TileShares share_tiles(unsigned tiles, unsigned at_a_time, unsigned steps) {
  constexpr unsigned kMostSharers = 8;  // of a tile: one block adds their sums
  const unsigned blocks = std::max(1u, std::min(tiles, at_a_time)), shared = tiles % blocks;
  const unsigned all = shared * steps;
  const unsigned sharers = std::max(1u, std::min({blocks, kMostSharers * shared, all}));
  return {blocks, tiles / blocks, steps, shared, sharers, all / sharers, all % sharers};
}

}  // namespace gemm_mixed
