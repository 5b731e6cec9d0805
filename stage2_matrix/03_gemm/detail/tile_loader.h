// Tiles in shared memory, and how they get there 16 bytes at a time, from either layout.
#pragma once

#include <cstddef>

#include "common/gpu.h"
#include "stage2_matrix/03_gemm/detail/product.h"

namespace gemm {

// How a block divides its work: a tile of C of tile_m x tile_n, kTileK columns of A and rows of B
// at a time in shared memory, and thread_m x thread_n results for each thread. `slices` teams of
// threads share K (sliced K).
template <int tile_m, int tile_n, int tile_k, int thread_m, int thread_n, int resident_blocks = 1,
          int slices = 1>
struct Shape {
  static constexpr int kTileM = tile_m, kTileN = tile_n, kTileK = tile_k;
  static constexpr int kThreadM = thread_m, kThreadN = thread_n;
  static constexpr int kThreads = tile_m / thread_m * (tile_n / thread_n);  // of a slice
  static constexpr int kResidentBlocks = resident_blocks;  // so many shall fit a multiprocessor
  static constexpr int kSlices = slices;
  static_assert(tile_m % thread_m == 0 && tile_n % thread_n == 0, "threads cover the tile");
  static_assert(kThreads * kSlices <= 1024, "a block has at most 1024 threads");
};

// Padding behind each row of a tile, in floats. It keeps float4s aligned. A K-major operand is
// transposed on its way: 32 threads bring four neighbours along k of 16 places each, twice, and
// store them one k at a time. The padding puts these into different banks.
inline constexpr int kPad = 4;

// A tile of A and one of B, both with k as the row.
template <class Shape>
struct alignas(16) Tiles {
  float a[Shape::kTileK][Shape::kTileM + kPad];
  float b[Shape::kTileK][Shape::kTileN + kPad];
};

// How much of the next tile there is along k, with `left` left of K.
template <class Shape>
__device__ inline int depth_of_tile(size_t left) {
  return left < Shape::kTileK ? static_cast<int>(left) : Shape::kTileK;
}

// Does a block's tile of C lie in C as a whole? Then so do its tiles of A and B, but along K.
template <class Shape>
__device__ inline bool is_whole(const Product& p, const TileOrigin& origin) {
  return origin.row + Shape::kTileM <= p.M && origin.col + Shape::kTileN <= p.N;
}

// Brings one operand's tiles of kTileK x kExtent, one after the other along k, from global memory
// to registers, load(), and on to shared memory, store(). Each thread carries kPieces pieces of
// four floats that are neighbours in global memory. With kAligned each piece is a float4 at a
// multiple of 16 bytes that lies in the matrix as a whole or not at all; without it they are single
// floats.
//
// clang-format off
//        i-major: B in NN                           K-major: A in NN
//
//        i = 0 1 2 3   4 5 6 7  ...                 k = 0 1 2 3   4 5 6 7
//  k = 0    [ t0    ] [ t1    ]               i = 0    [ t0    ] [ t1    ]
//      1    [ t32   ] [ t33   ]                   1    [ t2    ] [ t3    ]
//
//  stored as it is: one float4 to             stored transposed: four floats to
//  tile[k][i .. i + 3]                        tile[k][i], .., tile[k + 3][i]
// clang-format on
template <bool kKMajor, bool kAligned, int kTileK, int kExtent, int kThreads>
class TileLoader {
  static constexpr int kPieces = kTileK * kExtent / 4 / kThreads;
  static_assert(kPieces * kThreads * 4 == kTileK * kExtent, "every thread carries as much");
  // A round of the threads covers kRows rows of memory with kAcross pieces of each: of a K-major
  // operand with two, or with more where the threads are more than twice its rows.
  static constexpr int kAcross = !kKMajor                 ? kExtent / 4
                                 : kThreads > 2 * kExtent ? kThreads / kExtent
                                                          : 2;
  static constexpr int kRows = kThreads / kAcross;
  static constexpr int kRounds = (kKMajor ? kExtent : kTileK) / kRows;  // down the tile's rows
  static_assert(kRows * kAcross == kThreads && kRounds * kRows == (kKMajor ? kExtent : kTileK),
                "a round covers whole rows");

 public:
  // The tiles of x from k0 and i0 on; `thread` counts the kThreads threads.
  __device__ TileLoader(const Operand& x, size_t k0, size_t i0, int thread)
      : ld_(kKMajor ? x.stride_i : x.stride_k),
        row_(thread / kAcross),
        side_(thread % kAcross * 4) {
    from_ = x.at(k0 + k(0), i0 + i(0));
    GPU_UNROLL
    for (int n = 0; n < kPieces; ++n) {
      const size_t first = i0 + i(n);
      inside_[n] = static_cast<int>(first >= x.extent      ? 0
                                    : x.extent - first < 4 ? x.extent - first
                                                           : 4);
    }
  }

  // Takes the next tile into registers. It has `depth` places along k, and zeros behind them.
  __device__ void load(int depth) {
    GPU_UNROLL
    for (int n = 0; n < kPieces; ++n) {
      const float* from = from_ + offset(n);
      if constexpr (kAligned) {
        pieces_[n] = make_float4(0, 0, 0, 0);
        if (inside_[n] > 0 && k(n) < depth) pieces_[n] = *reinterpret_cast<const float4*>(from);
      } else {
        const int count =
            kKMajor ? (inside_[n] > 0 ? depth - k(n) : 0) : (k(n) < depth ? inside_[n] : 0);
        pieces_[n] = make_float4(count > 0 ? from[0] : 0, count > 1 ? from[1] : 0,
                                 count > 2 ? from[2] : 0, count > 3 ? from[3] : 0);
      }
    }
    go_on();
  }

  // The same of a tile that lies in the matrix as a whole, and asks nothing.
  __device__ void load_whole() {
    static_assert(kAligned, "a piece is one float4");
    GPU_UNROLL
    for (int n = 0; n < kPieces; ++n)
      pieces_[n] = *reinterpret_cast<const float4*>(from_ + offset(n));
    go_on();
  }

  // Puts what was taken into shared memory.
  __device__ void store(float (&tile)[kTileK][kExtent + kPad]) const {
    GPU_UNROLL
    for (int n = 0; n < kPieces; ++n) {
      if constexpr (kKMajor) {
        tile[k(n)][i(n)] = pieces_[n].x, tile[k(n) + 1][i(n)] = pieces_[n].y;
        tile[k(n) + 2][i(n)] = pieces_[n].z, tile[k(n) + 3][i(n)] = pieces_[n].w;
      } else {
        *reinterpret_cast<float4*>(&tile[k(n)][i(n)]) = pieces_[n];
      }
    }
  }

 private:
  // Where in the tile piece n of this thread begins, and how far that is from piece 0 in memory.
  __device__ int k(int n) const {
    return kKMajor ? side_ + n / kRounds * 4 * kAcross : row_ + n * kRows;
  }
  __device__ int i(int n) const { return kKMajor ? row_ + n % kRounds * kRows : side_; }
  __device__ size_t offset(int n) const {
    return kKMajor ? n % kRounds * kRows * ld_ + n / kRounds * 4 * kAcross : n * kRows * ld_;
  }
  __device__ void go_on() { from_ += kKMajor ? kTileK : kTileK * ld_; }

  const float* from_;  // piece 0 of the next tile
  size_t ld_;
  int row_, side_;
  int inside_[kPieces];  // how many of the piece's places along i lie in the matrix
  float4 pieces_[kPieces];
};

}  // namespace gemm
