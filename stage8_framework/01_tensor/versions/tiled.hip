// tiled: where the two sides run along different axes, a tile in shared memory turns them.
#include "common/gpu.h"
#include "stage2_matrix/01_transpose/detail/pieces.h"
#include "stage8_framework/01_tensor/detail/walk.h"

namespace tensor {

using transpose::kLargeTile;

// A stack of matrices: out runs along the rows of a, a along its columns. All strides are those of
// the whole copy.
struct Turned {
  unsigned rows, cols;                          // of a matrix of a
  std::int64_t a_row, a_col, out_row, out_col;  // strides; a row of out is a column of a
  Divisor tiles_down, tiles_across;
  Walk matrices;  // from the number of a matrix to where it begins
};

constexpr unsigned kTurnedElements = 16;                        // per thread
constexpr unsigned kTurnedRows = kLargeTile / kTurnedElements;  // of a tile, read at once

// out[col, row] = a[row, col] for every matrix    kLargeTile x kTurnedRows threads.
// Fixes : where the axis along which a runs is not out's last one, each lane of collapsed reads
//         another line of memory.
// Idea  : 2.1's tile: a block reads it along the rows of a and writes it along the rows of out.
// Thread: (x, y) reads rows y, y + kTurnedRows, ... of its tile in column x, and writes as many.
// Costs : 1 barrier; kLargeTile kLargeTile elements of shared memory; kTurnedElements registers.
template <class Word>
static __global__ void __launch_bounds__(kLargeTile* kTurnedRows)
    copy_tiled(Word* out, const Word* a, Turned turned) {
  __shared__ Word tile[kLargeTile][kLargeTile];
  const unsigned across = turned.tiles_down.quotient(blockIdx.x);
  const unsigned matrix = turned.tiles_across.quotient(across);
  const unsigned first_row = (blockIdx.x - across * turned.tiles_down.value) * kLargeTile;
  const unsigned first_col = (across - matrix * turned.tiles_across.value) * kLargeTile;
  const Walk::Place place = turned.matrices(matrix);
  out += place.out, a += place.a;
  const unsigned x = threadIdx.x;
  // exercise: kTurnedElements loads, as many stores to the tile; wait; write out (about 15 lines)
  Word held[kTurnedElements];
  GPU_UNROLL
  for (unsigned k = 0; k < kTurnedElements; ++k) {
    const unsigned row = first_row + threadIdx.y + k * kTurnedRows, col = first_col + x;
    held[k] = row < turned.rows && col < turned.cols ? a[row * turned.a_row + col * turned.a_col]
                                                     : Word{};
  }
  GPU_UNROLL
  for (unsigned k = 0; k < kTurnedElements; ++k) {
    const unsigned y = threadIdx.y + k * kTurnedRows;
    tile[y][x ^ y] = held[k];  // swizzled: a column of the tile lies in different banks
  }
  __syncthreads();  // the whole tile is in shared memory
  GPU_UNROLL
  for (unsigned k = 0; k < kTurnedElements; ++k) {
    const unsigned y = threadIdx.y + k * kTurnedRows;
    const unsigned col = first_col + y, row = first_row + x;
    if (row < turned.rows && col < turned.cols)
      out[col * turned.out_row + row * turned.out_col] = tile[x][y ^ x];
  }
  // end exercise
}

template <class Word>
static void launch_tiles(Word* out, const Word* a, const Problem& p, unsigned axis,
                         hipStream_t stream) {
  const unsigned last = p.rank - 1;
  const unsigned down = static_cast<unsigned>(gpu::ceil_div(p.extent[last], kLargeTile));
  const unsigned across = static_cast<unsigned>(gpu::ceil_div(p.extent[axis], kLargeTile));
  Turned turned{static_cast<unsigned>(p.extent[last]),
                static_cast<unsigned>(p.extent[axis]),
                p.a_stride[last],
                p.a_stride[axis],
                p.out_stride[axis],
                p.out_stride[last],
                Divisor(down),
                Divisor(across),
                {}};
  Problem matrices = p;
  remove_axis(matrices, last);
  remove_axis(matrices, axis);
  turned.matrices = Walk(matrices);
  const size_t blocks = size_t{down} * across * static_cast<size_t>(matrices.elements());
  LAUNCH_ON(stream, copy_tiled<Word>, static_cast<unsigned>(blocks), dim3(kLargeTile, kTurnedRows),
            0, out, a, turned);
}

void launch_tiled(void* out, const void* a, size_t bytes, const Problem& p, hipStream_t stream) {
  const Problem all = collapse(p);
  if (turned_axis(all) == all.rank) return launch_collapsed(out, a, bytes, p, stream);
  with_word(bytes, [&](auto word) {
    using Word = decltype(word);
    for_each_part(all, [&](const Problem& piece, std::int64_t to, std::int64_t from) {
      Word* const there = static_cast<Word*>(out) + to;
      const Word* const here = static_cast<const Word*>(a) + from;
      // A cut leaves an axis shorter, or takes it away.
      if (const unsigned axis = turned_axis(piece); axis < piece.rank)
        launch_tiles(there, here, piece, axis, stream);
      else
        launch_collapsed(there, here, bytes, piece, stream);
    });
  });
}

}  // namespace tensor
