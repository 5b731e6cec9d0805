// What a consumer of flash_wgmma does with a tile of queries: its products, and what is between
// them.
#pragma once

#include "stage7_transformer/04_attention/detail/store_sm80.h"
#include "stage7_transformer/05_attention_backward/detail/wgmma_backward_sm90.h"

#if !defined(GPU_BACKEND_HIP)

namespace attention_backward {

// The value, as far as the compiler knows a new one each time: what follows from it is computed in
// the loop, not before it in registers that the loop has no room for.
__device__ __forceinline__ int made_anew(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

// Begins products = A B^T of 64 rows of A, from `row` on, and a tile of kQueries rows of B.
template <class Tile>
__device__ __forceinline__ void begin_products(
    float (&products)[1][Tile::kQueries / 8][4],
    const bfloat16 (&a)[Tile::kBoxes][Tile::kKeys * 64], int row,
    const bfloat16 (&b)[Tile::kBoxes][Tile::kQueries * 64]) {
  auto& sums = reinterpret_cast<float(&)[Tile::kQueries / 2]>(products);
  const int first = made_anew(row * 64);
  GPU_UNROLL
  for (int step = 0; step < Tile::kDepth / 16; ++step) {
    const auto a_step = gemm_mixed::describe_a(a[step / 4] + first, step % 4);
    const auto b_step = gemm_mixed::describe_a(b[step / 4], step % 4);
    if constexpr (Tile::kQueries == 64)
      gemm_mixed::multiply_64x64<false, false>(sums, a_step, b_step, step > 0);
    else
      gemm_mixed::multiply_rows(sums, a_step, b_step, step > 0);
  }
  gemm_mixed::end_wgmma();
}

// Begins part = slopes^T K, or adds it: 64 queries and 64 columns, and all of the block's keys.
template <class Tile>
__device__ __forceinline__ void begin_part(float (&part)[1][8][4],
                                           const bfloat16 (&slopes)[Tile::kKeys * 64],
                                           const bfloat16 (&k)[Tile::kKeys * 64], bool add) {
  auto& sums = reinterpret_cast<float(&)[Tile::kPartOfThread]>(part);
  GPU_UNROLL
  for (int step = 0; step < Tile::kKeys / 16; ++step)
    gemm_mixed::multiply_64x64<true, true>(
        sums, gemm_mixed::describe_b(slopes, sizeof slopes, step),
        gemm_mixed::describe_b(k, sizeof k, step), add || step > 0);
  gemm_mixed::end_wgmma();
}

// Calls use(value, query) for each of a lane's values of a tile: its columns are queries, whose
// data lie as the TMA puts rows of 128 bytes, 16 queries: chunk c of row r at place c ^ r % 8.
template <int kColumns, class Use>
__device__ __forceinline__ void for_each_column(float (&values)[1][kColumns][4],
                                                const QueryData* data, Use&& use) {
  const auto* chunks = reinterpret_cast<const uint4*>(data);
  const int quarter = made_anew(warp_lane() % 4);
  GPU_UNROLL
  for (int j = 0; j < kColumns; ++j) {
    QueryData of_column[2];
    const int row = j / 2, half = j % 2 ^ row / 4 % 2;  // of a row of chunks
    memcpy(of_column, chunks + row * 8 + half * 4 + (quarter ^ row % 4), sizeof of_column);
    GPU_UNROLL
    for (int k = 0; k < 4; ++k) use(values[0][j][k], of_column[k % 2]);
  }
}

// Stores a warp's 16 keys' slopes, from `row` on, in boxes of 64 queries.
template <int kQueryBoxes, int kElements, int kSteps>
__device__ __forceinline__ void store_slopes(bfloat16 (&boxes)[kQueryBoxes][kElements], int row,
                                             const unsigned (&held)[kSteps][4]) {
  constexpr int kWordsOfRow = 32, kWordsOfChunk = 4;
  const int in_eight = warp_lane() / 4;  // rows, whose chunks change places by it
  const int word =
      made_anew((row + in_eight) * kWordsOfRow + in_eight * kWordsOfChunk + warp_lane() % 4);
  GPU_UNROLL
  for (int step = 0; step < kSteps; ++step) {
    GPU_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int chunk = 2 * step + i / 2;
      auto* words = reinterpret_cast<unsigned*>(boxes[chunk / 8]) + i % 2 * 8 * kWordsOfRow;
      words[word ^ chunk % 8 * kWordsOfChunk] = held[step][i];
    }
  }
}

// A warp's values as fragments of A.
template <int kSteps, int kColumns>
__device__ __forceinline__ void hold(unsigned (&held)[kSteps][4],
                                     const float (&values)[1][kColumns][4]) {
  GPU_UNROLL
  for (int step = 0; step < kSteps; ++step) as_rows(held[step], values[0], step);
}

// The threads that multiply the same box of keys: those of a consumer, or of both.
template <class Tile>
struct OwnersOfColumns {
  static constexpr int kCount = Tile::kBoxes == 1 ? Tile::kConsumers * kWarpGroup : kWarpGroup;
  static constexpr int kBarrier = ConsumerThreads<Tile>::kBarrier + 1;  // and the next
  static __device__ int rank() { return (static_cast<int>(threadIdx.x) - kWarpGroup) % kCount; }
  static __device__ bool any(bool value) {
    const int group = (static_cast<int>(threadIdx.x) - kWarpGroup) / kCount;
    return gemm_mixed::any_of_threads(kBarrier + group, kCount, value);
  }
  static __device__ void sync() {
    gemm_mixed::fence_for_tma();
    any(false);
  }
};

// A consumer: 64 keys of its block, of which each warp has 16. Its products of a tile are S^T and
// grad_P^T, keys by queries.
template <class Tile>
struct BackwardConsumer {
  using Products = float[1][Tile::kQueries / 8][4];
  using Sums = float[1][Tile::kDepth / 8][4];
  using Threads = ConsumerThreads<Tile>;  // of both
  using Columns = OwnersOfColumns<Tile>;

