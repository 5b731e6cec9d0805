// flash: tiles of scores in registers, and no row of them anywhere.
#include <cfloat>

#include "common/gpu.h"
#include "stage7_transformer/04_attention/attention.h"
#include "stage7_transformer/04_attention/detail/choose_tile.h"
#include "stage7_transformer/04_attention/detail/finite.h"
#include "stage7_transformer/04_attention/detail/forward_tiles.h"
#include "stage7_transformer/04_attention/detail/tile.h"
#include "stage7_transformer/04_attention/detail/tile_products.h"
#include "stage7_transformer/04_attention/problem.h"

namespace attention {

// out = softmax(scale Q K^T + mask) V, and lse    kOwn queries of one head per block.
// Fixes : fused reads all keys and values for every 8 queries, and rows must fit shared memory.
// Idea  : of a row only its maximum, its sum and its share of out so far are kept, in registers;
//         where a tile of keys brings a larger maximum they are rescaled (step 3.2's online). The
//         two products are step 2.3's: kRows x kColumns scores, kRows x kOut results a thread.
//         Values travel while scores are computed, the next keys while values are multiplied.
// Thread: see ScoreTile; each of the kAcross lanes of a row has its own part of the row's sum.
// Costs : 2 barriers per tile; K and V once per kOwn queries; no memory for scores. Tiles of keys
//         that no query of the block sees are left out. Twice all of it if sums are not finite.
template <class Tile, bool kAligned>
static __global__ void GPU_LAUNCH_BOUNDS(Tile::kThreads, Tile::kResidentBlocks)
    flash_forward(View out, float* lse, ConstView q, ConstView k, ConstView v, Problem p) {
  constexpr int kRows = Tile::kRows, kColumns = Tile::kColumns, kOut = Tile::kOut;
  DYNAMIC_SHARED(ForwardTiles<Tile>, tiles);
  const unsigned heads = static_cast<unsigned>(p.B * p.H), H = static_cast<unsigned>(p.H);
  const unsigned head = blockIdx.x % heads, batch = head / H, of_batch = head % H;
  // Late queries see most keys: they begin first.
  const size_t query0 = size_t{gridDim.x / heads - 1 - blockIdx.x / heads} * Tile::kOwn;
  const size_t last = (query0 + Tile::kOwn < p.Tq ? query0 + Tile::kOwn : p.Tq) - 1;
  const size_t seen_by_all = visible_keys(p, query0), seen = visible_keys(p, last);
  const Lane lane = lane_of(static_cast<int>(threadIdx.x));
  const int first_row = lane.group * kDown * kRows + lane.row;
  const size_t query = query0 + static_cast<size_t>(first_row);

  // Keys that some query of this wave sees.
  const size_t wave0 = query0 + first_row_of_wave<Tile>(), wave1 = wave0 + rows_of_wave<Tile>() - 1;
  const size_t seen_by_wave = wave0 < p.Tq ? visible_keys(p, wave1 < last ? wave1 : last) : 0;

  auto next_k = loader_of<Tile, Tile::kOther, kAligned>(k, batch, of_batch, p.Tk, p.D, 0);
  auto next_v = loader_of<Tile, Tile::kOther, kAligned>(v, batch, of_batch, p.Tk, p.D, 0);
  {
    auto own_q = loader_of<Tile, Tile::kOwn, kAligned>(q, batch, of_batch, p.Tq, p.D, query0);
    own_q.load();
    next_k.load();
    own_q.store(tiles->q);
    next_k.store(tiles->k);
  }
  const float scale = p.scale * kLog2e;  // powers of 2 instead of e
  float sums[kRows][kOut], max[kRows], sum[kRows];

  for (bool careful = false;; careful = true) {
    clear(sums), clear(sum);
    GPU_UNROLL
    for (int i = 0; i < kRows; ++i) max[i] = -FLT_MAX;  // of no elements, as softmax::nothing()
    for (size_t key0 = 0; key0 < seen; key0 += Tile::kOther) {
      __syncthreads();  // queries and keys are in shared memory; values and probabilities were read
      float scores[kRows][kColumns] = {};
      const bool whole = key0 + Tile::kOther <= seen_by_all;
      const Needed needed{0, rows_left(seen_by_wave, key0, Tile::kOther), whole, careful && !whole};
      if (needed.end > 0)
        add_dots<Tile::kHead>(scores, &tiles->q[first_row][0], &tiles->k[lane.column][0], needed);
      next_v.load();
      if (needed.end > 0) {
        if (!needed.whole) {
          GPU_UNROLL
          for (int i = 0; i < kRows; ++i) {
            const size_t end = visible_keys(p, query + static_cast<size_t>(i * kDown));
            const int left = rows_left(end, key0, Tile::kOther) - lane.column;
            GPU_UNROLL
            for (int j = 0; j < kColumns; ++j)
              scores[i][j] = j * kAcross < left ? scores[i][j] : -INFINITY;
          }
        }
        // exercise: the rows' new maxima, the exponentials, what was rescaled (about 17 lines)
        GPU_UNROLL
        for (int i = 0; i < kRows; ++i) {
          float largest = scores[i][0];
          GPU_UNROLL
          for (int j = 1; j < kColumns; ++j) largest = fmaxf(largest, scores[i][j]);
          const float before = max[i];
          max[i] = fmaxf(before, max_across(largest));
          const float rescale = gpu::exp2_flushed(scale * (before - max[i]));
          float part = 0;
          GPU_UNROLL
          for (int j = 0; j < kColumns; ++j)
            part += scores[i][j] = gpu::exp2_flushed(scale * (scores[i][j] - max[i]));
          sum[i] = sum[i] * rescale + part;
          GPU_UNROLL
          for (int c = 0; c < kOut; ++c) sums[i][c] *= rescale;
        }
        // end exercise
        store_lines<Tile>(tiles->probabilities, lane, scores);
      }
      next_v.store(tiles->v);
      next_k.load();
      __syncthreads();  // values and probabilities are in shared memory; the keys were read
      if (needed.end > 0) add_lines<Tile>(sums, tiles->probabilities, tiles->v, lane, needed);
      next_k.store(tiles->k);
    }
    const bool finite = careful || are_finite(sums);
    if (!__syncthreads_or(!finite)) break;  // all that is shared was read
    next_k.rewind(0), next_v.rewind(0);
    next_k.load();
    next_k.store(tiles->k);
  }

  GPU_UNROLL
  for (int i = 0; i < kRows; ++i) {
    sum[i] = sum_across(sum[i]);
    const size_t row = query + static_cast<size_t>(i * kDown);
    if (lse != nullptr && lane.column == 0 && row < p.Tq) {
      const float value = p.scale * max[i] + logf(sum[i]);
      const bool fits = fabsf(value) < INFINITY;  // else NaN: infinity says that no key is seen
      lse[size_t{head} * p.Tq + row] = sum[i] == 0 ? -INFINITY : fits ? value : NAN;
    }
  }
  store_rows<Tile, kAligned>(out.head(batch, of_batch), out.stride_row, p.Tq, p.D, query0, lane,
                             sums, [&](int i) { return sum[i] == 0 ? 0 : 1 / sum[i]; });
}

void launch_flash(const View& out, float* lse, const ConstView& q, const ConstView& k,
                  const ConstView& v, const Problem& p, float*, hipStream_t stream) {
  check_forward(out, q, k, v, p);
  if (p.heads() * p.Tq == 0) return;
  const bool aligned =
      is_aligned(out, p.D) && is_aligned(q, p.D) && is_aligned(k, p.D) && is_aligned(v, p.D);
  with_kernel<ForwardTiles, ForwardCandidates>(
      p.D, aligned, p.heads(), p.Tq, [&](auto tile, auto is_aligned) {
        using Tile = decltype(tile);
        constexpr size_t kBytes = sizeof(ForwardTiles<Tile>);
        gpu::allow_shared_bytes(flash_forward<Tile, is_aligned()>, kBytes);
        LAUNCH_ON(stream, (flash_forward<Tile, is_aligned()>),
                  grid_of(p.heads() * gpu::ceil_div(p.Tq, Tile::kOwn)), Tile::kThreads, kBytes, out,
                  lse, q, k, v, p);
      });
}

}  // namespace attention
