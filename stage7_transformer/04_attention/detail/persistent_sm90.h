// What flash_persistent keeps in shared memory, and how it is filled.
#pragma once

#include "stage7_transformer/04_attention/detail/item_order_sm90.h"
#include "stage7_transformer/04_attention/detail/wgmma_tiles_sm90.h"

#if !defined(GPU_BACKEND_HIP)

namespace attention {

// A block's shared memory. Queries, keys and values have a ring each:
//
//   full    completes when a tile has arrived; the consumers wait for it
//   empty   completes when all consumers are done with it; the producer waits for it
template <class Tile>
struct PersistentShared {
  bfloat16 q[2][Tile::kConsumers][Tile::kBoxes][Tile::kOwn * 64];  // at the end: out
  bfloat16 k[Tile::kStages][Tile::kBoxes][Tile::kKeys * 64];
  bfloat16 v[Tile::kStages][Tile::kBoxes][Tile::kKeys * 64];
  unsigned item[2];           // whose queries they are
  bool careful[2], again[2];  // how to multiply them; they have to come once more, carefully
  PhaseBarrier full_q[2], full_k[Tile::kStages], full_v[Tile::kStages];
  PhaseBarrier empty_q[2], empty_k[Tile::kStages], empty_v[Tile::kStages];

  // One thread calls this before all use, then the block's __syncthreads().
  __device__ void init() {
    for (int place = 0; place < 2; ++place) {
      again[place] = false;
      full_q[place].init(1), empty_q[place].init(Tile::kConsumers * kWarpGroup);
    }
    for (int stage = 0; stage < Tile::kStages; ++stage) {
      full_k[stage].init(1), full_v[stage].init(1);
      empty_k[stage].init(Tile::kConsumers), empty_v[stage].init(Tile::kConsumers);
    }
    gemm_mixed::publish_barriers();
  }
};

// As fill_ring(), but what comes to its stage is tile `number` of all that went through the ring,
// the keys or values from `key` on.
template <class Tile, class Ring>
__device__ __forceinline__ void fill_stage(Ring& ring, const CUtensorMap& map, PhaseBarrier* full,
                                           PhaseBarrier* empty, int number, int key,
                                           const HeadRows& block) {
  const int stage = stage_of<Tile>(number);
  empty[stage].wait(parity_of<Tile>(number) ^ 1);  // in the first round: empty from the start
  full[stage].expect(sizeof ring[stage]);
  load_rows_of_head(ring[stage], map, key, block, full[stage]);
}

// Puts into place `turn` % 2 what the block does next: the item of two turns ago once more, if its
// sums were not finite (see finite.h), or item `drawn`. Where no item is left, the one before may
// still have to come again. One thread calls this, with the place empty. Returns whether there is
// anything to do.
template <class Tile>
__device__ inline bool place_next(PersistentShared<Tile>& shared, unsigned turn, unsigned drawn,
                                  unsigned count) {
  const unsigned place = turn % 2;
  unsigned from = place;
  if (!shared.again[place] && drawn >= count) {
    from = 1 - place;
    shared.empty_q[from].wait((turn - 1) / 2 % 2);
  }
  shared.careful[place] = shared.again[from];
  shared.item[place] = shared.again[from] ? shared.item[from] : drawn;
  shared.again[from] = false;
  return shared.item[place] < count;
}

// The producer's part, item after item: the queries, then the tiles of keys and of values in the
// order in which they are multiplied. One thread calls this.
template <class Tile>
__device__ inline void copy_items(PersistentShared<Tile>& shared, const CUtensorMap& map_q,
                                  const CUtensorMap& map_k, const CUtensorMap& map_v,
                                  const Sizes& shape, const ItemOrder& order) {
  int before = 0;  // tiles of keys of the items before
  unsigned drawn = blockIdx.x, draws = 0;
  for (unsigned turn = 0;; ++turn) {
    const unsigned place = turn % 2;
    shared.empty_q[place].wait(turn / 2 % 2 ^ 1);
    if (!place_next(shared, turn, drawn, order.count(shape)))
      return shared.full_q[place].arrive();                   // that was all
    if (!shared.careful[place]) drawn = order.next(draws++);  // it comes while tiles are copied
    const Item item = item_of<Tile>(shared.item[place], shape, order);
    shared.full_q[place].expect(sizeof shared.q[place]);
    for (int consumer = 0; consumer < Tile::kConsumers; ++consumer)
      load_rows_of_head(shared.q[place][consumer], map_q, item.first + consumer * Tile::kOwn,
                        item.block, shared.full_q[place]);
    for (int tile = 0; tile <= item.tiles; ++tile) {
      const int key = tile * Tile::kKeys;
      if (tile < item.tiles)
        fill_stage<Tile>(shared.k, map_k, shared.full_k, shared.empty_k, before + tile, key,
                         item.block);
      if (tile > 0)
        fill_stage<Tile>(shared.v, map_v, shared.full_v, shared.empty_v, before + tile - 1,
                         key - Tile::kKeys, item.block);
    }
    before += item.tiles;
  }
}

}  // namespace attention

#endif
