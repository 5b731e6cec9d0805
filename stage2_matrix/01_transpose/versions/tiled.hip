// tiled: a tile in shared memory, read along its rows and written along its columns.
#include "common/gpu.h"
#include "stage2_matrix/01_transpose/detail/pieces.h"
#include "stage2_matrix/01_transpose/transpose.h"

namespace transpose {

// out[col, row] = a[row, col]    a, out: the piece; kTile x kTile threads.
// Fixes : naive writes 4 bytes here and 4 bytes there, a row of out apart.
// Idea  : a block turns a tile in shared memory: it reads along the rows of a and writes along the
//         rows of out. Shared memory has no lines of 128 bytes, so a column of it costs less.
// Thread: (x, y) of block (bx, by) reads element (y, x) of its tile and writes element (x, y).
// Costs : 1 barrier; 4 kTile kTile bytes of shared memory. A column of the tile lies in one bank,
//         which serves the lanes of a wave one after the other.
static __global__ void __launch_bounds__(kTile* kTile)
    transpose_tiled(float* out, const float* a, Piece piece) {
  __shared__ float tile[kTile][kTile];
  const unsigned first_row = blockIdx.x * kTile, first_col = blockIdx.y * kTile;
  const unsigned x = threadIdx.x, y = threadIdx.y;
  // exercise: read the tile of a, wait for the block, write the tile of out (about 7 lines)
  const unsigned row = first_row + y, col = first_col + x;
  if (row < piece.rows && col < piece.cols) tile[y][x] = a[row * piece.a_stride + col];
  __syncthreads();  // the whole tile is in shared memory
  const unsigned out_row = first_col + y, out_col = first_row + x;
  if (out_row < piece.cols && out_col < piece.rows)
    out[out_row * piece.out_stride + out_col] = tile[x][y];
  // end exercise
}

void launch_tiled(float* out, const float* a, size_t rows, size_t cols, hipStream_t stream) {
  for_each_piece(out, a, rows, cols, [=](float* to, const float* from, const Piece& piece) {
    LAUNCH_ON(stream, transpose_tiled, grid_of_tiles(piece, kTile, kTile), dim3(kTile, kTile), 0,
              to, from, piece);
  });
}

}  // namespace transpose
