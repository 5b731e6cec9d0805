// whole_sectors: rows of any length, and no sector of memory in parts.
//
//   Rows of 31 floats, drawn for blocks A, B, ... that write 8 of each; a sector begins at each |:
//   |AAAAAAAA|BBBBBBBB|CCCCCCCC|DDDDDDDA|BBBBBBBB|CCCCCCCC|DDDDDDDD|EEEEEEAA|BBBBBBBB|CCCC...
//    row 0                             row 1                              row 2
#include <cstdint>

#include "common/gpu.h"
#include "stage2_matrix/01_transpose/detail/pieces.h"
#include "stage2_matrix/01_transpose/transpose.h"

namespace transpose {

constexpr unsigned kSectorBlockRows = 2;  // rows of threads; divides kLargeTile and kSector

// out[col, row] = a[row, col]    a, out: the piece; kLargeTile x kSectorBlockRows threads.
// Fixes : memory moves sectors of 32 bytes. A row of out that begins inside of one has the ends of
//         several_elements' stretches in sectors that two blocks write, each a part.
// Idea  : in each row of out the stretch of a block begins at a sector, up to kSector - 1 floats
//         earlier. Its tile has kSector more rows, and the block above reads these, too.
// Thread: (x, y) reads rows y, y + kSectorBlockRows, ... of the tile in column x, and writes
//         float x of the stretch of every kSectorBlockRows-th row of out.
// Costs : an eighth more reads, from a cache; 1 barrier; 4 (kLargeTile + kSector) kLargeTile bytes
//         of shared memory.
static __global__ void __launch_bounds__(kLargeTile* kSectorBlockRows)
    transpose_whole_sectors(float* out, const float* a, Piece piece) {
  constexpr unsigned kRows = kLargeTile + kSector, kHeld = kRows / kSectorBlockRows;
  __shared__ float tile[kRows][kLargeTile];
  const unsigned first_row = blockIdx.x * kLargeTile, first_col = blockIdx.y * kLargeTile;
  const unsigned x = threadIdx.x;
  float held[kHeld];
  GPU_UNROLL
  for (unsigned k = 0; k < kHeld; ++k) {
    // Above row 0 the number wraps around: no matrix has that many rows.
    const unsigned row = first_row - kSector + threadIdx.y + k * kSectorBlockRows;
    const unsigned col = first_col + x;
    held[k] = row < piece.rows && col < piece.cols ? a[row * piece.a_stride + col] : 0.0f;
  }
  GPU_UNROLL
  for (unsigned k = 0; k < kHeld; ++k) {
    const unsigned y = threadIdx.y + k * kSectorBlockRows;
    tile[y][x ^ y % kLargeTile] = held[k];  // swizzled
  }
  __syncthreads();  // the whole tile is in shared memory
  // exercise: rows of out, each from the last sector on that begins at first_row or before (about
  // 10 lines)
  GPU_UNROLL
  for (unsigned k = 0; k < kLargeTile / kSectorBlockRows; ++k) {
    const unsigned col = threadIdx.y + k * kSectorBlockRows;
    float* const row_of_out = out + (first_col + col) * piece.out_stride;
    const auto place = reinterpret_cast<std::uintptr_t>(row_of_out + first_row) / sizeof(float);
    const auto before = static_cast<unsigned>(place % kSector);  // the stretch begins that early
    const unsigned y = kSector - before + x, out_col = first_row - before + x;
    if (first_col + col < piece.cols && out_col < piece.rows)
      row_of_out[out_col] = tile[y][col ^ y % kLargeTile];
  }
  // end exercise
}

void launch_whole_sectors(float* out, const float* a, size_t rows, size_t cols,
                          hipStream_t stream) {
  for_each_piece(out, a, rows, cols, [=](float* to, const float* from, const Piece& piece) {
    // The last stretches may begin kSector - 1 floats early, and leave as many to one more block.
    Piece with_rest = piece;
    with_rest.rows += kSector - 1;
    LAUNCH_ON(stream, transpose_whole_sectors, grid_of_tiles(with_rest, kLargeTile, kLargeTile),
              dim3(kLargeTile, kSectorBlockRows), 0, to, from, piece);
  });
}

}  // namespace transpose
