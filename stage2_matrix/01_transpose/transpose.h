// 2.1  transpose: out[col, row] = a[row, col], a (rows, cols) and out (cols, rows), row-major.
//
// No arithmetic at all: 8 bytes per element, one read and one written, so the limit is a plain
// copy. But a row of one matrix is a column of the other, and a wave that reads neighbours in `a`
// writes elements that lie a whole row of `out` apart. The ladder turns small tiles in shared
// memory, then gets rid of the conflicts there, then moves more bytes per thread.
//
// Every launcher takes device arrays of rows * cols floats, any sizes (0 too), aligned to 4 bytes,
// and queues its work on `stream`. out must not overlap a: there is no transposing in place.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/gpu.h"
#include "common/program.h"

namespace transpose {

// The reference. A transpose moves floats and computes nothing: results must be equal bit by bit.
inline std::vector<float> transpose_cpu(const std::vector<float>& a, size_t rows, size_t cols) {
  std::vector<float> out(a.size());
  for (size_t row = 0; row < rows; ++row)
    for (size_t col = 0; col < cols; ++col) out[col * rows + row] = a[row * cols + col];
  return out;
}

// ---- Tuning -----------------------------------------------------------------------------------

inline constexpr unsigned kBanks = 32;  // of shared memory, on both vendors' devices
// Side of the square tiles. A thread for each element of a tile makes the largest block.
inline constexpr unsigned kTile = 32;
inline constexpr unsigned kLargeTile = 64;  // of several_elements; a power of two
inline constexpr unsigned kElements = 16;   // per thread in several_elements; divides kLargeTile
// The tiles of vectorized, powers of two; a thread owns 4 x 4 of their elements.
inline constexpr unsigned kWideTileRows = 64, kWideTileCols = 64;

// ---- Pieces -----------------------------------------------------------------------------------

// What one launch transposes. A grid has at most 65535 blocks in y: a matrix with a longer side
// than kMaxSide is cut up, and a row or column within a piece fits 32 bits.
inline constexpr size_t kMaxSide = size_t{1} << 20;

struct Piece {
  unsigned rows, cols;          // of the piece of a
  size_t a_stride, out_stride;  // elements from one row to the next, in a and in out
};

// Calls launch(out, a, piece) for every piece of a (rows, cols), with the pointers to its corner.
template <class LaunchPiece>
inline void for_each_piece(float* out, const float* a, size_t rows, size_t cols,
                           LaunchPiece launch) {
  for (size_t row = 0; row < rows; row += kMaxSide)
    for (size_t col = 0; col < cols; col += kMaxSide)
      launch(out + col * rows + row, a + row * cols + col,
             Piece{static_cast<unsigned>(std::min(kMaxSide, rows - row)),
                   static_cast<unsigned>(std::min(kMaxSide, cols - col)), cols, rows});
}

// How many tiles of `side` rows (columns) cover n.
__host__ __device__ constexpr unsigned tiles(unsigned n, unsigned side) {
  return (n + side - 1) / side;
}

// ---- Naive ------------------------------------------------------------------------------------

// out[col, row] = a[row, col]    a, out: the piece.
// Fixes : a CPU core moves the elements one after the other.
// Idea  : one thread per element; neighbours in x read neighbours in a.
// Thread: (x, y) of block (bx, by) moves a[by * kTile + y, bx * kTile + x].
// Costs : 8 bytes per element, but every lane of a wave writes to another row of out.
static __global__ void transpose_naive(float* out, const float* a, Piece piece) {
  const unsigned row = blockIdx.y * kTile + threadIdx.y, col = blockIdx.x * kTile + threadIdx.x;
  if (row < piece.rows && col < piece.cols)
    out[col * piece.out_stride + row] = a[row * piece.a_stride + col];
}

inline void launch_naive(float* out, const float* a, size_t rows, size_t cols,
                         hipStream_t stream = nullptr) {
  for_each_piece(out, a, rows, cols, [=](float* to, const float* from, const Piece& piece) {
    LAUNCH_ON(stream, transpose_naive, dim3(tiles(piece.cols, kTile), tiles(piece.rows, kTile)),
              dim3(kTile, kTile), 0, to, from, piece);
  });
}

// ---- Tiles in shared memory -------------------------------------------------------------------
// Shared memory has kBanks banks, which take turns float by float; each serves one float at a time.
// Lanes that ask one bank for different floats wait for each other. A tile is written along its
// rows and read along its columns, and where its element (row, col) lies decides who waits:
//
//   bank of   plain         padded        swizzled         (drawn for 4 banks)
//   row 0     0 1 2 3       0 1 2 3 .     0 1 2 3
//   row 1     0 1 2 3       1 2 3 0 .     1 0 3 2          a row: always every bank once
//   row 2     0 1 2 3       2 3 0 1 .     2 3 0 1          a column: plain asks one bank for
//   row 3     0 1 2 3       3 0 1 2 .     3 2 1 0          everything, the others each bank once

template <unsigned kSideOfTile>
struct Plain {
  static constexpr unsigned kSide = kSideOfTile, kFloats = kSide * kSide;
  __host__ __device__ static constexpr unsigned at(unsigned row, unsigned col) {
    return row * kSide + col;
  }
};

// One float per row that nobody uses.
template <unsigned kSideOfTile>
struct Padded {
  static constexpr unsigned kSide = kSideOfTile, kFloats = kSide * (kSide + 1);
  __host__ __device__ static constexpr unsigned at(unsigned row, unsigned col) {
    return row * (kSide + 1) + col;
  }
};

// Each row in another order: exclusive or with a number below kSide permutes the columns.
template <unsigned kSideOfTile>
struct Swizzled {
  static constexpr unsigned kSide = kSideOfTile, kFloats = kSide * kSide;
  __host__ __device__ static constexpr unsigned at(unsigned row, unsigned col) {
    // exercise: another permutation of the places in each row (about 3 lines)
    unsigned place = col;
    place ^= row;
    return row * kSide + place;
    // end exercise
  }
};

// out[col, row] = a[row, col]    a, out: the piece; kSide x kSide / kPerThread threads.
// Fixes : naive writes 4 bytes here and 4 bytes there, a row of out apart.
// Idea  : a block turns a tile in shared memory: read along the rows of a, written along those of
//         out. Layout puts the tile's columns into different banks. The blocks follow each other
//         down a, so that those that run together write into the same rows of out.
// Thread: (x, y) reads rows y, y + kStep, ... of the tile in column x, and writes as many.
// Costs : 1 barrier; Layout::kFloats floats of shared memory; kPerThread registers.
template <class Layout, unsigned kPerThread>
static __global__ void __launch_bounds__(Layout::kSide* Layout::kSide / kPerThread)
    transpose_tiled(float* out, const float* a, Piece piece) {
  __shared__ float tile[Layout::kFloats];
  constexpr unsigned kSide = Layout::kSide, kStep = kSide / kPerThread;
  const unsigned first_row = blockIdx.x * kSide, first_col = blockIdx.y * kSide;
  const unsigned x = threadIdx.x;
  // exercise: read the tile of a, wait for the block, write the tile of out (about 11 lines)
  float held[kPerThread];
  for (unsigned k = 0; k < kPerThread; ++k) {
    const unsigned row = first_row + threadIdx.y + k * kStep, col = first_col + x;
    held[k] = row < piece.rows && col < piece.cols ? a[row * piece.a_stride + col] : 0.0f;
  }
  for (unsigned k = 0; k < kPerThread; ++k) tile[Layout::at(threadIdx.y + k * kStep, x)] = held[k];
  __syncthreads();  // the whole tile is in shared memory
  for (unsigned k = 0; k < kPerThread; ++k) {
    const unsigned y = threadIdx.y + k * kStep, row = first_row + x, col = first_col + y;
    if (row < piece.rows && col < piece.cols)
      out[col * piece.out_stride + row] = tile[Layout::at(x, y)];
  }
  // end exercise
}

template <class Layout, unsigned kPerThread>
inline void launch_tiled(float* out, const float* a, size_t rows, size_t cols,
                         hipStream_t stream = nullptr) {
  constexpr unsigned kSide = Layout::kSide;
  for_each_piece(out, a, rows, cols, [=](float* to, const float* from, const Piece& piece) {
    LAUNCH_ON(stream, (transpose_tiled<Layout, kPerThread>),
              dim3(tiles(piece.rows, kSide), tiles(piece.cols, kSide)),
              dim3(kSide, kSide / kPerThread), 0, to, from, piece);
  });
}

// ---- 16 bytes per load and store --------------------------------------------------------------

// The tile in shared memory as it will be written: kWideTileCols rows of kQuads float4s each.
inline constexpr unsigned kQuads = kWideTileRows / 4;
inline constexpr unsigned kWideThreads = kQuads * kWideTileCols / 4;

// Eight lanes are served at a time, each with four banks. Those that write lie 4 rows apart, those
// that read are neighbours in a row: both meet different banks where every fourth row is permuted.
__host__ __device__ constexpr unsigned quad_at(unsigned row, unsigned quad) {
  return row * kQuads + (quad ^ row / 4 % kQuads);
}

// out[col, row] = a[row, col]    a, out: the piece; rows and cols multiples of 4, all rows at
//                                multiples of 16 bytes.
// Fixes : several_elements moves 4 bytes per instruction, to and from shared memory too.
// Idea  : a thread turns 4 x 4 elements in its registers: float4s in, float4s out, everywhere.
// Thread: t reads 4 float4s below each other, writes 4 float4s of the tile in shared memory, and
//         stores the float4s t, t + kWideThreads, ... of that tile.
// Costs : 1 barrier; 4 kWideTileRows kWideTileCols bytes of shared memory; 16 registers.
static __global__ void __launch_bounds__(kWideThreads)
    transpose_vectorized(float* out, const float* a, Piece piece) {
  __shared__ float4 tile[kWideTileCols * kQuads];
  const unsigned first_row = blockIdx.x * kWideTileRows, first_col = blockIdx.y * kWideTileCols;
  const unsigned x = threadIdx.x % (kWideTileCols / 4), y = threadIdx.x / (kWideTileCols / 4);
  // exercise: 4 float4s of a, turned, into the tile; wait; the tile into out (about 18 lines)
  const unsigned row = first_row + 4 * y, col = first_col + 4 * x;
  if (row < piece.rows && col < piece.cols) {  // 4 divides both: all 16 elements exist, or none
    float4 r[4];
    for (unsigned k = 0; k < 4; ++k)
      r[k] = *reinterpret_cast<const float4*>(a + (row + k) * piece.a_stride + col);
    tile[quad_at(4 * x + 0, y)] = make_float4(r[0].x, r[1].x, r[2].x, r[3].x);
    tile[quad_at(4 * x + 1, y)] = make_float4(r[0].y, r[1].y, r[2].y, r[3].y);
    tile[quad_at(4 * x + 2, y)] = make_float4(r[0].z, r[1].z, r[2].z, r[3].z);
    tile[quad_at(4 * x + 3, y)] = make_float4(r[0].w, r[1].w, r[2].w, r[3].w);
  }
  __syncthreads();  // the whole tile is in shared memory, turned
  for (unsigned k = 0; k < 4; ++k) {
    const unsigned i = threadIdx.x + k * kWideThreads, tile_row = i / kQuads, quad = i % kQuads;
    const unsigned out_row = first_col + tile_row, out_col = first_row + 4 * quad;
    if (out_row < piece.cols && out_col < piece.rows)
      *reinterpret_cast<float4*>(out + out_row * piece.out_stride + out_col) =
          tile[quad_at(tile_row, quad)];
  }
  // end exercise
}

// Whether every row of both matrices can be read and written in whole float4s.
inline bool fits_float4(const float* out, const float* a, size_t rows, size_t cols) {
  const auto aligned = [](const float* p) {
    return reinterpret_cast<std::uintptr_t>(p) % sizeof(float4) == 0;
  };
  return aligned(out) && aligned(a) && rows % 4 == 0 && cols % 4 == 0;
}

// Matrices that do not fit float4s go element by element.
inline void launch_vectorized(float* out, const float* a, size_t rows, size_t cols,
                              hipStream_t stream = nullptr) {
  if (!fits_float4(out, a, rows, cols))
    return launch_tiled<Swizzled<kLargeTile>, kElements>(out, a, rows, cols, stream);
  for_each_piece(out, a, rows, cols, [=](float* to, const float* from, const Piece& piece) {
    LAUNCH_ON(stream, transpose_vectorized,
              dim3(tiles(piece.rows, kWideTileRows), tiles(piece.cols, kWideTileCols)),
              kWideThreads, 0, to, from, piece);
  });
}

// ---- The versions -----------------------------------------------------------------------------

using Launch = void (*)(float* out, const float* a, size_t rows, size_t cols, hipStream_t stream);

inline constexpr Version<Launch> kVersions[] = {
    {"naive", launch_naive, "reads along the rows, writes along the columns"},
    {"tiled", launch_tiled<Plain<kTile>, 1>, "a tile in shared memory: rows on both sides"},
    {"padded", launch_tiled<Padded<kTile>, 1>, "a float per row keeps columns in different banks"},
    {"swizzled", launch_tiled<Swizzled<kTile>, 1>, "the same by permuting each row: no waste"},
    {"several_elements", launch_tiled<Swizzled<kLargeTile>, kElements>,
     "larger tiles, and independent loads on their way"},
    {"vectorized", launch_vectorized, "4 x 4 elements per thread, 16 bytes per load and store"},
};

}  // namespace transpose
