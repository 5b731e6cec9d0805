// flash_bf16: the products of a tile on matrix units.
#include "common/gpu.h"
#include "stage7_transformer/04_attention/attention.h"
#include "stage7_transformer/04_attention/bf16.h"
#include "stage7_transformer/04_attention/detail/finite.h"
#include "stage7_transformer/04_attention/detail/forward_tiles_sm80.h"
#include "stage7_transformer/04_attention/detail/products_sm80.h"
#include "stage7_transformer/04_attention/detail/running_softmax_sm80.h"
#include "stage7_transformer/04_attention/detail/sizes_sm80.h"
#include "stage7_transformer/04_attention/detail/special_sm80.h"
#include "stage7_transformer/04_attention/detail/store_sm80.h"

namespace attention {

#if !defined(GPU_BACKEND_HIP)

// out = softmax(scale Q K^T) V      Q, out (B,H,Tq,D)  K, V (B,H,Tk,D)
// lse = log sum of exp(scale Q K^T)       lse (B,H,Tq), may be null
// Fixes : the fp32 kernels leave the matrix units idle.
// Idea  : scores leave a multiplication in the very registers from which the next one takes its
//         weights; K and V come through a ring of tiles, and one is under way while one is used.
// Thread: warp w owns kWarpQueries of the block's kQueries queries, its lanes as mma.sync says.
// Costs : 2 barriers per tile of keys; one tile of Q and kStages of K or V in shared memory; out
//         and a tile's scores in registers. Twice all of it if sums are not finite (see finite.h).
template <class Tile, bool kAligned>
static __global__ void GPU_LAUNCH_BOUNDS(Tile::kThreads, Tile::kBlocks)
    flash_bf16_forward(Bf16View out, float* lse, ConstBf16View q, ConstBf16View k, ConstBf16View v,
                       Sizes shape) {
  if constexpr (gemm_mixed::kHaveMma) {
    constexpr int kDepth = Tile::kDepth, kKeys = Tile::kKeys, kStages = Tile::kStages;
    constexpr int kChunks = Tile::kChunks, kThreads = Tile::kThreads;
    constexpr int kTiles = Tile::kWarpQueries / 16;  // of a warp
    constexpr int kSteps = kDepth / 16;              // of a product along the depth
    DYNAMIC_SHARED(uint4, queries);
    uint4* ring = queries + Tile::kQueries * kChunks;

    const HeadRows block(shape);
    // The last queries see the most keys: their blocks come first.
    const int first = (static_cast<int>(shape.tiles) - 1 - block.tile) * Tile::kQueries;
    const int rows = min(shape.Tq - first, Tile::kQueries);
    const int keys = visible_keys(first + rows, shape);
    const ChunkLoader<Tile::kQueries, kDepth, kThreads, kAligned> q_loader(
        block.row(q, first), q.stride_row, rows, shape.D);
    const ChunkLoader<kKeys, kDepth, kThreads, kAligned> k_loader(block.row(k, 0), k.stride_row,
                                                                  keys, shape.D);
    const ChunkLoader<kKeys, kDepth, kThreads, kAligned> v_loader(block.row(v, 0), v.stride_row,
                                                                  keys, shape.D);
    // The ring is filled with K's first tile, V's first, K's second, V's second, ...
    AsyncCopies copies;
    int filling, reading;
    const auto fill_next = [&](bool values, int key) {
      uint4* slot = ring + filling * kKeys * kChunks;
      if (values)
        v_loader.begin(slot, key, copies);
      else
        k_loader.begin(slot, key, copies);
      copies.end_group();
      filling = filling + 1 == kStages ? 0 : filling + 1;
    };
    const auto read_next = [&] {
      uint4* slot = ring + reading * kKeys * kChunks;
      reading = reading + 1 == kStages ? 0 : reading + 1;
      return slot;
    };

    const int warp_row = static_cast<int>(threadIdx.x) / kLanes * Tile::kWarpQueries;
    uint4* own = queries + warp_row * kChunks;  // the warp's
    // All of the warp's queries see that many keys, as far as there is a mask to spare.
    const int unmasked = visible_keys(first + warp_row + 1, shape);
    const int seen_by_all = visible_keys(first + 1, shape);
    float sums[kTiles][kDepth / 8][4];
    RunningSoftmax<kTiles> softmax;
    unsigned held[Tile::kHoldQueries ? kSteps : 1][kTiles][4];

    q_loader.begin(queries, 0, copies);
    for (bool careful = false, again = true; again; careful = true) {
      filling = reading = 0;
      clear(sums);
      softmax = {};
      GPU_UNROLL
      for (int stage = 0; stage < kStages - 1; ++stage)
        fill_next(stage % 2 == 1, stage / 2 * kKeys);
      if constexpr (Tile::kHoldQueries) {
        copies.wait<kStages - 2>();
        __syncthreads();  // the queries are complete
        GPU_UNROLL
        for (int step = 0; step < kSteps; ++step) {
          GPU_UNROLL
          for (int i = 0; i < kTiles; ++i)
            load_rows<kChunks>(held[step][i], own + 16 * i * kChunks, step);
        }
      }
      for (int key = 0; key < keys; key += kKeys) {
        copies.wait<kStages - 2>();
        __syncthreads();  // the tile of K is complete, and no warp reads the one before it
        fill_next(kStages % 2 == 0, key + (kStages - 1) / 2 * kKeys);
        const uint4* key_tile = read_next();
        float scores[kTiles][kKeys / 8][4] = {};
        if constexpr (Tile::kHoldQueries) {
          GPU_UNROLL
          for (int step = 0; step < kSteps; ++step) {
            GPU_UNROLL
            for (int pair = 0; pair < kKeys / 16; ++pair) {
              unsigned b[4];
              load_columns<kChunks>(b, key_tile + 16 * pair * kChunks, step);
              multiply_pair(scores, held[step], b, pair);
            }
          }
        } else {
          multiply_rows<kChunks>(scores, own, key_tile);
        }
        if (key + kKeys > unmasked) mask<false>(scores, first + warp_row, key, shape, kNone);
        softmax.add(scores, sums, shape.unit);

        copies.wait<kStages - 2>();
        __syncthreads();  // the tile of V is complete, and no warp reads that of K any more
        fill_next(kStages % 2 == 1, key + kStages / 2 * kKeys);
        uint4* value_tile = read_next();
        if (careful && key + kKeys > seen_by_all)
          take_out_special<false, kKeys, BlockThreads<kThreads>>(sums, value_tile, first + warp_row,
                                                                 key, shape);
        add_weighted(sums, scores, value_tile);
      }
      copies.wait<0>();
      const bool finite = careful || are_finite(sums);
      again = __syncthreads_or(!finite) != 0;  // no copy is under way: queries' tile takes output
    }
    softmax.finish();
    float factors[kTiles][2];
    GPU_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      GPU_UNROLL
      for (int half = 0; half < 2; ++half) {
        const float sum = softmax.sum[i][half];
        factors[i][half] = sum == 0 ? 0 : 1 / sum;  // 0: no key is visible
        const int row = warp_row + 16 * i + 8 * half + warp_lane() / 4;
        if (lse != nullptr && warp_lane() % 4 == 0 && row < rows)
          lse[block.flat(shape, shape.Tq, first + row)] =
              (softmax.shift[i][half] + log2f(sum)) * kLogTwo;
      }
    }
    store_chunks<kAligned>(block.row(out, first), out.stride_row, shape.D, rows, queries, warp_row,
                           sums, factors);
  }
}

