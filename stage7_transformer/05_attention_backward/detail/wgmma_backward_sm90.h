// What flash_wgmma's blocks keep in shared memory, how it is filled and sent, and their products.
#pragma once

#include "stage2_matrix/04_gemm_mixed/detail/wgmma_sm90.h"
#include "stage7_transformer/04_attention/detail/head_map_sm90.h"
#include "stage7_transformer/04_attention/detail/wgmma_tiles_sm90.h"
#include "stage7_transformer/05_attention_backward/detail/backward_tiles_sm80.h"

#if !defined(GPU_BACKEND_HIP)

// Before a loop that has no registers for more than one turn at a time.
#if defined(GPU_BACKEND_CUDA)
#define GPU_ROLLED _Pragma("unroll 1")
#else
#define GPU_ROLLED
#endif

namespace attention_backward {

// What a block does: two warp groups own 64 keys each and go through the queries, kQueries at a
// time. Of a tile's grad_q each computes a part, 64 queries by 64 columns.
template <int kDepth_, int kQueries_>
struct WgmmaBackwardTile {
  static constexpr int kDepth = kDepth_, kBoxes = kDepth / 64;
  static constexpr int kConsumers = 2, kOwn = 64, kKeys = kConsumers * kOwn;
  static constexpr int kQueries = kQueries_, kQueryBoxes = kQueries / 64, kStages = 2;
  // A tile of 64 queries leaves registers for P beside its copy as an operand: grad_v's product
  // begins before dS is there.
  static constexpr bool kHasRoomForBoth = kQueries == 64;
  static constexpr int kThreads = kWarpGroup * (1 + kConsumers), kLeader = kWarpGroup;
  // Of a thread, as in WgmmaTile.
  static constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;
  static constexpr int kPart = 64 * 64, kPartOfThread = kPart / kWarpGroup;
  static_assert(kBoxes * kQueryBoxes == kConsumers, "a part of grad_q for each consumer");

  // Which 64 queries and which 64 columns.
  __host__ __device__ static constexpr int queries_of(int part) { return part % kQueryBoxes; }
  __host__ __device__ static constexpr int columns_of(int part) { return part % kBoxes; }

  // Weighted sums of a tile's queries, for begin_values().
  struct OfQueries {
    static constexpr int kDepth = kDepth_, kBoxes = kDepth / 64, kKeys = kQueries_;
  };
};

// The tiles of queries that see some of a block's keys, from the last one backwards. The first
// `unmasked` of them see all keys.
struct QueryTiles {
  int first_key, begin, count, unmasked;

  template <class Tile>
  static __device__ QueryTiles of(const HeadRows& block, const Sizes& shape, Tile) {
    const int first_key = block.tile * Tile::kKeys, last_key = first_key + Tile::kKeys - 1;
    const int end = (shape.Tq + Tile::kQueries - 1) / Tile::kQueries;
    // The first queries that see a key.
    const auto seeing = [&](int key) {
      return shape.causal ? max(key + shape.Tq - shape.Tk, 0) : 0;
    };
    const int begin = seeing(first_key) / Tile::kQueries;
    const int see_all = (seeing(last_key) + Tile::kQueries - 1) / Tile::kQueries;
    return {first_key, begin, end - begin, last_key < shape.Tk ? max(end - see_all, 0) : 0};
  }
  __device__ int tile(int turn) const { return begin + count - 1 - turn; }
};

// A block's shared memory. Its keys and values come once; queries and what goes with them have a
// ring, and grad_q leaves through a buffer:
//
//   full    completes when a tile has arrived; the consumers wait for it
//   empty   completes when both consumers have multiplied it; the producer waits for it
template <class Tile>
struct BackwardShared {
  bfloat16 k[Tile::kBoxes][Tile::kKeys * 64], v[Tile::kBoxes][Tile::kKeys * 64];  // at the end: out
  bfloat16 q[Tile::kStages][Tile::kBoxes][Tile::kQueries * 64];
  bfloat16 grad_out[Tile::kStages][Tile::kBoxes][Tile::kQueries * 64];
  bfloat16 slopes[2][Tile::kQueryBoxes][Tile::kKeys * 64];  // of this tile and of the one before
  float grad_q[Tile::kConsumers][Tile::kPart];
  QueryData data[Tile::kStages][kQueryPadding];
  PhaseBarrier full_k, full_v, full_q[Tile::kStages], full_grad_out[Tile::kStages];
  PhaseBarrier empty[Tile::kStages], full_grad_q, empty_grad_q;
  HeadRows block;  // which tile of keys this is
  QueryTiles tiles;

  // One thread calls this before all use, then the block's __syncthreads().
  __device__ void init() {
    full_k.init(1), full_v.init(1), empty_grad_q.init(1);
    full_grad_q.init(Tile::kConsumers * kWarpGroup / kLanes);  // one lane of each warp
    for (int stage = 0; stage < Tile::kStages; ++stage) {
      full_q[stage].init(1), full_grad_out[stage].init(1);
      empty[stage].init(Tile::kConsumers);
    }
    gemm_mixed::publish_barriers();
  }
};

struct BackwardMaps {
  CUtensorMap q, grad_out, k, v, data;
};

// Which tile of keys is whose. `together` heads take turns, so that what they read stays in the L2
// cache, and long walks come before short ones.
struct BlockOrder {
  unsigned heads, together;

