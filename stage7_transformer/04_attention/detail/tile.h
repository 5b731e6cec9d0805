// A block's tile of scores: which of them a thread has, and how rows come to shared memory.
#pragma once

#include <cstddef>

#include "common/gpu.h"
#include "stage2_matrix/03_gemm/detail/thread_tile.h"
#include "stage2_matrix/03_gemm/detail/tile_loader.h"
#include "stage7_transformer/04_attention/views.h"

namespace attention {

inline constexpr float kLog2e = 1.44269504f;

// A block owns kOwn rows (queries, or keys) and walks along the others, kOther at a time. Its
// threads come in groups of kGroup, each with kDown kRows of the own rows. Lane (r, c) of a group:
//
// clang-format off
//   lane   0  1  4  5  8  9 12 13     owns the own rows r, r + kDown, ...
//          2  3  6  7 10 11 14 15     and the other rows c, c + kAcross, ...: it has the
//         16 17 20 21 24 25 28 29     kRows x kColumns scores of these, and of the result
//         18 19 22 23 26 27 30 31     its own rows and kOut columns
// clang-format on
//
// As in step 2.3 a group is a wave on most devices, half a wave where waves have 64 lanes.
inline constexpr int kDown = gemm::kLanesM, kAcross = gemm::kLanesN, kGroup = gemm::kLanes;

// Rows in shared memory are kPad floats longer than needed: neighbours begin in different banks.
using gemm::kPad;

template <int head, int rows, int columns, int groups, int resident_blocks>
struct ScoreTile {
  static constexpr int kHead = head;                      // D or more
  static constexpr int kRows = rows, kColumns = columns;  // scores of a thread
  static constexpr int kOut = head / kAcross;             // columns of a thread's results
  static constexpr int kThreads = groups * kGroup;
  static constexpr int kOwn = groups * kDown * rows, kOther = kAcross * columns;
  static constexpr int kResidentBlocks = resident_blocks;  // so many shall fit a multiprocessor
  static constexpr int kStride = head + kPad;              // between rows in shared memory
  static_assert(rows % 4 == 0, "a thread's own rows are read as float4s");
};

struct Lane {
  int row, column;  // the first of each
  int group;
};
__device__ inline Lane lane_of(int thread) {
  const int lane = thread % kGroup;
  return {lane / 2 % 2 + lane / (2 * kAcross) * 2, lane % 2 + lane / 4 % (kAcross / 2) * 2,
          thread / kGroup};
}

// The largest value, and the sum, of the kAcross lanes that share own rows, in all of them.
__device__ inline float max_across(float value) {
  value = fmaxf(value, gpu::wave_shfl_xor(value, 1));
  value = fmaxf(value, gpu::wave_shfl_xor(value, 4));
  return fmaxf(value, gpu::wave_shfl_xor(value, 8));
}
__device__ inline float sum_across(float value) {
  value += gpu::wave_shfl_xor(value, 1);
  value += gpu::wave_shfl_xor(value, 4);
  return value + gpu::wave_shfl_xor(value, 8);
}

// The own rows of the wave that a thread is in: the same for all of its lanes, which therefore meet
// in the shuffles or leave them out together.
template <class Tile>
__device__ inline size_t first_row_of_wave() {
  return static_cast<size_t>(gpu::wave_id() * (gpu::wave_size() / kGroup) * kDown * Tile::kRows);
}
template <class Tile>
__device__ inline size_t rows_of_wave() {
  return static_cast<size_t>(gpu::wave_size() / kGroup * kDown * Tile::kRows);
}

// How many of the `count` rows from row `first` on there are, of n.
__device__ inline int rows_left(size_t n, size_t first, int count) {
  return first >= n                               ? 0
         : n - first < static_cast<size_t>(count) ? static_cast<int>(n - first)
                                                  : count;
}

// Brings rows of one head from global memory into registers, load(), and on to shared memory,
// store(); kCount at a time, one time after the other. Zeros stand for rows from T on and numbers
// from D on. kAligned: each float4 is at a multiple of 16 bytes and in its row as a whole or not at
// all.
template <class Tile, int kCount, bool kAligned>
class RowLoader {
  // A round of the threads covers kRound rows, or a row takes kSplits rounds.
  static constexpr int kPerRow = Tile::kHead / 4;
  static constexpr int kRound = Tile::kThreads < kPerRow ? 1 : Tile::kThreads / kPerRow;
  static constexpr int kSplits = Tile::kThreads < kPerRow ? kPerRow / Tile::kThreads : 1;
  static constexpr int kRounds = kCount / kRound;
  static_assert(kRound * kPerRow == Tile::kThreads * kSplits && kRounds * kRound == kCount,
                "every thread carries as much");

 public:
  __device__ RowLoader(const float* head, size_t stride_row, size_t T, size_t D, size_t first)
      : step_(kRound * stride_row),
        T_(T),
        next_(first),
        row_(static_cast<int>(threadIdx.x) * kSplits / kPerRow),
        column_(static_cast<int>(threadIdx.x) % (kPerRow / kSplits) * 4),
        inside_(static_cast<int>(D) - column_),
        from_(head + (first + static_cast<size_t>(row_)) * stride_row + column_) {}

  __device__ void load() {
    const int left = rows_left(T_, next_, kCount) - row_;
    GPU_UNROLL
    for (int n = 0; n < kRounds; ++n) {
      GPU_UNROLL
      for (int split = 0; split < kSplits; ++split) {
        constexpr int kWidth = 4 * kPerRow / kSplits;
        float4& held = held_[n * kSplits + split];
        const int inside = n * kRound < left ? inside_ - split * kWidth : 0;
        const float* from = from_ + split * kWidth;
        if constexpr (kAligned) {
          held = make_float4(0, 0, 0, 0);
          if (inside > 0) held = *reinterpret_cast<const float4*>(from);
        } else {
          held = make_float4(inside > 0 ? from[0] : 0, inside > 1 ? from[1] : 0,
                             inside > 2 ? from[2] : 0, inside > 3 ? from[3] : 0);
        }
      }
      from_ += step_;
    }
    next_ += kCount;
  }
  // Back to the first row, which was row `first`.
  __device__ void rewind(size_t first) {
    from_ -= (next_ - first) / kRound * step_;
    next_ = first;
  }
  __device__ void store(float (&tile)[kCount][Tile::kStride]) const {
    GPU_UNROLL
    for (int n = 0; n < kRounds; ++n) {
      GPU_UNROLL
      for (int split = 0; split < kSplits; ++split)
        *reinterpret_cast<float4*>(
            &tile[row_ + n * kRound][column_ + split * (4 * kPerRow / kSplits)]) =
            held_[n * kSplits + split];
    }
  }

 private:
  size_t step_;  // between the rows of two rounds
  size_t T_, next_;
  int row_, column_, inside_;
  const float* from_;  // where the next round begins
  float4 held_[kRounds * kSplits];
};

// For the rows of one head from row `first` on, of T.
template <class Tile, int kCount, bool kAligned>
__device__ inline RowLoader<Tile, kCount, kAligned> loader_of(const ConstView& view, unsigned batch,
                                                              unsigned of_batch, size_t T, size_t D,
                                                              size_t first) {
  return {view.head(batch, of_batch), view.stride_row, T, D, first};
}

}  // namespace attention