  BackwardShared<Tile>& shared;
  const Sizes& shape;
  int number, row;  // row: the warp's first one in the block's tile of keys
  unsigned loads_of_k = 1;

  __device__ BackwardConsumer(BackwardShared<Tile>& memory, const Sizes& sizes, int consumer)
      : shared(memory),
        shape(sizes),
        number(consumer),
        row(static_cast<int>(threadIdx.x) / kLanes * 16 - Tile::kOwn) {}

  __device__ __forceinline__ int query(int turn) const {
    return shared.tiles.tile(turn) * Tile::kQueries;
  }

  __device__ __forceinline__ void begin_scores(Products& scores, int turn) {
    const int stage = stage_of<Tile>(turn);
    shared.full_q[stage].wait(parity_of<Tile>(turn));  // queries and their data are complete
    gemm_mixed::begin_wgmma();
    begin_products<Tile>(scores, shared.k, number * Tile::kOwn, shared.q[stage]);
  }
  template <bool kMasked>
  __device__ __forceinline__ void begin_slopes(Products& slopes, Sums& grad_v, int turn) {
    const int stage = stage_of<Tile>(turn);
    auto& grad_out = shared.grad_out[stage];
    shared.full_grad_out[stage].wait(parity_of<Tile>(turn));
    // Special elements may go: the query's delta is not finite then.
    if (kMasked && shape.causal) take_out(grad_v, grad_out, turn);
    gemm_mixed::begin_wgmma();
    begin_products<Tile>(slopes, shared.v, number * Tile::kOwn, grad_out);
  }
  // Scores become P, and with P grad_P becomes grad_S.
  template <bool kMasked>
  __device__ __forceinline__ void weigh(Products& scores, int turn) {
    for_each_column(scores, shared.data[stage_of<Tile>(turn)],
                    [&](float& score, const QueryData& of) {
                      score = gpu::exp2_flushed(fmaf(score, shape.unit, -of.shift));
                    });
    if constexpr (kMasked) mask<true>(scores, shared.tiles.first_key + row, query(turn), shape, 0);
  }
  template <bool kMasked>
  __device__ __forceinline__ void weigh_slopes(Products& slopes, const Products& weights,
                                               int turn) {
    for_each_column(slopes, shared.data[stage_of<Tile>(turn)],
                    [](float& slope, const QueryData& of) { slope -= of.delta; });
    multiply_each(slopes, weights);
    if constexpr (kMasked) mask<true>(slopes, shared.tiles.first_key + row, query(turn), shape, 0);
  }

  // A tile that not all keys see has no special elements then; see special_sm80.h.
  __device__ __forceinline__ void take_out(Sums& sums,
                                           bfloat16 (&boxes)[Tile::kBoxes][Tile::kQueries * 64],
                                           int turn) {
    GPU_UNROLL
    for (int box = 0; box < Tile::kBoxes; ++box)
      take_out_special<true, Tile::kQueries, Threads>(
          reinterpret_cast<float(*)[1][8][4]>(sums)[box], reinterpret_cast<uint4*>(boxes[box]),
          shared.tiles.first_key + row, query(turn), shape);
  }
  // The same of the keys that this consumer's part of grad_q is made of. Returns whether there
  // were any.
  __device__ __forceinline__ bool take_out_of_keys(float (&part)[1][8][4], int turn) {
    const int first = query(turn) + Tile::queries_of(number) * 64 + row - number * Tile::kOwn;
    return take_out_special<false, Tile::kKeys, Columns>(
        part, reinterpret_cast<uint4*>(shared.k[Tile::columns_of(number)]), first,
        shared.tiles.first_key, shape);
  }
  // The next tile's scores need the keys as they were.
  __device__ __forceinline__ void bring_back_keys(bool were_special, const BackwardMaps& maps) {
    if (!Threads::any(were_special)) return;  // nobody multiplies keys
    if (threadIdx.x == Tile::kLeader) load_keys(shared, maps, shared.tiles, shared.block);
    shared.full_k.wait(loads_of_k++ % 2);
  }

  // Hands a part of grad_q to the thread that sends it.
  __device__ __forceinline__ void hand_over(const float (&part)[1][8][4], int turn) {
    shared.empty_grad_q.wait(turn % 2 ^ 1);  // the part before has left
    store_part(shared.grad_q[number], part);
    gemm_mixed::fence_for_tma();
    gpu::wave_sync();  // of all lanes
    if (warp_lane() == 0) shared.full_grad_q.arrive();
  }
  // Stores sums, times a factor, through `boxes`.
  __device__ __forceinline__ void store(const Bf16View& to,
                                        bfloat16 (&boxes)[Tile::kBoxes][Tile::kKeys * 64],
                                        const Sums& sums, float factor) {
    const float factors[1][2] = {{factor, factor}};
    GPU_UNROLL
    for (int box = 0; box < Tile::kBoxes; ++box)
      store_chunks<true>(shared.block.row(to, shared.tiles.first_key) + 64 * box, to.stride_row,
                         shape.D - 64 * box, shape.Tk - shared.tiles.first_key,
                         reinterpret_cast<uint4*>(boxes[box]), row,
                         reinterpret_cast<const float(*)[1][8][4]>(sums)[box], factors);
  }
};

}  // namespace attention_backward

#endif
