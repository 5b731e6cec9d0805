// What flash_wgmma keeps in shared memory, how it is filled, and its two products.
#pragma once

#include <type_traits>

#include "stage2_matrix/04_gemm_mixed/detail/wgmma_sm90.h"
#include "stage7_transformer/04_attention/detail/products_sm80.h"
#include "stage7_transformer/04_attention/detail/running_softmax_sm80.h"
#include "stage7_transformer/04_attention/detail/special_sm80.h"
#include "stage7_transformer/04_attention/detail/store_sm80.h"

#if !defined(GPU_BACKEND_HIP)

namespace attention {

using gemm_mixed::kWarpGroup;
using gemm_mixed::PhaseBarrier;

// What a block does: kConsumers warp groups own 64 queries each and go through the keys, kKeys at a
// time; one more copies. A box is 64 columns, 128 bytes, of some rows.
template <int kDepth_, int kConsumers_>
struct WgmmaTile {
  static constexpr int kDepth = kDepth_, kBoxes = kDepth / 64;
  static constexpr int kConsumers = kConsumers_, kOwn = 64, kQueries = kConsumers * kOwn;
  static constexpr int kKeys = 128, kStages = 2;
  static constexpr int kThreads = kWarpGroup * (1 + kConsumers);
  // Of a thread. A launch gives all groups as many, three of them 168 and four 128; then the
  // producer gives most of its own.
  static constexpr int kProducerRegisters = kConsumers == 2 ? 24 : 32;
  static constexpr int kConsumerRegisters = kConsumers == 2 ? 240 : 160;
  static constexpr bool kHoldsQueries = kConsumers == 2;  // there are registers for them
  static_assert(kProducerRegisters + kConsumers * kConsumerRegisters <=
                (kConsumers == 2 ? 3 * 168 : 4 * 128));
};

// A block's shared memory. Queries come once; keys and values have a ring each:
//
//   full    completes when a tile has arrived; the consumers wait for it
//   empty   completes when both consumers have multiplied it; the producer waits for it
template <class Tile>
struct WgmmaShared {
  bfloat16 q[Tile::kConsumers][Tile::kBoxes][Tile::kOwn * 64];  // at the end: out
  bfloat16 k[Tile::kStages][Tile::kBoxes][Tile::kKeys * 64];
  bfloat16 v[Tile::kStages][Tile::kBoxes][Tile::kKeys * 64];
  PhaseBarrier full_q, full_k[Tile::kStages], full_v[Tile::kStages];
  PhaseBarrier empty_k[Tile::kStages], empty_v[Tile::kStages];

