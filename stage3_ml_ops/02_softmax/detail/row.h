// A row read 16 bytes at a time, its exponentials, and what is stored of it.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "common/gpu.h"
#include "stage3_ml_ops/02_softmax/detail/team.h"

namespace softmax {

// One row of X, and where its results go. As vector_add::Split, but each row has its own: a row of
// 50257 floats begins 4 bytes further past a multiple of 16 than the row before.
//
//   column   0 1 | 2 3 4 5 | 6 7 8 9 | ... | cols-1      row_x[2] lies at a multiple of 16
//           head |   v=0   |   v=1   | ... | tail        head and tail: at most 3 single ones each
//
// Where row_y is not aligned like row_x, float4s can still be loaded, but are stored one by one.
template <bool kAlignedAlike>
struct Row {
  float* y;
  const float* x;
  size_t head, vectors, tail;

  __device__ Row(float* row_y, const float* row_x, size_t cols) : y(row_y), x(row_x) {
    const size_t past = reinterpret_cast<std::uintptr_t>(row_x) / sizeof(float) % 4;
    const size_t ahead = (4 - past) % 4;
    head = ahead < cols ? ahead : cols;
    vectors = (cols - head) / 4;
    tail = (cols - head) % 4;
  }

  __device__ size_t column(size_t vector) const { return head + 4 * vector; }
  __device__ float4 load(size_t vector) const {
    return reinterpret_cast<const float4*>(x + head)[vector];
  }
  __device__ void store(size_t vector, float4 value) const {
    if constexpr (kAlignedAlike) {
      reinterpret_cast<float4*>(y + head)[vector] = value;
    } else {
      float* to = y + column(vector);
      to[0] = value.x, to[1] = value.y, to[2] = value.z, to[3] = value.w;
    }
  }

  // Of the single elements each thread has at most one: every team has more threads.
  __device__ bool has_single(unsigned rank) const { return rank < head + tail; }
  __device__ size_t column_of_single(unsigned rank) const {
    return rank < head ? rank : rank + 4 * vectors;
  }
  __device__ float load_single(unsigned rank) const {
    return has_single(rank) ? x[column_of_single(rank)] : -INFINITY;
  }
};

// Of the float4s first, first + team, ... a thread holds those whose distance from `first` is less
// than this: kVectors of them, unless `end` comes before. It fits 32 bits, which are compared in
// one instruction.
template <class Team, unsigned kVectors>
__device__ inline unsigned reach(size_t first, size_t end) {
  const size_t left = first < end ? end - first : 0, most = kVectors * Team::size();
  return static_cast<unsigned>(left < most ? left : most);
}

// held[k] = the float4 begin + rank + k * team of the row, or -infinity where that reaches `end`:
// kVectors independent loads, all on their way before the first is used.
template <class Team, unsigned kVectors, bool kAlignedAlike>
__device__ inline void load_vectors(float4 (&held)[kVectors], const Row<kAlignedAlike>& row,
                                    size_t begin, size_t end) {
  const size_t first = begin + Team::rank();
  const unsigned within = reach<Team, kVectors>(first, end);
  GPU_UNROLL
  for (unsigned k = 0; k < kVectors; ++k)
    held[k] = k * Team::size() < within ? row.load(first + k * Team::size())
                                        : make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
}

__device__ inline float max_of(float4 x) { return fmaxf(fmaxf(x.x, x.y), fmaxf(x.z, x.w)); }
__device__ inline float sum_of(float4 x) { return (x.x + x.y) + (x.z + x.w); }
__device__ inline float4 exponential(float4 x, float max) {
  return make_float4(exponential(x.x - max), exponential(x.y - max), exponential(x.z - max),
                     exponential(x.w - max));
}

template <unsigned kVectors>
__device__ inline float max_of(const float4 (&held)[kVectors], float max) {
  GPU_UNROLL
  for (unsigned k = 0; k < kVectors; ++k) max = fmaxf(max, max_of(held[k]));
  return max;
}
// Replaces each x by exp(x - max) and returns their sum.
template <unsigned kVectors>
__device__ inline float exponentials(float4 (&held)[kVectors], float max) {
  float sum = 0;
  GPU_UNROLL
  for (unsigned k = 0; k < kVectors; ++k) {
    held[k] = exponential(held[k], max);
    sum += sum_of(held[k]);
  }
  return sum;
}

// An Output makes a Row of its own for each row, after the row's loads have begun and before any of
// its elements is stored: what it waits for from memory holds nothing else up. One thread calls
// finish(whole). Every element then becomes (column, probability) -> what is stored. Softmax stores
// the probability; a loss fused with its gradient stores something else.

struct Probabilities {
  struct Row {
    __device__ void finish(MaxSum) const {}
    __device__ float operator()(size_t, float probability) const { return probability; }
  };
  __device__ Row row(size_t) const { return {}; }
};

// Below, the exponentials e times `scale` are the probabilities.

template <class OutputRow, bool kAlignedAlike>
__device__ inline void store(const Row<kAlignedAlike>& row, const OutputRow& output, size_t vector,
                             float4 e, float scale) {
  const size_t c = row.column(vector);
  row.store(vector, make_float4(output(c, e.x * scale), output(c + 1, e.y * scale),
                                output(c + 2, e.z * scale), output(c + 3, e.w * scale)));
}

// The float4s that `load_vectors` brought with the same begin and end.
template <class Team, unsigned kVectors, class OutputRow, bool kAlignedAlike>
__device__ inline void store(const Row<kAlignedAlike>& row, const OutputRow& output,
                             const float4 (&held)[kVectors], size_t begin, size_t end,
                             float scale) {
  const size_t first = begin + Team::rank();
  const unsigned within = reach<Team, kVectors>(first, end);
  GPU_UNROLL
  for (unsigned k = 0; k < kVectors; ++k)
    if (k * Team::size() < within) store(row, output, first + k * Team::size(), held[k], scale);
}

template <class OutputRow, bool kAlignedAlike>
__device__ inline void store_single(const Row<kAlignedAlike>& row, const OutputRow& output,
                                    unsigned rank, float e, float scale) {
  if (!row.has_single(rank)) return;
  const size_t c = row.column_of_single(rank);
  row.y[c] = output(c, e * scale);
}

}  // namespace softmax
