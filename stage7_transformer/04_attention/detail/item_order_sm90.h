// In which order the blocks of flash_persistent take what there is to do: a tile of queries of a
// head at a time, an item.
#pragma once

#include <algorithm>

#include "stage7_transformer/04_attention/detail/sizes_sm80.h"

#if !defined(GPU_BACKEND_HIP)

namespace attention {

// The last queries of a causal head see the most keys. Of `at_a_time` heads, whose keys and values
// L2 keeps, the last tiles come first, so that short ones are left for the end. 4 heads, 2 at a
// time, 3 tiles each:
//
//   item   0  1  2  3  4  5    6  7  8  9 10 11
//   head   0  1  0  1  0  1    2  3  2  3  2  3
//   tile   2  2  1  1  0  0    2  2  1  1  0  0
//
// Each block takes its first item by its own number. Then it draws a ticket for the next one that
// nobody has. Without tickets, blocks take the next ones in their order, every other time from the
// last block to the first.
struct ItemOrder {
  unsigned heads, at_a_time;
  unsigned* tickets;  // how many have been drawn, or nullptr

  __host__ __device__ unsigned count(const Sizes& shape) const { return heads * shape.tiles; }
  // The item after that of turn `turn`.
  __device__ unsigned next(unsigned turn) const {
    if (tickets != nullptr) return gridDim.x + atomicAdd(tickets, 1u);
    const unsigned mirrored = turn % 2 == 0 ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
    return (turn + 1) * gridDim.x + mirrored;
  }
};

// Zeroes the tickets, if there are to be any.
inline ItemOrder order_of(const Problem& p, float* tickets, hipStream_t stream) {
  constexpr size_t kBytes = 16 << 20;  // of keys and values: a third of an H100's L2
  const size_t fit = std::max(size_t{1}, kBytes / (2 * sizeof(bfloat16) * p.Tk * p.D));
  const size_t at_a_time = !p.causal            ? 1  // all items are as long
                           : tickets == nullptr ? p.heads()
                                                : std::min(p.heads(), fit);
  if (tickets != nullptr) HIP_CHECK(hipMemsetAsync(tickets, 0, sizeof *tickets, stream));
  return {static_cast<unsigned>(p.heads()), static_cast<unsigned>(at_a_time),
          reinterpret_cast<unsigned*>(tickets)};
}

struct Item {
  HeadRows block;
  int first, end, tiles;  // the queries from first to end - 1 see `tiles` tiles of keys
};

template <class Tile>
__host__ __device__ inline Item item_of(unsigned number, const Sizes& shape,
                                        const ItemOrder& order) {
  const unsigned head = number / (order.at_a_time * shape.tiles) * order.at_a_time;
  const unsigned rest = number - head * shape.tiles, left = order.heads - head;
  const unsigned heads = left < order.at_a_time ? left : order.at_a_time;
  const HeadRows block(shape, head + rest % heads, shape.tiles - 1 - rest / heads);
  const int after = (static_cast<int>(shape.tiles) - 1 - block.tile) * Tile::kQueries;
  const int end = shape.Tq - after, first = end > Tile::kQueries ? end - Tile::kQueries : 0;
  return {block, first, end, (visible_keys(end, shape) + Tile::kKeys - 1) / Tile::kKeys};
}

// `value`, which all lanes of a warp have: so the compiler knows that they have the same, and keeps
// what follows from it, as the descriptors of tiles, once for all of them.
__device__ inline int uniform(int value) {
  return gpu::wave_shfl(value, gpu::lane_id() / kLanes * kLanes);
}

// How many of the item's tiles of keys a warp group's queries see, from `own` to before `end`; at
// least one. Two groups see the same ones, unless the keys of a cache are of odd lengths.
template <class Tile>
__device__ inline int own_tiles_of(int own, int end, int tiles, const Sizes& shape) {
  if (Tile::kQueries <= Tile::kKeys) return tiles;
  const int keys = visible_keys(min(own + Tile::kOwn, end), shape);
  return uniform(max(1, (keys + Tile::kKeys - 1) / Tile::kKeys));
}

}  // namespace attention

#endif