  // One thread calls this before all use, then the block's __syncthreads().
  __device__ void init() {
    full_q.init(1);
    for (int stage = 0; stage < Tile::kStages; ++stage) {
      full_k[stage].init(1), full_v[stage].init(1);
      empty_k[stage].init(Tile::kConsumers), empty_v[stage].init(Tile::kConsumers);
    }
    gemm_mixed::publish_barriers();
  }
};

// Stage and parity of tile number `tile` in its ring.
template <class Tile>
__device__ inline int stage_of(int tile) {
  return tile % Tile::kStages;
}
template <class Tile>
__device__ inline unsigned parity_of(int tile) {
  return static_cast<unsigned>(tile / Tile::kStages % 2);
}

// Begins to copy the rows from `row` on of a head to `boxes`. One thread calls this.
template <int kBoxes, int kElements>
__device__ inline void load_rows_of_head(bfloat16 (&boxes)[kBoxes][kElements],
                                         const CUtensorMap& map, int row, const HeadRows& block,
                                         PhaseBarrier& full) {
  GPU_UNROLL
  for (int box = 0; box < kBoxes; ++box)
    gemm_mixed::load_box(
        boxes[box], map,
        {row, box * 64, static_cast<int>(block.head), static_cast<int>(block.batch)}, full);
}

// A tile on its way to its stage of a ring, as soon as that is empty.
template <class Tile, class Ring>
__device__ __forceinline__ void fill_ring(Ring& ring, const CUtensorMap& map, PhaseBarrier* full,
                                          PhaseBarrier* empty, int tile, const HeadRows& block) {
  const int stage = stage_of<Tile>(tile);
  empty[stage].wait(parity_of<Tile>(tile) ^ 1);  // in the first round: empty from the start
  full[stage].expect(sizeof ring[stage]);
  load_rows_of_head(ring[stage], map, tile * Tile::kKeys, block, full[stage]);
}

// The producer's part: the queries, then the tiles of keys and of values in the order in which they
// are multiplied. One thread calls this.
template <class Tile>
__device__ inline void copy_all(WgmmaShared<Tile>& shared, const CUtensorMap& map_q,
                                const CUtensorMap& map_k, const CUtensorMap& map_v, int first_query,
                                int tiles, const HeadRows& block) {
  if (tiles == 0) return;  // nobody would wait for the queries
  shared.full_q.expect(sizeof shared.q);
  for (int consumer = 0; consumer < Tile::kConsumers; ++consumer)
    load_rows_of_head(shared.q[consumer], map_q, first_query + consumer * Tile::kOwn, block,
                      shared.full_q);
  for (int tile = 0; tile <= tiles; ++tile) {
    if (tile < tiles) fill_ring<Tile>(shared.k, map_k, shared.full_k, shared.empty_k, tile, block);
    if (tile > 0) fill_ring<Tile>(shared.v, map_v, shared.full_v, shared.empty_v, tile - 1, block);
  }
}

// Queries that wgmma reads from registers instead of shared memory: a warp's 16 rows, as it wants
// them.
template <class Tile>
using HeldQueries = unsigned[Tile::kDepth / 16][4];

template <class Tile>
__device__ __forceinline__ void hold_queries(HeldQueries<Tile>& held,
                                             const bfloat16 (&q)[Tile::kBoxes][Tile::kOwn * 64],
                                             int warp_row) {
  GPU_UNROLL
  for (int step = 0; step < Tile::kDepth / 16; ++step)
    load_rows<8>(held[step], reinterpret_cast<const uint4*>(q[step / 4]) + warp_row * 8, step % 4);
  gpu::wave_sync();  // the warp has read them: its lanes may store there
}

// Begins scores = Q K^T of a warp group's 64 queries, boxes or held, and a tile of keys.
template <class Tile, class Queries>
__device__ __forceinline__ void begin_scores(float (&scores)[1][Tile::kKeys / 8][4],
                                             const Queries& q,
                                             const bfloat16 (&k)[Tile::kBoxes][Tile::kKeys * 64]) {
  auto& sums = reinterpret_cast<float(&)[Tile::kKeys / 2]>(scores);
  GPU_UNROLL
  for (int step = 0; step < Tile::kDepth / 16; ++step) {
    const gemm_mixed::Descriptor keys = gemm_mixed::describe_a(k[step / 4], step % 4);
    if constexpr (std::is_same_v<Queries, HeldQueries<Tile>>)
      gemm_mixed::multiply_held<false>(sums, q[step], keys, step > 0);
    else
      gemm_mixed::multiply_rows(sums, gemm_mixed::describe_a(q[step / 4], step % 4), keys,
                                step > 0);
  }
  gemm_mixed::end_wgmma();
}

// Begins out += weights V for a tile of values.
template <class Tile>
__device__ __forceinline__ void begin_values(float (&out)[1][Tile::kDepth / 8][4],
                                             const unsigned (&weights)[Tile::kKeys / 16][4],
                                             const bfloat16 (&v)[Tile::kBoxes][Tile::kKeys * 64]) {
  auto& sums = reinterpret_cast<float(&)[Tile::kDepth / 2]>(out);
  GPU_UNROLL
  for (int step = 0; step < Tile::kKeys / 16; ++step)
    gemm_mixed::multiply_held(sums, weights[step], gemm_mixed::describe_b(v, sizeof v[0], step),
                              true);
  gemm_mixed::end_wgmma();
}

// Stores out, divided by its sums, and lse of a warp group's queries from `own` to before `end`. On
// its way out lies in `boxes`, where the queries were.
template <class Tile>
__device__ inline void store_rows(const Bf16View& to, float* lse,
                                  const float (&out)[1][Tile::kDepth / 8][4],
                                  RunningSoftmax<1>& softmax,
                                  bfloat16 (&boxes)[Tile::kBoxes][Tile::kOwn * 64], int own,
                                  int end, const HeadRows& block, const Sizes& shape) {
  const int warp_row = static_cast<int>(threadIdx.x) % kWarpGroup / kLanes * 16;
  softmax.finish();
  float factors[1][2];
  GPU_UNROLL
  for (int half = 0; half < 2; ++half) {
    const float sum = softmax.sum[0][half];
    factors[0][half] = sum == 0 ? 0 : 1 / sum;  // 0: no key is visible
    const int row = own + warp_row + 8 * half + warp_lane() / 4;
    if (lse != nullptr && warp_lane() % 4 == 0 && row < end)
      lse[block.flat(shape, shape.Tq, row)] = (softmax.shift[0][half] + log2f(sum)) * kLogTwo;
  }
  GPU_UNROLL
  for (int box = 0; box < Tile::kBoxes; ++box)
    store_chunks<true>(block.row(to, own) + 64 * box, to.stride_row, shape.D - 64 * box, end - own,
                       reinterpret_cast<uint4*>(boxes[box]), warp_row,
                       reinterpret_cast<const float(*)[1][8][4]>(out)[box], factors);
}

// The threads of the two consumers, as take_out_special wants them. Their barrier is number 1 +
// kConsumers; wgmma must see what they have stored.
template <class Tile>
struct ConsumerThreads {
  static constexpr int kCount = Tile::kConsumers * kWarpGroup, kBarrier = 1 + Tile::kConsumers;
  static __device__ int rank() { return static_cast<int>(threadIdx.x) - kWarpGroup; }
  static __device__ bool any(bool value) {
    return gemm_mixed::any_of_threads(kBarrier, kCount, value);
  }
  static __device__ void sync() {
    gemm_mixed::fence_for_tma();
    any(false);
  }
};

}  // namespace attention

#endif
