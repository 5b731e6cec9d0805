// flash_wgmma: five products of each pair on sm_90's matrix units; blocks add grad_q in turn.
#include <algorithm>

#include "common/gpu.h"
#include "stage7_transformer/04_attention/bf16.h"
#include "stage7_transformer/04_attention/detail/store_sm80.h"
#include "stage7_transformer/05_attention_backward/detail/backward_consumer_sm90.h"

namespace attention_backward {

#if !defined(GPU_BACKEND_HIP)

// grad_k = scale dS^T Q   grad_v = P^T grad_out   sums of grad_q += dS K, for
// versions/grad_q_sm90.hip
//     Q, grad_out (B,H,Tq,D)  K, V, grad_k, grad_v (B,H,Tk,D)  maps.data of data (B,H,padded)
// Fixes : flash_bf16 computes P and dS twice, so that every sum has one owner.
// Idea  : a block of keys sends its part of grad_q away, and blocks add in the order of their keys:
//         the same bits on every run. K Q^T and V grad_out^T leave P^T and dS^T in the registers
//         from which wgmma multiplies grad_out and Q (Shah et al., arXiv:2407.08608).
// Thread: one of warp group 0 copies, one sends; the other groups own 64 keys each.
// Costs : all of a multiprocessor; dS through shared memory and one barrier per tile of queries.
template <class Tile>
static __global__ void GPU_LAUNCH_BOUNDS(Tile::kThreads, 1)
    flash_wgmma_backward(Bf16View grad_k, Bf16View grad_v, float* sums, unsigned* counts,
                         const __grid_constant__ BackwardMaps maps, BlockOrder order, float scale,
                         unsigned padded, Sizes shape) {
  if constexpr (gemm_mixed::kHaveWgmma) {
    DYNAMIC_SHARED(unsigned char, dynamic);
    auto& shared = gemm_mixed::aligned_shared<BackwardShared<Tile>>(dynamic);
    if (threadIdx.x == 0) {
      shared.init();
      shared.block = order.place(atomicAdd(counts, 1u), shape);  // in the order in which they begin
      shared.tiles = QueryTiles::of(shared.block, shape, Tile{});
    }
    __syncthreads();  // every thread knows the barriers and the block's place; the TMA the barriers

    const int group = gpu::wave_shfl(static_cast<int>(threadIdx.x) / kWarpGroup, 0);
    if (group == 0) {
      gemm_mixed::give_registers<Tile::kProducerRegisters>();
      const HeadRows block = shared.block;
      const QueryTiles tiles = shared.tiles;
      const size_t head = block.flat(shape, 1, 0);
      const size_t tiles_of_head = padded / Tile::kQueries;
      if (threadIdx.x == 0) copy_queries(shared, maps, tiles, block, head * padded);
      if (threadIdx.x == kLanes)
        send_grad_q(shared, sums + head * tiles_of_head * sizeof shared.grad_q / sizeof(float),
                    counts + 1 + head * tiles_of_head, tiles, static_cast<unsigned>(block.tile));
    } else {
      gemm_mixed::take_registers<Tile::kConsumerRegisters>();
      using Consumer = BackwardConsumer<Tile>;
      using OfQueries = typename Tile::OfQueries;
      Consumer own(shared, shape, group - 1);
      typename Consumer::Sums grad = {}, grad_pair = {};
      // P of this tile from its scores; the next tile's scores, where they are begun here.
      const auto add_tile = [&](auto is_masked, auto is_ahead, int turn,
                                typename Consumer::Products& weights) {
        constexpr bool masked = decltype(is_masked)::value, ahead = decltype(is_ahead)::value;
        constexpr bool early = Tile::kHasRoomForBoth && !masked;
        const int stage = stage_of<Tile>(turn);
        auto& slope_boxes = shared.slopes[turn % 2];
        typename Consumer::Products slopes;
        unsigned held_weights[Tile::kQueries / 16][4], held_slopes[Tile::kQueries / 16][4];
        const auto begin_grad_v = [&] {
          hold(held_weights, weights);
          gemm_mixed::begin_wgmma();
          begin_values<OfQueries>(grad_pair, held_weights, shared.grad_out[stage]);
        };
        own.template begin_slopes<masked>(slopes, grad_pair, turn);
        own.template weigh<masked>(weights, turn);
        if constexpr (early) begin_grad_v();
        gemm_mixed::wait_for_wgmma<early ? 1 : 0>();  // grad_P is complete
        own.template weigh_slopes<masked>(slopes, weights, turn);
        hold(held_slopes, slopes);
        float part[1][8][4] = {};
        bool were_special = false;
        if (masked &&
            shape.causal) {  // nobody multiplies queries and keys behind the first barrier
          own.take_out(grad, shared.q[stage], turn);
          were_special = own.take_out_of_keys(part, turn);
        }
        if constexpr (!early) begin_grad_v();
        // exercise: the slopes to where both groups read them, grad_k's product, and the part of
        // grad_q, beside which the next tile's scores begin (about 11 lines)
        store_slopes(slope_boxes, own.row, held_slopes);
        gemm_mixed::begin_wgmma();
        begin_values<OfQueries>(grad, held_slopes, shared.q[stage]);
        Consumer::Threads::sync();  // all slopes are there; nobody multiplies those before
        gemm_mixed::begin_wgmma();
        begin_part<Tile>(part, slope_boxes[Tile::queries_of(own.number)],
                         shared.k[Tile::columns_of(own.number)], masked);
        gemm_mixed::wait_for_wgmma<1>();  // grad_k and grad_v have this tile's share
        if (threadIdx.x % kWarpGroup == 0) shared.empty[stage].arrive();
        if constexpr (ahead) own.begin_scores(weights, turn + 1);
        gemm_mixed::wait_for_wgmma<ahead ? 1 : 0>();  // the part of grad_q is complete
        own.hand_over(part, turn);
        // end exercise
        if constexpr (ahead) gemm_mixed::wait_for_wgmma<0>();
        if constexpr (masked) own.bring_back_keys(were_special, maps);
      };

      shared.full_k.wait(0), shared.full_v.wait(0);  // the block's keys and values are complete
      const QueryTiles& tiles = shared.tiles;
      if (tiles.unmasked > 0) {
        typename Consumer::Products weights;
        own.begin_scores(weights, 0);
        gemm_mixed::wait_for_wgmma<0>();
        GPU_ROLLED
        for (int turn = 0; turn < tiles.unmasked - 1; ++turn)
          add_tile(std::false_type{}, std::true_type{}, turn, weights);
        add_tile(std::false_type{}, std::false_type{}, tiles.unmasked - 1, weights);
      }
      GPU_ROLLED
      for (int turn = tiles.unmasked; turn < tiles.count; ++turn) {
        typename Consumer::Products weights;
        own.begin_scores(weights, turn);
        gemm_mixed::wait_for_wgmma<0>();
        add_tile(std::true_type{}, std::false_type{}, turn, weights);
      }
      Consumer::Threads::sync();  // nobody multiplies keys and values: their tiles take the output
      own.store(grad_k, shared.k, grad, scale), own.store(grad_v, shared.v, grad_pair, 1);
    }
  }
}

// The three launches, with memory for data, the sums of grad_q, and how many blocks have begun and
// have added to each tile.
template <class Tile>
static void launch_tile(const Bf16View& grad_q, const Bf16View& grad_k, const Bf16View& grad_v,
                        const ConstBf16View& grad_out, const ConstBf16View& out, const float* lse,
                        const ConstBf16View& q, const ConstBf16View& k, const ConstBf16View& v,
                        const Problem& p, float* memory, hipStream_t stream) {
  const size_t padded = padded_queries(p), tiles = gpu::ceil_div(p.Tk, Tile::kKeys);
  auto* const data = reinterpret_cast<QueryData*>(memory);
  float* const sums = memory + memory_of_flash_bf16(p);
  const size_t queries = p.heads() * padded, tiles_of_queries = queries / Tile::kQueries;
  auto* const counts = reinterpret_cast<unsigned*>(sums + queries * Tile::kDepth);
  HIP_CHECK(hipMemsetAsync(counts, 0, (1 + tiles_of_queries) * sizeof(unsigned), stream));
  launch_prepare<true>(data, lse, grad_out, out, p, stream);

  constexpr size_t kRowOfData = 32;  // floats: 16 queries
  const BackwardMaps maps{
      head_map(q, p, p.Tq, Tile::kQueries), head_map(grad_out, p, p.Tq, Tile::kQueries),
      head_map(k, p, p.Tk, Tile::kKeys), head_map(v, p, p.Tk, Tile::kKeys),
      gemm_mixed::tensor_map(memory, queries / 16, kRowOfData, Tile::kQueries / 16)};
  constexpr size_t kCache = size_t{16} << 20;  // bytes of it for what blocks read and add to
  const size_t bytes_of_head = padded * Tile::kDepth * (2 * sizeof(bfloat16) + sizeof(float));
  const size_t together = std::clamp(kCache / bytes_of_head, size_t{1}, p.heads());
  constexpr size_t kBytes = sizeof(BackwardShared<Tile>) + gemm_mixed::kBoxAlignment;
  gpu::allow_shared_bytes(flash_wgmma_backward<Tile>, kBytes);
  LAUNCH_ON(stream, (flash_wgmma_backward<Tile>), static_cast<unsigned>(tiles * p.heads()),
            unsigned{Tile::kThreads}, kBytes, grad_k, grad_v, sums, counts, maps,
            BlockOrder{static_cast<unsigned>(p.heads()), static_cast<unsigned>(together)}, p.scale,
            static_cast<unsigned>(padded), sizes_of(p, tiles));
  launch_grad_q<Tile>(grad_q, sums, p, stream);
}

// What the TMA can't copy is left to flash_bf16: rows that do not begin at multiples of 16 bytes.
void launch_flash_wgmma(const Bf16View& grad_q, const Bf16View& grad_k, const Bf16View& grad_v,
                        const ConstBf16View& grad_out, const ConstBf16View& out, const float* lse,
                        const ConstBf16View& q, const ConstBf16View& k, const ConstBf16View& v,
                        const Problem& p, float* memory, hipStream_t stream) {
  check_bf16(p, kMostBf16Depth);
  if (p.heads() * p.D == 0) return;
  const bool suits = p.Tq > 0 && p.Tk > 0 &&
                     have_aligned_rows({grad_q, grad_k, grad_v, grad_out, out, q, k, v}, p.D);
  const auto launch = !suits      ? launch_flash_bf16
                      : p.D <= 64 ? launch_tile<SmallHeads>
                                  : launch_tile<LargeHeads>;
  launch(grad_q, grad_k, grad_v, grad_out, out, lse, q, k, v, p, memory, stream);
}

#else

void launch_flash_wgmma(const Bf16View&, const Bf16View&, const Bf16View&, const ConstBf16View&,
                        const ConstBf16View&, const float*, const ConstBf16View&,
                        const ConstBf16View&, const ConstBf16View&, const Problem&, float*,
                        hipStream_t) {
  throw std::runtime_error("flash_wgmma needs sm_90");
}

#endif

}  // namespace attention_backward