template <class Tile, bool kAligned>
static void launch_tile(const Bf16View& out, float* lse, const ConstBf16View& q,
                        const ConstBf16View& k, const ConstBf16View& v, const Problem& problem,
                        hipStream_t stream) {
  const size_t tiles = gpu::ceil_div(problem.Tq, Tile::kQueries);
  const Sizes shape = sizes_of(problem, tiles);
  gpu::allow_shared_bytes(flash_bf16_forward<Tile, kAligned>, Tile::kSharedBytes);
  LAUNCH_ON(stream, (flash_bf16_forward<Tile, kAligned>),
            static_cast<unsigned>(tiles * problem.H * problem.B),
            static_cast<unsigned>(Tile::kThreads), Tile::kSharedBytes, out, lse, q, k, v, shape);
}

// The best tile for heads of up to kDepth numbers.
template <int kDepth>
static void launch_depth(const Bf16View& out, float* lse, const ConstBf16View& q,
                         const ConstBf16View& k, const ConstBf16View& v, const Problem& problem,
                         hipStream_t stream) {
  const bool aligned = have_aligned_rows({out, q, k, v}, problem.D);
  using Large = typename Bf16Tiles<kDepth>::Large;
  using Small = typename Bf16Tiles<kDepth>::Small;
  const size_t blocks = gpu::ceil_div(problem.Tq, Large::kQueries) * problem.H * problem.B;
  if (!aligned)
    launch_tile<Small, false>(out, lse, q, k, v, problem, stream);
  else if (blocks < gpu::multiprocessors() || Large::kSharedBytes > gpu::max_shared_bytes())
    launch_tile<Small, true>(out, lse, q, k, v, problem, stream);
  else
    launch_tile<Large, true>(out, lse, q, k, v, problem, stream);
}

void launch_flash_bf16(const Bf16View& out, float* lse, const ConstBf16View& q,
                       const ConstBf16View& k, const ConstBf16View& v, const Problem& p, float*,
                       hipStream_t stream) {
  check_bf16(p, kMostBf16Depth);
  if (p.heads() * p.Tq * p.D == 0) return;
  with_depth<kMostBf16Depth>(
      p.D, [&](auto depth) { launch_depth<depth()>(out, lse, q, k, v, p, stream); });
}

#else

void launch_flash_bf16(const Bf16View&, float*, const ConstBf16View&, const ConstBf16View&,
                       const ConstBf16View&, const Problem&, float*, hipStream_t) {
  refuse_bf16();
}

#endif

}  // namespace attention
