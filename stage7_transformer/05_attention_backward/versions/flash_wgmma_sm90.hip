// flash_wgmma: five products of each pair on sm_90's matrix units; blocks add grad_q in turn.
#include <algorithm>

#include "common/gpu.h"
#include "stage7_transformer/04_attention/bf16.h"
#include "stage7_transformer/04_attention/detail/store_sm80.h"
#include "stage7_transformer/05_attention_backward/detail/wgmma_backward_sm90.h"

namespace attention_backward {

#if !defined(GPU_BACKEND_HIP)

// grad_k = scale dS^T Q   grad_v = P^T grad_out   sums of grad_q += dS K, for versions/grad_q_sm90.hip
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
    using Consumers = ConsumerThreads<Tile>;
    DYNAMIC_SHARED(unsigned char, dynamic);
    auto& shared = gemm_mixed::aligned_shared<BackwardShared<Tile>>(dynamic);
    if (threadIdx.x == 0) {
      shared.init();
      shared.number = atomicAdd(counts, 1u);  // in the order in which blocks begin
    }
    __syncthreads();  // every thread and the TMA know the barriers and the number

    const HeadRows block = order.place(shared.number, shape);
    const auto tiles = QueryTiles::of(block, shape, Tile{});
    const int first = tiles.first_key;
    const int group = gpu::wave_shfl(static_cast<int>(threadIdx.x) / kWarpGroup, 0);
    if (group == 0) {
      gemm_mixed::give_registers<Tile::kProducerRegisters>();
      const size_t head = block.flat(shape, 1, 0);
      const size_t tiles_of_head = padded / Tile::kQueries;
      if (threadIdx.x == 0) copy_queries(shared, maps, tiles, block, head * padded);
      if (threadIdx.x == kLanes)
        send_grad_q(shared, sums + head * tiles_of_head * sizeof shared.grad_q / sizeof(float),
                    counts + 1 + head * tiles_of_head, tiles, static_cast<unsigned>(block.tile));
    } else {
      gemm_mixed::take_registers<Tile::kConsumerRegisters>();
      const int consumer = group - 1, own = consumer * Tile::kOwn;
      const int warp_row = static_cast<int>(threadIdx.x) % kWarpGroup / kLanes * 16;
      const bool leads = threadIdx.x % kWarpGroup == 0;
      float grad[1][Tile::kDepth / 8][4] = {}, grad_pair[1][Tile::kDepth / 8][4] = {};
      unsigned loads_of_k = 0;

      using Scores = float[1][Tile::kQueries / 8][4];
      const auto begin_scores = [&](Scores& weights, int turn) {
        const int stage = stage_of<Tile>(turn);
        shared.full_q[stage].wait(parity_of<Tile>(turn));
        gemm_mixed::begin_wgmma();
        begin_products<Tile>(weights, shared.k, own, shared.q[stage]);
      };
      const auto add_tile = [&](auto is_masked, auto is_ahead, int turn, Scores& weights) {
        constexpr bool masked = decltype(is_masked)::value, ahead = decltype(is_ahead)::value;
        const int stage = stage_of<Tile>(turn), query = tiles.tile(turn) * Tile::kQueries;
        auto& q = shared.q[stage];
        auto& grad_out = shared.grad_out[stage];
        const auto take_out = [&](auto& to, auto& boxes) {
          GPU_UNROLL
          for (int box = 0; box < Tile::kBoxes; ++box)
            take_out_special<true, Tile::kQueries, Consumers>(
                reinterpret_cast<float(*)[1][8][4]>(to)[box],
                reinterpret_cast<uint4*>(boxes[box]), first + own + warp_row, query, shape);
        };
        Scores slopes;
        unsigned held_weights[Tile::kQueries / 16][4], held_slopes[Tile::kQueries / 16][4];
        if constexpr (masked) {
          shared.full_grad_out[stage].wait(parity_of<Tile>(turn));
          // Special elements of grad_out may go: the query's delta is not finite then.
          if (shape.causal) take_out(grad_pair, grad_out);
        }
        if constexpr (masked || !Tile::kAhead) begin_scores(weights, turn);
        shared.full_grad_out[stage].wait(parity_of<Tile>(turn));
        gemm_mixed::begin_wgmma();
        begin_products<Tile>(slopes, shared.v, own, grad_out);
        if constexpr (masked || !Tile::kAhead)
          gemm_mixed::wait_for_wgmma<1>();  // the scores are complete
        for_each_column(weights, shared.data[stage], [&](float& weight, const QueryData& of) {
          weight = gpu::exp2_flushed(fmaf(weight, shape.unit, -of.shift));
        });
        if constexpr (masked) mask<true>(weights, first + own + warp_row, query, shape, 0);
        if constexpr (Tile::kEarly && !masked) {
          hold(held_weights, weights);
          gemm_mixed::begin_wgmma();
          begin_values<typename Tile::OfQueries>(grad_pair, held_weights, grad_out);
          gemm_mixed::wait_for_wgmma<1>();
        } else {
          gemm_mixed::wait_for_wgmma<0>();  // the products with the values, too
        }
        for_each_column(slopes, shared.data[stage],
                        [](float& slope, const QueryData& of) { slope -= of.delta; });
        multiply_each(slopes, weights);
        if constexpr (masked) mask<true>(slopes, first + own + warp_row, query, shape, 0);
        if constexpr (!Tile::kEarly || masked) hold(held_weights, weights);
        hold(held_slopes, slopes);
        auto& slope_boxes = shared.slopes[turn % 2];
        auto& keys = shared.k[Tile::columns_of(consumer)];
        float part[1][8][4] = {};
        bool cleaned = false;
        if constexpr (masked) {
          store_slopes(slope_boxes, own + warp_row, held_slopes);
          Consumers::sync();
          if (shape.causal) {
            take_out(grad, q);
            cleaned = take_out_special<false, Tile::kKeys, OwnersOfColumns<Tile>>(
                part, reinterpret_cast<uint4*>(keys),
                query + Tile::queries_of(consumer) * 64 + warp_row, first, shape);
          }
        }
        if constexpr (!Tile::kEarly || masked) {
          gemm_mixed::begin_wgmma();
          begin_values<typename Tile::OfQueries>(grad_pair, held_weights, grad_out);
        }
        if constexpr (!masked) store_slopes(slope_boxes, own + warp_row, held_slopes);
        gemm_mixed::begin_wgmma();
        begin_values<typename Tile::OfQueries>(grad, held_slopes, q);
        if constexpr (!masked)
          Consumers::sync();  // the slopes of all keys are there; nobody multiplies those before
        gemm_mixed::begin_wgmma();
        begin_part<Tile>(part, slope_boxes[Tile::queries_of(consumer)], keys, masked);
        gemm_mixed::wait_for_wgmma<1>();
        if (leads) shared.empty[stage].arrive();
        if constexpr (ahead) {
          begin_scores(weights, turn + 1);
          gemm_mixed::wait_for_wgmma<1>();
        } else {
          gemm_mixed::wait_for_wgmma<0>();
        }
        shared.empty_grad_q.wait(turn % 2 ^ 1);
        store_part(shared.grad_q[consumer], part);
        gemm_mixed::fence_for_tma();
        gpu::wave_sync();
        if (warp_lane() == 0) shared.full_grad_q.arrive();
        if constexpr (ahead) gemm_mixed::wait_for_wgmma<0>();
        if constexpr (masked) {
          if (!Consumers::any(cleaned)) return;  // nobody multiplies keys
          if (threadIdx.x == Tile::kLeader) load_keys(shared, maps, tiles, block);
          shared.full_k.wait(++loads_of_k % 2);  // they are as they were
        }
      };

      shared.full_k.wait(0), shared.full_v.wait(0);
      int plain = 0;
      while (plain < tiles.count && !tiles.has_hidden(plain, shape, Tile{})) ++plain;
      if constexpr (Tile::kAhead) {
        if (plain > 0) {
          Scores weights;
          begin_scores(weights, 0);
          gemm_mixed::wait_for_wgmma<0>();
          GPU_ROLLED
          for (int turn = 0; turn < plain - 1; ++turn)
            add_tile(std::false_type{}, std::true_type{}, turn, weights);
          add_tile(std::false_type{}, std::false_type{}, plain - 1, weights);
        }
      } else {
          GPU_ROLLED
        for (int turn = 0; turn < plain; ++turn) {
          Scores weights;
          add_tile(std::false_type{}, std::false_type{}, turn, weights);
        }
      }
          GPU_ROLLED
      for (int turn = plain; turn < tiles.count; ++turn) {
        Scores weights;
        add_tile(std::true_type{}, std::false_type{}, turn, weights);
      }

      Consumers::sync();  // nobody multiplies keys and values: their tiles take the output
      const auto store = [&](const Bf16View& to, auto& boxes, const auto& of, float factor) {
        const float factors[1][2] = {{factor, factor}};
        GPU_UNROLL
        for (int box = 0; box < Tile::kBoxes; ++box)
          store_chunks<true>(block.row(to, first) + 64 * box, to.stride_row, shape.D - 64 * box,
                             shape.Tk - first, reinterpret_cast<uint4*>(boxes[box]),
                             own + warp_row, reinterpret_cast<const float(*)[1][8][4]>(of)[box],
                             factors);
      };
      store(grad_k, shared.k, grad, scale), store(grad_v, shared.v, grad_pair, 1);
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
  constexpr size_t kCache = size_t{32} << 20;  // bytes of it for what blocks read and add to
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
  const auto launch = !suits        ? launch_flash_bf16
                      : p.D <= 64   ? launch_tile<SmallHeads>
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
