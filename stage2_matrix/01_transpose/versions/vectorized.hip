// vectorized: 4 x 4 elements per thread, 16 bytes per load and store.
#include "common/gpu.h"
#include "stage2_matrix/01_transpose/detail/pieces.h"
#include "stage2_matrix/01_transpose/transpose.h"

namespace transpose {

// The tile as it will be written: kWideTileCols rows of kQuads float4s each.
constexpr unsigned kQuads = kWideTileRows / 4;
constexpr unsigned kWideThreads = kQuads * kWideTileCols / 4;

// Eight lanes are served at a time, each with four banks. Those that write lie 4 rows apart, those
// that read are neighbours in a row. Both meet different banks if every fourth row is permuted.
__host__ __device__ static inline unsigned swizzled_quad(unsigned row, unsigned quad) {
  return quad ^ row / 4 % kQuads;
}

// out[col, row] = a[row, col]    a, out: the piece; rows and cols multiples of 4, all rows at
//                                multiples of 16 bytes.
// Fixes : several_elements moves 4 bytes per instruction, to and from shared memory too. That costs
//         little where memory is the limit: the two are equally fast on an H200.
// Idea  : a thread turns 4 x 4 elements in its registers: float4s in, float4s out, everywhere.
// Thread: t reads 4 float4s below each other, writes 4 float4s of the tile in shared memory, and
//         stores the float4s t, t + kWideThreads, ... of that tile.
// Costs : 1 barrier; 4 kWideTileRows kWideTileCols bytes of shared memory; 16 registers.
static __global__ void __launch_bounds__(kWideThreads)
    transpose_vectorized(float* out, const float* a, Piece piece) {
  __shared__ float4 tile[kWideTileCols][kQuads];
  const unsigned first_row = blockIdx.x * kWideTileRows, first_col = blockIdx.y * kWideTileCols;
  const unsigned x = threadIdx.x % (kWideTileCols / 4), y = threadIdx.x / (kWideTileCols / 4);
  // exercise: 4 float4s of a, turned, into the tile; wait; the tile into out (about 18 lines)
  const unsigned row = first_row + 4 * y, col = first_col + 4 * x;
  if (row < piece.rows && col < piece.cols) {  // 4 divides both: all 16 elements exist, or none
    float4 r[4];
    for (unsigned k = 0; k < 4; ++k)
      r[k] = *reinterpret_cast<const float4*>(a + (row + k) * piece.a_stride + col);
    const unsigned quad = swizzled_quad(4 * x, y);  // the same in all four rows
    tile[4 * x + 0][quad] = make_float4(r[0].x, r[1].x, r[2].x, r[3].x);
    tile[4 * x + 1][quad] = make_float4(r[0].y, r[1].y, r[2].y, r[3].y);
    tile[4 * x + 2][quad] = make_float4(r[0].z, r[1].z, r[2].z, r[3].z);
    tile[4 * x + 3][quad] = make_float4(r[0].w, r[1].w, r[2].w, r[3].w);
  }
  __syncthreads();  // the whole tile is in shared memory, turned
  for (unsigned k = 0; k < 4; ++k) {
    const unsigned i = threadIdx.x + k * kWideThreads, tile_row = i / kQuads, quad = i % kQuads;
    const unsigned out_row = first_col + tile_row, out_col = first_row + 4 * quad;
    if (out_row < piece.cols && out_col < piece.rows)
      *reinterpret_cast<float4*>(out + out_row * piece.out_stride + out_col) =
          tile[tile_row][swizzled_quad(tile_row, quad)];
  }
  // end exercise
}

void launch_vectorized(float* out, const float* a, size_t rows, size_t cols, hipStream_t stream) {
  if (!fits_float4(out, a, rows, cols)) return launch_whole_sectors(out, a, rows, cols, stream);
  for_each_piece(out, a, rows, cols, [=](float* to, const float* from, const Piece& piece) {
    LAUNCH_ON(stream, transpose_vectorized, grid_of_tiles(piece, kWideTileRows, kWideTileCols),
              kWideThreads, 0, to, from, piece);
  });
}

unsigned quad_of_vectorized(unsigned row, unsigned quad) { return swizzled_quad(row, quad); }

}  // namespace transpose
