// flash_bf16: the products of the backward pass on matrix units.
#include "common/gpu.h"
#include "stage7_transformer/04_attention/bf16.h"
#include "stage7_transformer/04_attention/detail/finite.h"
#include "stage7_transformer/04_attention/detail/products_sm80.h"
#include "stage7_transformer/04_attention/detail/sizes_sm80.h"
#include "stage7_transformer/04_attention/detail/special_sm80.h"
#include "stage7_transformer/04_attention/detail/store_sm80.h"
#include "stage7_transformer/05_attention_backward/detail/backward_tiles_sm80.h"

namespace attention_backward {

#if !defined(GPU_BACKEND_HIP)

// grad_k = scale dS^T Q, grad_v = P^T grad_out    a = K, pair_a = V           b = Q
//                                                                             pair_b = grad_out
// grad_q = scale dS K                             a = Q, pair_a = grad_out    b = K, pair_b = V
//                                Q, grad_out (B,H,Tq,D)  K, V (B,H,Tk,D)  data (B,H,padded)
// Fixes : the kernels for float leave the matrix units idle.
// Idea  : the two passes are one: a b^T and pair_a pair_b^T make dS, or its transpose, in the very
//         registers from which it multiplies b. Both are computed twice, so that nothing is atomic.
// Thread: warp w owns kWarpRows of the block's kRows rows of a, its lanes as mma.sync says.
// Costs : 1 barrier per tile of b; 2 tiles of a and 2 kStages of b in shared memory; the gradients
//         and a tile's P and dS in registers. Twice all of it if sums are not finite.
template <class Tile, bool kOfKeys, bool kAligned>
static __global__ void GPU_LAUNCH_BOUNDS(Tile::kThreads, Tile::kBlocks)
    flash_bf16_backward(Bf16View grad_a, Bf16View grad_pair_a, const QueryData* data,
                        ConstBf16View a, ConstBf16View pair_a, ConstBf16View b,
                        ConstBf16View pair_b, float scale, unsigned padded, Sizes shape) {
  if constexpr (gemm_mixed::kHaveMma) {
    constexpr int kDepth = Tile::kDepth, kColumns = Tile::kColumns, kStages = Tile::kStages;
    constexpr int kChunks = Tile::kChunks, kThreads = Tile::kThreads, kRows = Tile::kRows;
    constexpr int kTiles = Tile::kWarpRows / 16;  // of a warp
    DYNAMIC_SHARED(uint4, tile_a);
    uint4* tile_pair_a = tile_a + kRows * kChunks;
    uint4* ring = tile_pair_a + kRows * kChunks;

    // The first keys are seen by most queries, and the last queries see most keys.
    const HeadRows block(shape);
    const int tile = kOfKeys ? block.tile : static_cast<int>(shape.tiles) - 1 - block.tile;
    const int first = tile * kRows;
    const int rows = min((kOfKeys ? shape.Tk : shape.Tq) - first, kRows);
    // The columns that have anything to do with these rows.
    const int end = kOfKeys ? shape.Tq : visible_keys(first + rows, shape);
    const int unseen = kOfKeys && shape.causal ? max(first + shape.Tq - shape.Tk, 0) : 0;
    const int begin = unseen / kColumns * kColumns;

    using LoaderA = ChunkLoader<kRows, kDepth, kThreads, kAligned>;
    using LoaderB = ChunkLoader<kColumns, kDepth, kThreads, kAligned>;
    const LoaderB b_loader(block.row(b, 0), b.stride_row, end, shape.D);
    const LoaderB pair_b_loader(block.row(pair_b, 0), pair_b.stride_row, end, shape.D);
    data += block.flat(shape, static_cast<int>(padded), 0);
    AsyncCopies copies;
    const auto fill = [&](int stage, int column) {
      uint4* to = ring + stage * Tile::kStageChunks;
      b_loader.begin(to, column, copies);
      pair_b_loader.begin(to + kColumns * kChunks, column, copies);
      if constexpr (kOfKeys) {
        const int chunk = static_cast<int>(threadIdx.x);
        if (chunk < Tile::kDataChunks)
          copies.begin(to + 2 * kColumns * kChunks + chunk, data + column + 2 * chunk,
                       column < end);
      }
      copies.end_group();
    };

    const int warp_row = static_cast<int>(threadIdx.x) / kLanes * Tile::kWarpRows;
    float grad[kTiles][kChunks][4], grad_pair[kOfKeys ? kTiles : 1][kChunks][4];
    QueryData of_row[kOfKeys ? 1 : kTiles][2];
    if constexpr (!kOfKeys) load_rows_data(of_row, data + (first + warp_row));

    LoaderA(block.row(a, first), a.stride_row, rows, shape.D).begin(tile_a, 0, copies);
    LoaderA(block.row(pair_a, first), pair_a.stride_row, rows, shape.D)
        .begin(tile_pair_a, 0, copies);
    const auto walk = [&](bool careful) {
      clear(grad), clear(grad_pair);
      GPU_UNROLL
      for (int stage = 0; stage < kStages - 1; ++stage) fill(stage, begin + stage * kColumns);
      int filling = kStages - 1, reading = 0;
      for (int column = begin; column < end; column += kColumns) {
        copies.wait<kStages - 2>();
        __syncthreads();  // this tile of b is complete, and no warp reads the one before it
        fill(filling, column + (kStages - 1) * kColumns);
        filling = filling + 1 == kStages ? 0 : filling + 1;
        uint4* tile_b = ring + reading * Tile::kStageChunks;
        uint4* tile_pair_b = tile_b + kColumns * kChunks;
        const uint4* column_data = tile_pair_b + kColumns * kChunks + warp_lane() % 4;  // of two
        reading = reading + 1 == kStages ? 0 : reading + 1;

        const bool masked =
            has_hidden<kOfKeys>(shape, first + warp_row, Tile::kWarpRows, column, kColumns);
        const bool cleaned = careful && has_hidden<kOfKeys>(shape, first, kRows, column, kColumns);

        float weights[kTiles][kColumns / 8][4] = {};
        multiply_rows<kChunks>(weights, tile_a + warp_row * kChunks, tile_b);
        for_each_query<kOfKeys>(
            weights, column_data, of_row, [&](float& weight, const QueryData& query) {
              weight = gpu::exp2_flushed(fmaf(weight, shape.unit, -query.shift));
            });
        if (masked) mask<kOfKeys>(weights, first + warp_row, column, shape, 0);
        if constexpr (kOfKeys) {
          // pair_b's special elements may go: the query's delta is not finite then.
          if (cleaned)
            take_out_special<true, kColumns, BlockThreads<kThreads>>(
                grad_pair, tile_pair_b, first + warp_row, column, shape);
          add_weighted<kChunks>(grad_pair, weights, tile_pair_b);
        }
        float products[kTiles][kColumns / 8][4] = {};
        multiply_rows<kChunks>(products, tile_pair_a + warp_row * kChunks, tile_pair_b);
        for_each_query<kOfKeys>(products, column_data, of_row,
                                [](float& slope, const QueryData& query) { slope -= query.delta; });
        multiply_each(weights, products);
        // A hidden pair's product may be NaN: then grad becomes NaN, unless we are careful.
        if (careful && masked) mask<kOfKeys>(weights, first + warp_row, column, shape, 0);
        if (cleaned)
          take_out_special<kOfKeys, kColumns, BlockThreads<kThreads>>(
              grad, tile_b, first + warp_row, column, shape);
        add_weighted<kChunks>(grad, weights, tile_b);
      }

      copies.wait<0>();
    };
    walk(false);
    const bool finite = are_finite(grad) && are_finite(grad_pair);
    if (__syncthreads_or(!finite) != 0) walk(true);  // all that is shared was read
    __syncthreads();  // no copy is under way: tiles of a take the output
    float factors[kTiles][2];
    const auto store = [&](const Bf16View& to, uint4* staged, const auto& sums, float factor) {
      GPU_UNROLL
      for (int i = 0; i < kTiles; ++i) factors[i][0] = factors[i][1] = factor;
      store_chunks<kAligned>(block.row(to, first), to.stride_row, shape.D, rows, staged, warp_row,
                             sums, factors);
    };
    store(grad_a, tile_a, grad, scale);
    if constexpr (kOfKeys) store(grad_pair_a, tile_pair_a, grad_pair, 1);
  }
}

template <class Tile, bool kOfKeys, bool kAligned>
static void launch_pass(const Bf16View& grad_a, const Bf16View& grad_pair_a, const QueryData* data,
                        const ConstBf16View& a, const ConstBf16View& pair_a, const ConstBf16View& b,
                        const ConstBf16View& pair_b, const Problem& problem, hipStream_t stream) {
  const size_t tiles = gpu::ceil_div(kOfKeys ? problem.Tk : problem.Tq, Tile::kRows);
  if (tiles == 0) return;
  gpu::allow_shared_bytes(flash_bf16_backward<Tile, kOfKeys, kAligned>, Tile::kSharedBytes);
  LAUNCH_ON(stream, (flash_bf16_backward<Tile, kOfKeys, kAligned>),
            static_cast<unsigned>(tiles * problem.H * problem.B),
            static_cast<unsigned>(Tile::kThreads), Tile::kSharedBytes, grad_a, grad_pair_a, data, a,
            pair_a, b, pair_b, problem.scale, static_cast<unsigned>(padded_queries(problem)),
            sizes_of(problem, tiles));
}

// The three launches of the backward pass, with the tiles that suit heads of up to kDepth numbers.
template <int kDepth>
static void launch_depth(const Bf16View& grad_q, const Bf16View& grad_k, const Bf16View& grad_v,
                         const ConstBf16View& grad_out, const ConstBf16View& out, const float* lse,
                         const ConstBf16View& q, const ConstBf16View& k, const ConstBf16View& v,
                         const Problem& problem, QueryData* data, hipStream_t stream) {
  const auto launch = [&](auto of_keys, auto of_queries, auto is_aligned) {
    launch_prepare<is_aligned()>(data, lse, grad_out, out, problem, stream);
    launch_pass<decltype(of_keys), true, is_aligned()>(grad_k, grad_v, data, k, v, q, grad_out,
                                                       problem, stream);
    launch_pass<decltype(of_queries), false, is_aligned()>(grad_q, grad_q, data, q, grad_out, k, v,
                                                           problem, stream);
  };
  using OfKeys = typename Bf16GradientTiles<kDepth>::LargeOfKeys;
  using OfQueries = typename Bf16GradientTiles<kDepth>::LargeOfQueries;
  using Small = typename Bf16GradientTiles<kDepth>::Small;
  if (have_aligned_rows({grad_q, grad_k, grad_v, grad_out, out, q, k, v}, problem.D) &&
      OfKeys::kSharedBytes <= gpu::max_shared_bytes() &&
      OfQueries::kSharedBytes <= gpu::max_shared_bytes())
    launch(OfKeys{}, OfQueries{}, std::true_type{});
  else
    launch(Small{}, Small{}, std::false_type{});
}

void launch_flash_bf16(const Bf16View& grad_q, const Bf16View& grad_k, const Bf16View& grad_v,
                       const ConstBf16View& grad_out, const ConstBf16View& out, const float* lse,
                       const ConstBf16View& q, const ConstBf16View& k, const ConstBf16View& v,
                       const Problem& p, float* memory, hipStream_t stream) {
  check_bf16(p, kMostBf16Depth);
  if (p.heads() * p.D == 0) return;
  with_depth<kMostBf16Depth>(p.D, [&](auto depth) {
    launch_depth<depth()>(grad_q, grad_k, grad_v, grad_out, out, lse, q, k, v, p,
                          reinterpret_cast<QueryData*>(memory), stream);
  });
}

#else

void launch_flash_bf16(const Bf16View&, const Bf16View&, const Bf16View&, const ConstBf16View&,
                       const ConstBf16View&, const float*, const ConstBf16View&,
                       const ConstBf16View&, const ConstBf16View&, const Problem&, float*,
                       hipStream_t) {
  attention::refuse_bf16();
}
#endif

}  // namespace attention_backward
