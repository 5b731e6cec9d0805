// The two products of a tile: scores of rows, and sums of rows by scores.
#pragma once

#include "common/gpu.h"
#include "stage2_matrix/03_gemm/detail/thread_tile.h"
#include "stage7_transformer/04_attention/detail/finite.h"
#include "stage7_transformer/04_attention/detail/tile.h"

namespace attention {

// sums[i][j] += a[i] . b[j]: `a` is the first of this thread's rows, kDown apart, and `b` the first
// of its others, kAcross apart. Four numbers of every row at a time.
//
//   shared memory      a[0] ....====........      kRows + kColumns float4s are read for
//                      a[1] ....====........      4 kRows kColumns products
//                      b[0] ....====........
//                      b[1] ....====........
template <int kHead, int kBegin, int kEnd, int kRows, int kColumns>
__device__ inline void add_dots(float (&sums)[kRows][kColumns], const float* a, const float* b) {
  constexpr int kStride = kHead + kPad;
  for (int d = 0; d < kHead; d += 4) {
    float held[4][kColumns];
    GPU_UNROLL
    for (int j = kBegin; j < kEnd; ++j) {
      const float4 four = *reinterpret_cast<const float4*>(b + j * kAcross * kStride + d);
      held[0][j] = four.x, held[1][j] = four.y, held[2][j] = four.z, held[3][j] = four.w;
    }
    float4 next = *reinterpret_cast<const float4*>(a + d);
    GPU_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const float4 four = next;
      if (i + 1 < kRows) next = *reinterpret_cast<const float4*>(a + (i + 1) * kDown * kStride + d);
      GPU_UNROLL_INNER
      for (int j = kBegin; j < kEnd; ++j) sums[i][j] += four.x * held[0][j];
      GPU_UNROLL_INNER
      for (int j = kBegin; j < kEnd; ++j) sums[i][j] += four.y * held[1][j];
      GPU_UNROLL_INNER
      for (int j = kBegin; j < kEnd; ++j) sums[i][j] += four.z * held[2][j];
      GPU_UNROLL_INNER
      for (int j = kBegin; j < kEnd; ++j) sums[i][j] += four.w * held[3][j];
    }
  }
}

// Of a tile's others, a wave needs those that one of its own rows sees, or is seen by: the others
// [begin, end) of the tile, all of them but on the diagonal of a causal mask. whole: each own row
// of the block goes with every other row of the tile. careful: it is not so, and products by the
// zeros of hidden pairs are left out (see finite.h).
struct Needed {
  int begin, end;
  bool whole, careful;
};

// The same for the others that are needed, or a few more: for one half of them, or for all.
template <int kHead, int kRows, int kColumns>
__device__ inline void add_dots(float (&sums)[kRows][kColumns], const float* a, const float* b,
                                const Needed& needed) {
  constexpr int kHalf = kColumns / 2;
  if constexpr (kHalf > 0) {
    if (needed.end <= kHalf * kAcross) return add_dots<kHead, 0, kHalf>(sums, a, b);
    if (needed.begin >= kHalf * kAcross) return add_dots<kHead, kHalf, kColumns>(sums, a, b);
  }
  add_dots<kHead, 0, kColumns>(sums, a, b);
}

// A thread's columns of a row of kAcross kCount: groups of four, or its one pair.
template <int kCount>
__device__ inline int first_column(const Lane& lane) {
  return (kCount < 4 ? kCount : 4) * lane.column;
}
template <int kCount>
__device__ inline void read_columns(float (&held)[kCount], const float* first) {
  if constexpr (kCount == 2) {
    const float2 two = *reinterpret_cast<const float2*>(first);
    held[0] = two.x, held[1] = two.y;
  } else {
    gemm::load_fragment(held, first, 4 * kAcross);
  }
}
// The column of element c, seen from the thread's first.
template <int kCount>
__device__ constexpr int column_of(int c) {
  return kCount == 2 ? c : c / 4 * 4 * kAcross + c % 4;
}

// Scores go from the lanes that made them to those that multiply by them through shared memory:
// line j has what all own rows make with the other row j, a thread's kRows side by side.
template <class Tile>
using Lines = float[Tile::kOther][Tile::kOwn + kPad];

