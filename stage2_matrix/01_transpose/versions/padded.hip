// padded: an unused float per row of the tile.
//
// Shared memory has 32 banks, which take turns float by float; each serves one float at a time.
// Lanes that ask one bank for different floats wait for each other. An unused float at the end of
// each row shifts the next row by a bank:
//
//   bank of   tiled         padded          (drawn for 4 banks)
//   row 0     0 1 2 3       0 1 2 3 .
//   row 1     0 1 2 3       1 2 3 0 .       a row: every bank once
//   row 2     0 1 2 3       2 3 0 1 .       a column: tiled asks one bank for everything,
//   row 3     0 1 2 3       3 0 1 2 .       padded every bank once
#include "common/gpu.h"
#include "stage2_matrix/01_transpose/detail/pieces.h"
#include "stage2_matrix/01_transpose/transpose.h"

namespace transpose {

// out[col, row] = a[row, col]    a, out: the piece; kTile x kTile threads.
// Fixes : the lanes of tiled that read a column of the tile wait for one bank.
// Idea  : rows of kTile + 1 floats: the elements of a column lie in different banks.
// Thread: (x, y) of block (bx, by) reads element (y, x) of its tile and writes element (x, y).
// Costs : 1 barrier; 4 kTile (kTile + 1) bytes of shared memory.
static __global__ void __launch_bounds__(kTile* kTile)
    transpose_padded(float* out, const float* a, Piece piece) {
  __shared__ float tile[kTile][kTile + 1];
  const unsigned first_row = blockIdx.x * kTile, first_col = blockIdx.y * kTile;
  const unsigned x = threadIdx.x, y = threadIdx.y;
  const unsigned row = first_row + y, col = first_col + x;
  if (row < piece.rows && col < piece.cols) tile[y][x] = a[row * piece.a_stride + col];
  __syncthreads();  // the whole tile is in shared memory
  const unsigned out_row = first_col + y, out_col = first_row + x;
  if (out_row < piece.cols && out_col < piece.rows)
    out[out_row * piece.out_stride + out_col] = tile[x][y];
}

void launch_padded(float* out, const float* a, size_t rows, size_t cols, hipStream_t stream) {
  for_each_piece(out, a, rows, cols, [=](float* to, const float* from, const Piece& piece) {
    LAUNCH_ON(stream, transpose_padded, grid_of_tiles(piece, kTile, kTile), dim3(kTile, kTile), 0,
              to, from, piece);
  });
}

}  // namespace transpose
