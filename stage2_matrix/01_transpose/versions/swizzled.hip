// swizzled: each row of the tile in another order.
//
//   bank of   padded          swizzled        (drawn for 4 banks)
//   row 0     0 1 2 3 .       0 1 2 3
//   row 1     1 2 3 0 .       1 0 3 2
//   row 2     2 3 0 1 .       2 3 0 1
//   row 3     3 0 1 2 .       3 2 1 0
#include "common/gpu.h"
#include "stage2_matrix/01_transpose/detail/pieces.h"
#include "stage2_matrix/01_transpose/transpose.h"

namespace transpose {

// The column in which the tile keeps element (row, col). Exclusive or with a number below a power
// of two permutes the numbers below it.
__host__ __device__ static inline unsigned swizzled_column(unsigned row, unsigned col) {
  // exercise: another permutation of the columns for each row (about 3 lines)
  unsigned place = col;
  place ^= row;
  return place;
  // end exercise
}

// out[col, row] = a[row, col]    a, out: the piece; kTile x kTile threads.
// Fixes : padded spends a float per row, and its rows begin at odd places: a float4 could not lie
//         there. It is no slower: the two are equally fast here.
// Idea  : row r of the tile keeps its element c in column c ^ r.
// Thread: (x, y) of block (bx, by) reads element (y, x) of its tile and writes element (x, y).
// Costs : 1 barrier; 4 kTile kTile bytes of shared memory.
static __global__ void __launch_bounds__(kTile* kTile)
    transpose_swizzled(float* out, const float* a, Piece piece) {
  __shared__ float tile[kTile][kTile];
  const unsigned first_row = blockIdx.x * kTile, first_col = blockIdx.y * kTile;
  const unsigned x = threadIdx.x, y = threadIdx.y;
  const unsigned row = first_row + y, col = first_col + x;
  if (row < piece.rows && col < piece.cols)
    tile[y][swizzled_column(y, x)] = a[row * piece.a_stride + col];
  __syncthreads();  // the whole tile is in shared memory
  const unsigned out_row = first_col + y, out_col = first_row + x;
  if (out_row < piece.cols && out_col < piece.rows)
    out[out_row * piece.out_stride + out_col] = tile[x][swizzled_column(x, y)];
}

void launch_swizzled(float* out, const float* a, size_t rows, size_t cols, hipStream_t stream) {
  for_each_piece(out, a, rows, cols, [=](float* to, const float* from, const Piece& piece) {
    LAUNCH_ON(stream, transpose_swizzled, grid_of_tiles(piece, kTile, kTile), dim3(kTile, kTile), 0,
              to, from, piece);
  });
}

unsigned column_of_swizzled(unsigned row, unsigned col) { return swizzled_column(row, col); }

}  // namespace transpose