template <class Tile>
__device__ inline int place_in_line(const Lane& lane) {
  return (lane.group * kDown + lane.row) * Tile::kRows;
}
template <class Tile>
__device__ inline void store_lines(Lines<Tile>& lines, const Lane& lane,
                                   const float (&scores)[Tile::kRows][Tile::kColumns]) {
  const int place = place_in_line<Tile>(lane);
  GPU_UNROLL
  for (int j = 0; j < Tile::kColumns; ++j) {
    GPU_UNROLL
    for (int i = 0; i < Tile::kRows; i += 4)
      *reinterpret_cast<float4*>(&lines[lane.column + j * kAcross][place + i]) =
          make_float4(scores[i][j], scores[i + 1][j], scores[i + 2][j], scores[i + 3][j]);
  }
}

// sums[i][c] += sum over the lines k that are needed, or a few more, of lines[k][row i]
// rows[k][column c]: step 2.3's product. Pairs that don't see each other have a 0 in their line,
// which is not multiplied by NaN or infinity where the wave is careful.
template <class Tile>
__device__ inline void add_lines(float (&sums)[Tile::kRows][Tile::kOut], const Lines<Tile>& lines,
                                 const float (&rows)[Tile::kOther][Tile::kStride], const Lane& lane,
                                 const Needed& needed) {
  const float* line = &lines[0][place_in_line<Tile>(lane)];
  const float* row = &rows[0][first_column<Tile::kOut>(lane)];
  float held_line[Tile::kRows], held_row[Tile::kOut];
  const auto load = [&](int k) {
    gemm::load_fragment(held_line, line + k * (Tile::kOwn + kPad), 4);
    read_columns(held_row, row + k * Tile::kStride);
  };
  if (needed.careful) {
    for (int k = needed.begin; k < needed.end; ++k) {
      load(k);
      if (are_finite(held_row)) {
        gemm::add_outer_product(sums, held_line, held_row);
      } else {  // fmaf: g++ would take a product that both branches have out of them, and round it
        GPU_UNROLL
        for (int i = 0; i < Tile::kRows; ++i) {
          if (held_line[i] == 0) continue;
          GPU_UNROLL_INNER
          for (int c = 0; c < Tile::kOut; ++c)
            sums[i][c] = fmaf(held_line[i], held_row[c], sums[i][c]);
        }
      }
    }
    return;
  }
  constexpr int kAtOnce = 8;  // as far as the loop is unrolled
  static_assert(Tile::kOther % kAtOnce == 0, "no line is beyond the tile");
  for (int first = needed.begin / kAtOnce * kAtOnce; first < needed.end; first += kAtOnce) {
    GPU_UNROLL
    for (int k = first; k < first + kAtOnce; ++k) {
      load(k);
      gemm::add_outer_product(sums, held_line, held_row);
    }
  }
}

// Stores factor(i) sums[i][c] to the rows that there are; 16 bytes at a time where they may be.
template <class Tile, bool kAligned, class Factor>
__device__ inline void store_rows(float* head, size_t stride_row, size_t T, size_t D, size_t own0,
                                  const Lane& lane, const float (&sums)[Tile::kRows][Tile::kOut],
                                  Factor factor) {
  const size_t first = own0 + static_cast<size_t>(lane.group * kDown * Tile::kRows + lane.row);
  const size_t column = static_cast<size_t>(first_column<Tile::kOut>(lane));
  GPU_UNROLL
  for (int i = 0; i < Tile::kRows; ++i) {
    const size_t row = first + static_cast<size_t>(i * kDown);
    if (row >= T) continue;
    float* to = head + row * stride_row + column;
    const float scale = factor(i);
    if constexpr (kAligned && Tile::kOut >= 4) {
      GPU_UNROLL
      for (int c = 0; c < Tile::kOut; c += 4)
        if (column + static_cast<size_t>(c * kAcross) < D)
          *reinterpret_cast<float4*>(to + c * kAcross) =
              make_float4(scale * sums[i][c], scale * sums[i][c + 1], scale * sums[i][c + 2],
                          scale * sums[i][c + 3]);
    } else {
      GPU_UNROLL
      for (int c = 0; c < Tile::kOut; ++c)
        if (column + static_cast<size_t>(column_of<Tile::kOut>(c)) < D)
          to[column_of<Tile::kOut>(c)] = scale * sums[i][c];
    }
  }
}

}  // namespace attention
