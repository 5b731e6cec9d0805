// several_elements: larger tiles, 16 elements per thread.
#include "common/gpu.h"
#include "stage2_matrix/01_transpose/detail/pieces.h"
#include "stage2_matrix/01_transpose/transpose.h"

namespace transpose {

constexpr unsigned kElements = 16;  // per thread; divides kLargeTile
// Rows of the tile that a block reads at once.
constexpr unsigned kElementRows = kLargeTile / kElements;

// out[col, row] = a[row, col]    a, out: the piece; kLargeTile x kElementRows threads.
// Fixes : a thread of swizzled has one load in flight, and then waits for its block.
// Idea  : a thread has kElements independent loads in flight before it stores the first. A tile of
//         64 x 64 reads and writes stretches of 256 bytes.
// Thread: (x, y) reads rows y, y + kElementRows, ... of the tile in column x, and writes as many.
// Costs : 1 barrier; 4 kLargeTile kLargeTile bytes of shared memory; kElements registers.
static __global__ void __launch_bounds__(kLargeTile* kElementRows)
    transpose_several_elements(float* out, const float* a, Piece piece) {
  __shared__ float tile[kLargeTile][kLargeTile];
  const unsigned first_row = blockIdx.x * kLargeTile, first_col = blockIdx.y * kLargeTile;
  const unsigned x = threadIdx.x;
  // exercise: kElements loads, as many stores to the tile; wait; write out (about 15 lines)
  float held[kElements];
  for (unsigned k = 0; k < kElements; ++k) {
    const unsigned row = first_row + threadIdx.y + k * kElementRows, col = first_col + x;
    held[k] = row < piece.rows && col < piece.cols ? a[row * piece.a_stride + col] : 0.0f;
  }
  for (unsigned k = 0; k < kElements; ++k) {
    const unsigned y = threadIdx.y + k * kElementRows;
    tile[y][x ^ y] = held[k];  // swizzled
  }
  __syncthreads();  // the whole tile is in shared memory
  for (unsigned k = 0; k < kElements; ++k) {
    const unsigned y = threadIdx.y + k * kElementRows;
    const unsigned out_row = first_col + y, out_col = first_row + x;
    if (out_row < piece.cols && out_col < piece.rows)
      out[out_row * piece.out_stride + out_col] = tile[x][y ^ x];
  }
  // end exercise
}

void launch_several_elements(float* out, const float* a, size_t rows, size_t cols,
                             hipStream_t stream) {
  for_each_piece(out, a, rows, cols, [=](float* to, const float* from, const Piece& piece) {
    LAUNCH_ON(stream, transpose_several_elements, grid_of_tiles(piece, kLargeTile, kLargeTile),
              dim3(kLargeTile, kElementRows), 0, to, from, piece);
  });
}

}  // namespace transpose