  __device__ HeadRows place(unsigned number, const Sizes& shape) const {
    const unsigned first = number / (together * shape.tiles) * together;
    const unsigned count = min(together, heads - first), rest = number - first * shape.tiles;
    return HeadRows(shape, first + rest % count, rest / count);
  }
};

// Begins to copy the block's keys. One thread calls this.
template <class Tile>
__device__ inline void load_keys(BackwardShared<Tile>& shared, const BackwardMaps& maps,
                                 const QueryTiles& tiles, const HeadRows& block) {
  shared.full_k.expect(sizeof shared.k);
  load_rows_of_head(shared.k, maps.k, tiles.first_key, block, shared.full_k);
}

// The producer's part. One thread calls this.
template <class Tile>
__device__ inline void copy_queries(BackwardShared<Tile>& shared, const BackwardMaps& maps,
                                    const QueryTiles& tiles, const HeadRows& block,
                                    size_t first_data) {
  constexpr int kDataInRow = 16;  // rows of 128 bytes
  load_keys(shared, maps, tiles, block);
  GPU_ROLLED
  for (int turn = 0; turn < tiles.count; ++turn) {
    const int stage = stage_of<Tile>(turn), query = tiles.tile(turn) * Tile::kQueries;
    shared.empty[stage].wait(parity_of<Tile>(turn) ^ 1);  // in the first round: from the start
    shared.full_q[stage].expect(sizeof shared.q[0] + Tile::kQueries * sizeof(QueryData));
    load_rows_of_head(shared.q[stage], maps.q, query, block, shared.full_q[stage]);
    const size_t data = first_data + static_cast<size_t>(query);
    gemm_mixed::load_box(shared.data[stage], maps.data, static_cast<int>(data / kDataInRow), 0,
                         shared.full_q[stage]);
    if (turn == 0) {
      shared.full_v.expect(sizeof shared.v);
      load_rows_of_head(shared.v, maps.v, tiles.first_key, block, shared.full_v);
    }
    shared.full_grad_out[stage].expect(sizeof shared.grad_out[0]);
    load_rows_of_head(shared.grad_out[stage], maps.grad_out, query, block,
                      shared.full_grad_out[stage]);
  }
}

// Sends each tile's grad_q to the sums of its head, where blocks add in the order of their keys:
// block_count[tile] of them have. So every run adds the same numbers in the same order. The blocks
// before this one have begun before it, and wait for none behind them. One thread calls this.
template <class Tile>
__device__ inline void send_grad_q(BackwardShared<Tile>& shared, float* sums, unsigned* block_count,
                                   const QueryTiles& tiles, unsigned before) {
  GPU_ROLLED
  for (int turn = 0; turn < tiles.count; ++turn) {
    const int tile = tiles.tile(turn);
    while (atomicAdd(block_count + tile, 0u) < before) {
    }
    __threadfence();                     // what they have added is there,
    gemm_mixed::fence_global_for_tma();  // for the TMA, too
    shared.full_grad_q.wait(turn % 2);   // both parts are complete
    float* const to = sums + static_cast<size_t>(tile) * (sizeof shared.grad_q / sizeof(float));
    if (before == 0)  // nothing is there yet
      gemm_mixed::store_floats(to, shared.grad_q[0], sizeof shared.grad_q);
    else
      gemm_mixed::add_floats(to, shared.grad_q[0], sizeof shared.grad_q);
    gemm_mixed::end_stores();
    gemm_mixed::wait_until_stores_have_read();
    shared.empty_grad_q.arrive();
    gemm_mixed::wait_for_stores();
    __threadfence();  // the sums are there for those who see the count
    atomicAdd(block_count + tile, 1u);
  }
}

// A part of grad_q in the buffer and in the sums: the four numbers j of thread t are number
// kWarpGroup j + t of its fours.
__device__ __forceinline__ float4* fours_of_thread(float* part) {
  return reinterpret_cast<float4*>(part) + threadIdx.x % kWarpGroup;
}
__device__ __forceinline__ void store_part(float* to, const float (&part)[1][8][4]) {
  float4* fours = fours_of_thread(to);
  GPU_UNROLL
  for (int j = 0; j < 8; ++j)
    fours[j * kWarpGroup] = {part[0][j][0], part[0][j][1], part[0][j][2], part[0][j][3]};
}

// Heads of up to 64 numbers and of up to 128.
using SmallHeads = WgmmaBackwardTile<64, 128>;
using LargeHeads = WgmmaBackwardTile<128, 64>;

// versions/grad_q_sm90.hip: grad_q = scale sums, or 0 for a query that sees no key.
template <class Tile>
void launch_grad_q(const Bf16View& grad_q, const float* sums, const Problem& problem,
                   hipStream_t stream);

}  // namespace attention_backward

#endif
