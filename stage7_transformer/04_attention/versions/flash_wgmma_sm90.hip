// flash_wgmma: one warp group copies, two or three multiply; softmax runs beside the products.
#include "common/gpu.h"
#include "stage7_transformer/04_attention/attention.h"
#include "stage7_transformer/04_attention/bf16.h"
#include "stage7_transformer/04_attention/detail/head_map_sm90.h"
#include "stage7_transformer/04_attention/detail/wgmma_tiles_sm90.h"

namespace attention {

#if !defined(GPU_BACKEND_HIP)

// out = softmax(scale Q K^T) V      Q, out (B,H,Tq,D)  K, V (B,H,Tk,D)
// lse = log sum of exp(scale Q K^T)       lse (B,H,Tq), may be null
// Fixes : flash_bf16's warps load fragments and copy tiles between two products, and while they
//         compute exponentials nobody multiplies.
// Idea  : wgmma reads tiles where the TMA has put them, and runs while the warps go on: during the
//         softmax of one tile the weights of the tile before are multiplied by their values
//         (Shah et al.: FlashAttention-3, arXiv:2407.08608).
// Thread: warp group 0 is the producer, one thread of it works; the others own 64 queries each.
// Costs : all of a multiprocessor; a barrier between two consumers per tile of keys.
template <class Tile>
static __global__ void GPU_LAUNCH_BOUNDS(Tile::kThreads, 1)
    flash_wgmma_forward(Bf16View to, float* lse, const __grid_constant__ CUtensorMap map_q,
                        const __grid_constant__ CUtensorMap map_k,
                        const __grid_constant__ CUtensorMap map_v, Sizes shape) {
  if constexpr (gemm_mixed::kHaveWgmma) {
    DYNAMIC_SHARED(unsigned char, dynamic);
    auto& shared = gemm_mixed::aligned_shared<WgmmaShared<Tile>>(dynamic);
    if (threadIdx.x == 0) shared.init();
    __syncthreads();  // every thread and the TMA know the barriers

    const HeadRows block(shape);
    // The last queries see the most keys: their blocks come first.
    const int first = (static_cast<int>(shape.tiles) - 1 - block.tile) * Tile::kQueries;
    const int keys = visible_keys(first + min(shape.Tq - first, Tile::kQueries), shape);
    const int tiles = (keys + Tile::kKeys - 1) / Tile::kKeys;
    const int group = static_cast<int>(threadIdx.x) / kWarpGroup;
    if (group == 0) {
      gemm_mixed::give_registers<Tile::kProducerRegisters>();
      if (threadIdx.x == 0) copy_all(shared, map_q, map_k, map_v, first, tiles, block);
    } else {
      gemm_mixed::take_registers<Tile::kConsumerRegisters>();
      const int consumer = group - 1, own = first + consumer * Tile::kOwn;
      const int warp_row = static_cast<int>(threadIdx.x) % kWarpGroup / kLanes * 16;
      const bool leads = threadIdx.x % kWarpGroup == 0;
      // All of the group's, and of the block's, queries see that many keys.
      const int unmasked = visible_keys(own + 1, shape),
                seen_by_all = visible_keys(first + 1, shape);
      auto& q = shared.q[consumer];
      float out[1][Tile::kDepth / 8][4] = {}, scores[1][Tile::kKeys / 8][4], smaller[1][2];
      unsigned weights[Tile::kKeys / 16][4];
      RunningSoftmax<1> softmax;
      const auto weigh = [&](int tile) {
        const int key = tile * Tile::kKeys;
        if (key + Tile::kKeys > unmasked) mask<false>(scores, own + warp_row, key, shape, kNone);
        softmax.weigh(scores, shape.unit, smaller);
      };
      const auto hold_weights = [&] {
        GPU_UNROLL
        for (int step = 0; step < Tile::kKeys / 16; ++step) as_rows(weights[step], scores[0], step);
      };
      const auto wait_for_values = [&](int tile) {
        const int stage = stage_of<Tile>(tile), key = tile * Tile::kKeys;
        shared.full_v[stage].wait(parity_of<Tile>(tile));  // the tile of V is complete
        if (key + Tile::kKeys <= seen_by_all) return;
        GPU_UNROLL
        for (int box = 0; box < Tile::kBoxes; ++box)
          take_out_special<false, Tile::kKeys, ConsumerThreads<Tile>>(
              reinterpret_cast<float(*)[1][8][4]>(out)[box],
              reinterpret_cast<uint4*>(shared.v[stage][box]), own + warp_row, key, shape);
      };

      if (tiles > 0) {
        shared.full_q.wait(0);
        shared.full_k[0].wait(0);  // the queries and the first tile of K are complete
        gemm_mixed::begin_wgmma();
        begin_scores<Tile>(scores, q, shared.k[0]);
        gemm_mixed::wait_for_wgmma<0>();
        if (leads) shared.empty_k[0].arrive();
        weigh(0);
        hold_weights();
      }
      // The warp groups take turns: one begins products while the others compute exponentials.
      constexpr int kTurns = 5, kLast = Tile::kConsumers - 1;  // the barriers' numbers from 5 on
      if (consumer == kLast && tiles > 1) gemm_mixed::give_turn(kTurns);
      for (int tile = 1; tile < tiles; ++tile) {
        const int stage = stage_of<Tile>(tile), before = stage_of<Tile>(tile - 1);
        shared.full_k[stage].wait(parity_of<Tile>(tile));  // the tile of K is complete
        wait_for_values(tile - 1);
        gemm_mixed::wait_for_turn(kTurns + consumer);
        gemm_mixed::begin_wgmma();
        begin_scores<Tile>(scores, q, shared.k[stage]);
        begin_values<Tile>(out, weights, shared.v[before]);
        if (consumer < kLast)
          gemm_mixed::give_turn(kTurns + consumer + 1);
        else if (tile + 1 < tiles)
          gemm_mixed::give_turn(kTurns);
        // exercise: the softmax of this tile's scores, beside the product of the weights and
        // values of the tile before; behind that, rescale `out` (about 7 lines)
        gemm_mixed::wait_for_wgmma<1>();  // the scores are complete
        if (leads) shared.empty_k[stage].arrive();
        weigh(tile);
        gemm_mixed::wait_for_wgmma<0>();  // the values of the tile before are added
        if (leads) shared.empty_v[before].arrive();
        RunningSoftmax<1>::shrink(out, smaller);
        hold_weights();
        // end exercise
      }
      if (tiles > 0) {
        wait_for_values(tiles - 1);
        gemm_mixed::begin_wgmma();
        begin_values<Tile>(out, weights, shared.v[stage_of<Tile>(tiles - 1)]);
        gemm_mixed::wait_for_wgmma<0>();
      }

      store_rows<Tile>(to, lse, out, softmax, q, own, shape.Tq, block, shape);
    }
  }
}

template <class Tile>
static void launch_tile(const Bf16View& out, float* lse, const ConstBf16View& q,
                        const ConstBf16View& k, const ConstBf16View& v, const Problem& p,
                        hipStream_t stream) {
  const size_t tiles = gpu::ceil_div(p.Tq, Tile::kQueries);
  constexpr size_t kBytes = sizeof(WgmmaShared<Tile>) + gemm_mixed::kBoxAlignment;
  gpu::allow_shared_bytes(flash_wgmma_forward<Tile>, kBytes);
  LAUNCH_ON(stream, (flash_wgmma_forward<Tile>), static_cast<unsigned>(tiles * p.heads()),
            unsigned{Tile::kThreads}, kBytes, out, lse, head_map(q, p, p.Tq, Tile::kOwn),
            head_map(k, p, p.Tk, Tile::kKeys), head_map(v, p, p.Tk, Tile::kKeys),
            sizes_of(p, tiles));
}

// What the TMA can't copy is left to flash_bf16.
void launch_flash_wgmma(const Bf16View& out, float* lse, const ConstBf16View& q,
                        const ConstBf16View& k, const ConstBf16View& v, const Problem& p,
                        float* memory, hipStream_t stream) {
  check_bf16(p, kMostBf16Depth);
  if (p.heads() * p.Tq * p.D == 0) return;
  if (!tma_takes(p, {out, q, k, v})) return launch_flash_bf16(out, lse, q, k, v, p, memory, stream);
  if (p.D > 64)
    launch_tile<WgmmaTile<128, 2>>(out, lse, q, k, v, p, stream);
  else if (p.Tq < kManyQueries)
    launch_tile<WgmmaTile<64, 2>>(out, lse, q, k, v, p, stream);
  else
    launch_tile<WgmmaTile<64, 3>>(out, lse, q, k, v, p, stream);
}

#else

void launch_flash_wgmma(const Bf16View&, float*, const ConstBf16View&, const ConstBf16View&,
                        const ConstBf16View&, const Problem&, float*, hipStream_t) {
  throw std::runtime_error("flash_wgmma needs sm_90");
}

#endif

}  // namespace attention
