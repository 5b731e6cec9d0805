// How a matrix is cut into launches, and a launch into tiles. Host code.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "common/gpu_runtime.h"

namespace transpose {

// Side of the square tiles. A thread for each element of a tile makes the largest block.
inline constexpr unsigned kTile = 32;
inline constexpr unsigned kLargeTile = 64;  // of several_elements; a power of two
inline constexpr unsigned kSector = 8;      // floats that memory moves at once: 32 bytes
// The tiles of vectorized, powers of two; a thread owns 4 x 4 of their elements.
inline constexpr unsigned kWideTileRows = 64, kWideTileCols = 64;

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

// The grid whose block (bx, by) takes the tile in row bx and column by of the piece's tiles of
// `rows` x `cols` elements. Blocks start in the order of bx, so those that run together lie below
// each other in a, and write into the same rows of out.
inline dim3 grid_of_tiles(const Piece& piece, unsigned rows, unsigned cols) {
  return dim3(static_cast<unsigned>(gpu::ceil_div(piece.rows, rows)),
              static_cast<unsigned>(gpu::ceil_div(piece.cols, cols)));
}

// Whether a float4 can be read at p.
inline bool is_float4_aligned(const float* p) {
  return reinterpret_cast<std::uintptr_t>(p) % 16 == 0;
}

// Whether every row of both matrices can be read and written in whole float4s.
inline bool fits_float4(const float* out, const float* a, size_t rows, size_t cols) {
  return is_float4_aligned(out) && is_float4_aligned(a) && rows % 4 == 0 && cols % 4 == 0;
}

}  // namespace transpose
