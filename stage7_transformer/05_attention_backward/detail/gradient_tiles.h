// What flash's backward pass keeps in shared memory, and what a block needs of a tile.
#pragma once

#include "common/gpu.h"
#include "stage7_transformer/04_attention/detail/choose_tile.h"
#include "stage7_transformer/04_attention/detail/finite.h"
#include "stage7_transformer/04_attention/detail/tile.h"
#include "stage7_transformer/04_attention/detail/tile_products.h"
#include "stage7_transformer/05_attention_backward/attention_backward.h"

namespace attention_backward {

using namespace attention;  // its views and tiles

// Everything that a launch reads and writes.
struct Arrays {
  View grad_q, grad_k, grad_v;
  ConstView grad_out, q, k, v;
  const float *lse, *delta;  // (B, H, Tq)
  Problem p;
};

// The block's own rows and a tile of the others: (q, grad_out) and (k, v), or the other way round;
// the scores' lines; lse (for powers of 2) and delta of the others, where these are queries.
template <class Tile>
struct alignas(16) GradientTiles {
  float own_x[Tile::kOwn][Tile::kStride], own_y[Tile::kOwn][Tile::kStride];
  float x[Tile::kOther][Tile::kStride], y[Tile::kOther][Tile::kStride];
  Lines<Tile> lines;
  float lse[Tile::kOther], delta[Tile::kOther];
};

template <int kHead>
struct GradientCandidates;
template <>
struct GradientCandidates<16> {
  using List = Candidates<ScoreTile<16, 4, 8, 4, 3>>;
};
template <>
struct GradientCandidates<32> {
  using List = Candidates<ScoreTile<32, 4, 8, 4, 3>>;
};
template <>
struct GradientCandidates<64> {
  using List = Candidates<ScoreTile<64, 4, 8, 4, 2>, ScoreTile<64, 4, 2, 4, 2>>;
};
template <>
struct GradientCandidates<128> {
  using List = Candidates<ScoreTile<128, 4, 4, 4, 2>, ScoreTile<128, 4, 2, 2, 2>>;
};
template <>
struct GradientCandidates<256> {
  using List = Candidates<ScoreTile<256, 4, 2, 4, 1>, ScoreTile<256, 4, 1, 1, 1>>;
};

// Rows that are not aligned are rare, and each kernel takes the compiler a second: there all heads
// of up to 64 numbers share one.
inline constexpr int kLeastUnaligned = 64;

// Which gradients a block computes for its own rows.
enum class Owns { queries, keys, only_k, only_v };

// The exponent (of 2) by which a query's scores become probabilities, and its delta. A query that
// is not there has probabilities of 0.
struct OfQuery {
  float lse, delta;
};
__device__ inline OfQuery load_query(const Arrays& b, unsigned head, size_t query) {
  if (query >= b.p.Tq) return {INFINITY, 0};
  const size_t row = size_t{head} * b.p.Tq + query;
  return {kLog2e * b.lse[row], b.delta[row]};
}

// Of a thread's own rows, from row0 on.
template <int kRows>
__device__ inline void load_queries(OfQuery (&of_row)[kRows], const Arrays& b, unsigned head,
                                    size_t row0) {
  GPU_UNROLL
  for (int i = 0; i < kRows; ++i)
    of_row[i] = load_query(b, head, row0 + static_cast<size_t>(i * kDown));
}
// Of a tile's others, from other0 on, to shared memory, and of a thread's columns from there.
template <class Tile>
__device__ inline void store_query(GradientTiles<Tile>& tiles, const Arrays& b, unsigned head,
                                   size_t other0) {
  if (static_cast<int>(threadIdx.x) >= Tile::kOther) return;
  const OfQuery of_query = load_query(b, head, other0 + threadIdx.x);
  tiles.lse[threadIdx.x] = of_query.lse, tiles.delta[threadIdx.x] = of_query.delta;
}
template <class Tile, int kColumns>
__device__ inline void read_queries(OfQuery (&of_column)[kColumns],
                                    const GradientTiles<Tile>& tiles, const Lane& lane) {
  GPU_UNROLL
  for (int j = 0; j < kColumns; ++j)
    of_column[j] = {tiles.lse[lane.column + j * kAcross], tiles.delta[lane.column + j * kAcross]};
}

// The others from other0 on that a wave needs, whose own rows begin with wave0: queries see the
// first keys of a tile, keys are seen by its last queries.
template <class Tile, bool kQueries>
__device__ inline Needed needed_of(const Problem& p, size_t own0, size_t wave0, size_t other0,
                                   bool careful) {
  const size_t own_T = kQueries ? p.Tq : p.Tk, other_T = kQueries ? p.Tk : p.Tq;
  const size_t wave1 = wave0 + rows_of_wave<Tile>() - 1;
  const bool whole =
      kQueries ? other0 + Tile::kOther <= visible_keys(p, own0)
               : own0 + Tile::kOwn <= visible_keys(p, other0) && other0 + Tile::kOther <= p.Tq;
  Needed needed{0, 0, whole, careful && !whole};
  if (wave0 >= own_T) return needed;
  if (kQueries) {
    const size_t last_query = wave1 < own_T ? wave1 : own_T - 1;
    needed.end = rows_left(visible_keys(p, last_query), other0, Tile::kOther);
  } else {
    const size_t first_query = p.causal && wave0 + p.Tq > p.Tk ? wave0 + p.Tq - p.Tk : 0;
    needed.begin = rows_left(first_query, other0, Tile::kOther);
    needed.end = rows_left(other_T, other0, Tile::kOther);
  }
  return needed;
}

}  // namespace attention_backward
