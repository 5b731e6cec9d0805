// flash: probabilities again from lse, tile by tile.
#include <algorithm>

#include "common/gpu.h"
#include "stage7_transformer/04_attention/problem.h"
#include "stage7_transformer/05_attention_backward/detail/gradient_tiles.h"
#include "stage7_transformer/05_attention_backward/problem.h"

namespace attention_backward {

template <class Tile, bool kAligned, Owns kOwns>
static __device__ void gradient_pass(GradientTiles<Tile>&, const Arrays&, unsigned, size_t);

// Heads up to this keep both sums of a thread in registers; keys of larger ones take two blocks.
constexpr int kBothUpTo = 128;

// grad_q, grad_k, grad_v    kOwn keys or kOwn queries of one head per block.
// Fixes : composed stores Tq x Tk probabilities and as many gradients.
// Idea  : lse and delta of a row are enough to compute its probabilities and their gradients again
//         (Dao: FlashAttention-2, arXiv:2307.08691). Each sum has one owner, so none is atomic.
// Thread: see ScoreTile; blocks of keys come first, then those of queries.
// Costs : 7 products, where 5 would do if blocks added to each other's sums; 3 barriers per tile.
//         Twice all of it if sums are not finite (see finite.h).
template <class Tile, bool kAligned>
static __global__ void GPU_LAUNCH_BOUNDS(Tile::kThreads, Tile::kResidentBlocks)
    flash_backward(Arrays b) {
  DYNAMIC_SHARED(GradientTiles<Tile>, tiles);
  const unsigned heads = static_cast<unsigned>(b.p.B * b.p.H);
  const unsigned of_keys = static_cast<unsigned>(gpu::ceil_div(b.p.Tk, Tile::kOwn));
  unsigned head = blockIdx.x % heads, block = blockIdx.x / heads;
  // Early keys are seen by most queries, and late queries see most keys: they begin first.
  const auto first = [](unsigned number) { return size_t{number} * Tile::kOwn; };
  if constexpr (Tile::kHead <= kBothUpTo) {
    if (block < of_keys)
      return gradient_pass<Tile, kAligned, Owns::keys>(*tiles, b, head, first(block));
    block -= of_keys;
  } else {
    if (block < of_keys)
      return gradient_pass<Tile, kAligned, Owns::only_k>(*tiles, b, head, first(block));
    block -= of_keys;
    if (block < of_keys)
      return gradient_pass<Tile, kAligned, Owns::only_v>(*tiles, b, head, first(block));
    block -= of_keys;
  }
  const unsigned of_queries = static_cast<unsigned>(gpu::ceil_div(b.p.Tq, Tile::kOwn));
  gradient_pass<Tile, kAligned, Owns::queries>(*tiles, b, head, first(of_queries - 1 - block));
}

// The gradients of the rows own0, ... of a head. Scores are made of x, their gradients of y:
//
//                 own x   own y      other x   other y     P (own, other) = exp(own x . other x)
//   Owns queries  q       grad_out   k         v           grad_P = own y . other y
//   Owns keys     k       v          q         grad_out    grad_S = P (grad_P - delta)
//
//   grad own x = scale grad_S (other x)          grad own y = P (other y), of keys only
template <class Tile, bool kAligned, Owns kOwns>
static __device__ inline void gradient_pass(GradientTiles<Tile>& tiles, const Arrays& b,
                                            unsigned head, size_t own0) {
  constexpr int kRows = Tile::kRows, kColumns = Tile::kColumns, kOut = Tile::kOut;
  constexpr bool kQueries = kOwns == Owns::queries, kX = kOwns != Owns::only_v;
  constexpr bool kY = kOwns == Owns::keys || kOwns == Owns::only_v;
  const Problem& p = b.p;
  const unsigned H = static_cast<unsigned>(p.H), batch = head / H, of_batch = head % H;
  const ConstView &own_x = kQueries ? b.q : b.k, &own_y = kQueries ? b.grad_out : b.v;
  const ConstView &other_x = kQueries ? b.k : b.q, &other_y = kQueries ? b.v : b.grad_out;
  const size_t own_T = kQueries ? p.Tq : p.Tk, other_T = kQueries ? p.Tk : p.Tq;
  const size_t own1 = own0 + Tile::kOwn < own_T ? own0 + Tile::kOwn : own_T;
  // The others that see or are seen by some own row.
  const size_t begin = kQueries || !p.causal || own0 + p.Tq < p.Tk ? 0 : own0 + p.Tq - p.Tk;
  const size_t end = kQueries ? visible_keys(p, own1 - 1) : p.Tq;

  const Lane lane = lane_of(static_cast<int>(threadIdx.x));
  const int first_row = lane.group * kDown * kRows + lane.row;
  const size_t row0 = own0 + static_cast<size_t>(first_row);
  const size_t wave0 = own0 + first_row_of_wave<Tile>();
  auto next_x =
      loader_of<Tile, Tile::kOther, kAligned>(other_x, batch, of_batch, other_T, p.D, begin);
  auto next_y =
      loader_of<Tile, Tile::kOther, kAligned>(other_y, batch, of_batch, other_T, p.D, begin);
  {
    auto own = loader_of<Tile, Tile::kOwn, kAligned>(own_x, batch, of_batch, own_T, p.D, own0);
    auto own_of_y = loader_of<Tile, Tile::kOwn, kAligned>(own_y, batch, of_batch, own_T, p.D, own0);
    own.load(), next_x.load();
    if constexpr (kX) own_of_y.load();
    own.store(tiles.own_x), next_x.store(tiles.x);
    if constexpr (kX) own_of_y.store(tiles.own_y);
  }
  OfQuery of_row[kRows];
  if constexpr (kQueries) load_queries(of_row, b, head, row0);
  const float scale = p.scale * kLog2e;
  float grad_x[kRows][kOut], grad_y[kRows][kOut];
  const auto walk = [&](bool careful) {
    clear(grad_x), clear(grad_y);
    for (size_t other0 = begin; other0 < end; other0 += Tile::kOther) {
      __syncthreads();  // own rows and the others' x are in shared memory; all else was read
      const Needed needed = needed_of<Tile, kQueries>(p, own0, wave0, other0, careful);
      const bool busy = needed.begin < needed.end;
      float scores[kRows][kColumns] = {};
      next_y.load();
      if (busy)
        add_dots<Tile::kHead>(scores, &tiles.own_x[first_row][0], &tiles.x[lane.column][0], needed);
      next_y.store(tiles.y);
      if constexpr (!kQueries) store_query(tiles, b, head, other0);
      next_x.load();
      __syncthreads();  // the others' y and what belongs to queries are in shared memory
      if (busy) {
        OfQuery of_column[kColumns];
        if constexpr (!kQueries) read_queries(of_column, tiles, lane);
        // exercise: probabilities, their product, gradients of the scores, theirs (about 28 lines)
        GPU_UNROLL
        for (int i = 0; i < kRows; ++i) {
          GPU_UNROLL
          for (int j = 0; j < kColumns; ++j) {
            // Above 0 only by lse's rounding, which exceeds 128 where scores are beyond 1e9.
            const float exponent = scale * scores[i][j] - (kQueries ? of_row[i] : of_column[j]).lse;
            scores[i][j] = gpu::exp2_flushed(exponent > 0 ? 0 : exponent);
          }
        }
        if (!needed.whole) {
          GPU_UNROLL
          for (int i = 0; i < kRows; ++i) {
            GPU_UNROLL
            for (int j = 0; j < kColumns; ++j) {
              const size_t row = row0 + static_cast<size_t>(i * kDown);
              const size_t column = other0 + static_cast<size_t>(lane.column + j * kAcross);
              const size_t query = kQueries ? row : column, key = kQueries ? column : row;
              const bool seen = query < p.Tq && key < visible_keys(p, query);
              scores[i][j] = seen ? scores[i][j] : 0;
            }
          }
        }
        if constexpr (kY) {
          store_lines<Tile>(tiles.lines, lane, scores);
          gpu::wave_sync();  // the probabilities of this wave's rows are in shared memory
          add_lines<Tile>(grad_y, tiles.lines, tiles.y, lane, needed);
        }
        if constexpr (kX) {
          float slopes[kRows][kColumns] = {};
          add_dots<Tile::kHead>(slopes, &tiles.own_y[first_row][0], &tiles.y[lane.column][0],
                                needed);
          GPU_UNROLL
          for (int i = 0; i < kRows; ++i) {
            GPU_UNROLL
            for (int j = 0; j < kColumns; ++j)
              if (!needed.careful || scores[i][j] != 0)  // an unseen pair's slope may be NaN
                scores[i][j] *= slopes[i][j] - (kQueries ? of_row[i] : of_column[j]).delta;
          }
          gpu::wave_sync();  // this wave has read its probabilities
          store_lines<Tile>(tiles.lines, lane, scores);
          gpu::wave_sync();  // the gradients of this wave's scores are in shared memory
          add_lines<Tile>(grad_x, tiles.lines, tiles.x, lane, needed);
        }
        // end exercise
      }
      __syncthreads();  // the others' x were read
      next_x.store(tiles.x);
    }
  };
  walk(false);
  const bool finite = are_finite(grad_x) && are_finite(grad_y);
  if (__syncthreads_or(!finite) != 0) {  // all that is shared was read
    next_x.rewind(begin), next_y.rewind(begin), next_x.load(), next_x.store(tiles.x);
    walk(true);
  }

  const View& to_x = kQueries ? b.grad_q : b.grad_k;
  if constexpr (kX)
    store_rows<Tile, kAligned>(to_x.head(batch, of_batch), to_x.stride_row, own_T, p.D, own0, lane,
                               grad_x, [&](int) { return p.scale; });
  if constexpr (kY)
    store_rows<Tile, kAligned>(b.grad_v.head(batch, of_batch), b.grad_v.stride_row, own_T, p.D,
                               own0, lane, grad_y, [](int) { return 1.0f; });
}

void launch_flash_behind_delta(const View& grad_q, const View& grad_k, const View& grad_v,
                               const ConstView& grad_out, const ConstView& out, const float* lse,
                               const ConstView& q, const ConstView& k, const ConstView& v,
                               const Problem& p, float* memory, hipStream_t stream) {
  check_backward(grad_q, grad_k, grad_v, grad_out, out, lse, q, k, v, p, memory);
  if (p.heads() == 0 || p.Tq + p.Tk == 0) return;
  bool aligned = true;
  for (const ConstView& view :
       {ConstView(grad_q), ConstView(grad_k), ConstView(grad_v), grad_out, q, k, v})
    aligned &= is_aligned(view, p.D);
  const Arrays all{grad_q, grad_k, grad_v, grad_out, q, k, v, lse, memory, p};
  with_kernel<GradientTiles, GradientCandidates, kLeastUnaligned>(
      p.D, aligned, p.heads(), std::max(p.Tq, p.Tk), [&](auto tile, auto is_aligned) {
        using Tile = decltype(tile);
        constexpr size_t kBytes = sizeof(GradientTiles<Tile>);
        const size_t keys = gpu::ceil_div(p.Tk, Tile::kOwn) * (Tile::kHead <= kBothUpTo ? 1 : 2);
        gpu::allow_shared_bytes(flash_backward<Tile, is_aligned()>, kBytes);
        LAUNCH_ON(stream, (flash_backward<Tile, is_aligned()>),
                  grid_of(p.heads() * (keys + gpu::ceil_div(p.Tq, Tile::kOwn))), Tile::kThreads,
                  kBytes, all);
      });
}

}  // namespace attention_backward
