// flash_persistent: blocks stay, and take one tile of queries after the other, the longest first.
#include <algorithm>

#include "common/gpu.h"
#include "stage7_transformer/04_attention/attention.h"
#include "stage7_transformer/04_attention/bf16.h"
#include "stage7_transformer/04_attention/detail/finite.h"
#include "stage7_transformer/04_attention/detail/head_map_sm90.h"
#include "stage7_transformer/04_attention/detail/persistent_sm90.h"

namespace attention {

// The tiles of queries of a causal head differ in length; where there are few, it matters little.
static bool has_tickets(const Problem& p) { return p.causal && p.Tq >= kManyQueries; }
size_t memory_of_flash_persistent(const Problem& p) { return has_tickets(p) ? 1 : 0; }

#if !defined(GPU_BACKEND_HIP)

// out = softmax(scale Q K^T) V      Q, out (B,H,Tq,D)  K, V (B,H,Tk,D)
// lse = log sum of exp(scale Q K^T)       lse (B,H,Tq), may be null
// Fixes : where a block of flash_wgmma ends, its multiprocessor waits for the next one's first
//         tiles. A warp group multiplies tiles of keys of which only other groups see any, and all
//         look for NaN in each tile that not every query sees.
// Idea  : a block per multiprocessor goes from one item, a tile of queries of a head, to the next.
//         The producer fills the rings with the next item's tiles while this one's are multiplied
//         and stored. Long items come first, and who is done draws the next one. An item whose
//         sums are not finite comes once more, and only then NaN is looked for (see finite.h).
//         With two groups, not three, queries stay in registers: to read only keys saves power.
// Thread: warp group 0 is the producer, one thread of it works; the others own 64 queries each.
// Costs : a second place for queries in shared memory; zeroing the tickets, a launch more.
template <class Tile>
static __global__ void GPU_LAUNCH_BOUNDS(Tile::kThreads, 1)
    flash_persistent_forward(Bf16View to, float* lse, const __grid_constant__ CUtensorMap map_q,
                             const __grid_constant__ CUtensorMap map_k,
                             const __grid_constant__ CUtensorMap map_v, Sizes shape,
                             ItemOrder order) {
  if constexpr (gemm_mixed::kHaveWgmma) {
    DYNAMIC_SHARED(unsigned char, dynamic);
    auto& shared = gemm_mixed::aligned_shared<PersistentShared<Tile>>(dynamic);
    if (threadIdx.x == 0) shared.init();
    __syncthreads();  // every thread and the TMA know the barriers

    const int warp = uniform(static_cast<int>(threadIdx.x) / kLanes);
    const int group = warp * kLanes / kWarpGroup;
    if (group == 0) {
      gemm_mixed::give_registers<Tile::kProducerRegisters>();
      if (threadIdx.x == 0) copy_items(shared, map_q, map_k, map_v, shape, order);
    } else {
      gemm_mixed::take_registers<Tile::kConsumerRegisters>();
      const int consumer = group - 1, warp_row = warp * 16 % Tile::kOwn;
      const bool leads = threadIdx.x % kWarpGroup == 0;
      int before = 0;  // tiles of keys of the items before
      for (unsigned turn = 0;; ++turn) {
        const int place = uniform(static_cast<int>(turn % 2));
        shared.full_q[place].wait(turn / 2 % 2);  // the queries are complete
        if (shared.item[place] >= order.count(shape)) return;
        const Item item = item_of<Tile>(shared.item[place], shape, order);
        const int first = uniform(item.first), tiles = uniform(item.tiles);
        const int own = first + consumer * Tile::kOwn;
        const bool careful = shared.careful[place];  // then the groups look at all tiles together
        const int own_tiles = careful ? tiles : own_tiles_of<Tile>(own, item.end, tiles, shape);
        // All of the group's, and of the block's, queries see that many keys.
        const int unmasked = visible_keys(own + 1, shape),
                  seen_by_all = visible_keys(first + 1, shape);
        auto& q = shared.q[place][consumer];
        float out[1][Tile::kDepth / 8][4] = {}, scores[1][Tile::kKeys / 8][4], smaller[1][2];
        unsigned weights[Tile::kKeys / 16][4];
        RunningSoftmax<1> softmax;
        HeldQueries<Tile> held_q;
        if constexpr (Tile::kHoldsQueries) hold_queries<Tile>(held_q, q, warp_row);
        const auto multiply_by_keys = [&](int stage) {
          if constexpr (Tile::kHoldsQueries)
            begin_scores<Tile>(scores, held_q, shared.k[stage]);
          else
            begin_scores<Tile>(scores, q, shared.k[stage]);
        };
        const auto weigh = [&](int tile) {
          const int key = tile * Tile::kKeys;
          if (key + Tile::kKeys > unmasked) mask<false>(scores, own + warp_row, key, shape, kNone);
          softmax.weigh(scores, shape.unit, smaller);
        };
        const auto hold_weights = [&] {
          GPU_UNROLL
          for (int step = 0; step < Tile::kKeys / 16; ++step)
            as_rows(weights[step], scores[0], step);
        };
        const auto wait_for_values = [&](int tile) {
          const int stage = stage_of<Tile>(before + tile), key = tile * Tile::kKeys;
          shared.full_v[stage].wait(parity_of<Tile>(before + tile));  // the tile of V is complete
          if (!careful || key + Tile::kKeys <= seen_by_all) return;
          GPU_UNROLL
          for (int box = 0; box < Tile::kBoxes; ++box)
            take_out_special<false, Tile::kKeys, ConsumerThreads<Tile>>(
                reinterpret_cast<float(*)[1][8][4]>(out)[box],
                reinterpret_cast<uint4*>(shared.v[stage][box]), own + warp_row, key, shape);
        };

        if (tiles > 0) {
          const int stage = stage_of<Tile>(before);
          shared.full_k[stage].wait(parity_of<Tile>(before));  // the first tile of K is complete
          gemm_mixed::begin_wgmma();
          multiply_by_keys(stage);
          gemm_mixed::wait_for_wgmma<0>();
          if (leads) shared.empty_k[stage].arrive();
          weigh(0);
          hold_weights();
        }
        // The warp groups take turns: one begins products while the others compute exponentials.
        constexpr int kTurns = 5, kLast = Tile::kConsumers - 1;  // the barriers' numbers from 5 on
        const auto give_turn = [&](int tile) {
          if (consumer < kLast)
            gemm_mixed::give_turn(kTurns + consumer + 1);
          else if (tile + 1 < tiles)
            gemm_mixed::give_turn(kTurns);
        };
        if (consumer == kLast && tiles > 1) gemm_mixed::give_turn(kTurns);
        for (int tile = 1; tile < own_tiles; ++tile) {
          const int stage = stage_of<Tile>(before + tile);
          const int stage_before = stage_of<Tile>(before + tile - 1);
          shared.full_k[stage].wait(parity_of<Tile>(before + tile));  // the tile of K is complete
          wait_for_values(tile - 1);
          gemm_mixed::wait_for_turn(kTurns + consumer);
          gemm_mixed::begin_wgmma();
          multiply_by_keys(stage);
          begin_values<Tile>(out, weights, shared.v[stage_before]);
          give_turn(tile);
          gemm_mixed::wait_for_wgmma<1>();  // the scores are complete
          if (leads) shared.empty_k[stage].arrive();
          weigh(tile);
          gemm_mixed::wait_for_wgmma<0>();  // the values of the tile before are added
          if (leads) shared.empty_v[stage_before].arrive();
          RunningSoftmax<1>::shrink(out, smaller);
          hold_weights();
        }
        if (tiles > 0) {
          const int stage = stage_of<Tile>(before + own_tiles - 1);
          wait_for_values(own_tiles - 1);
          gemm_mixed::begin_wgmma();
          begin_values<Tile>(out, weights, shared.v[stage]);
          gemm_mixed::wait_for_wgmma<0>();
          if (leads) shared.empty_v[stage].arrive();
        }
        for (int tile = own_tiles; tile < tiles; ++tile) {  // tiles that only other groups see
          const int stage = stage_of<Tile>(before + tile);
          gemm_mixed::wait_for_turn(kTurns + consumer);
          give_turn(tile);
          shared.full_k[stage].wait(parity_of<Tile>(before + tile));
          if (leads) shared.empty_k[stage].arrive();
          shared.full_v[stage].wait(parity_of<Tile>(before + tile));
          if (leads) shared.empty_v[stage].arrive();
        }
        if (shape.causal && !careful && !are_finite(out)) shared.again[place] = true;
        store_rows<Tile>(to, lse, out, softmax, q, own, item.end, item.block, shape);
        gemm_mixed::fence_for_tma();
        shared.empty_q[place].arrive();
        before = uniform(before + tiles);
      }
    }
  }
}

template <class Tile>
static void launch_tile(const Bf16View& out, float* lse, const ConstBf16View& q,
                        const ConstBf16View& k, const ConstBf16View& v, const Problem& p,
                        float* memory, hipStream_t stream) {
  const size_t tiles = gpu::ceil_div(p.Tq, Tile::kQueries);
  constexpr size_t kBytes = sizeof(PersistentShared<Tile>) + gemm_mixed::kBoxAlignment;
  gpu::allow_shared_bytes(flash_persistent_forward<Tile>, kBytes);
  const auto blocks = std::min(tiles * p.heads(), size_t{gpu::multiprocessors()});
  LAUNCH_ON(stream, (flash_persistent_forward<Tile>), static_cast<unsigned>(blocks),
            unsigned{Tile::kThreads}, kBytes, out, lse, head_map(q, p, p.Tq, Tile::kOwn),
            head_map(k, p, p.Tk, Tile::kKeys), head_map(v, p, p.Tk, Tile::kKeys),
            sizes_of(p, tiles), order_of(p, has_tickets(p) ? memory : nullptr, stream));
}

// What the TMA can't copy is left to flash_bf16.
void launch_flash_persistent(const Bf16View& out, float* lse, const ConstBf16View& q,
                             const ConstBf16View& k, const ConstBf16View& v, const Problem& p,
                             float* memory, hipStream_t stream) {
  check_bf16(p, kMostBf16Depth);
  if (p.heads() * p.Tq * p.D == 0) return;
  if (!tma_takes(p, {out, q, k, v})) return launch_flash_bf16(out, lse, q, k, v, p, memory, stream);
  if (p.D > 64)
    launch_tile<WgmmaTile<128, 2>>(out, lse, q, k, v, p, memory, stream);
  else if (p.Tq < kManyQueries)
    launch_tile<WgmmaTile<64, 2>>(out, lse, q, k, v, p, memory, stream);
  else
    launch_tile<WgmmaTile<64, 3>>(out, lse, q, k, v, p, memory, stream);
}

#else

void launch_flash_persistent(const Bf16View&, float*, const ConstBf16View&, const ConstBf16View&,
                             const ConstBf16View&, const Problem&, float*, hipStream_t) {
  throw std::runtime_error("flash_persistent needs sm_90");
}

#endif

}  // namespace attention
