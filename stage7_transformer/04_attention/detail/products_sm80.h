// The products of a tile on matrix units: fragments from shared memory and from registers.
#pragma once

#include "stage7_transformer/04_attention/detail/tiles_sm80.h"

#if !defined(GPU_BACKEND_HIP)

namespace attention {

using gemm_mixed::load_matrices;

// Two floats rounded to bf16 as one word, `low` in its lower half.
__device__ inline unsigned pack(float low, float high) {
  unsigned word;
#if defined(GPU_BACKEND_CUDA)
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
#else
  const bfloat16 pair[2] = {gpu::from_float<bfloat16>(low), gpu::from_float<bfloat16>(high)};
#endif
  memcpy(&word, &pair, sizeof word);
  return word;
}

// What mma.sync wants of the lanes, from 16 rows of kChunks chunks each that begin at `rows`.

// A (16, 16): elements 16 step, ..., 16 step + 15 of the rows.
template <int kChunks>
__device__ inline void load_rows(unsigned (&a)[4], const uint4* rows, int step) {
  const int lane = warp_lane();
  load_matrices(a, rows + chunk_place<kChunks>(lane % 16, 2 * step + lane / 16));
}
// B (16, 16) is the same transposed: b[0], b[1] are its columns 0 to 7, b[2], b[3] the others.
template <int kChunks>
__device__ inline void load_columns(unsigned (&b)[4], const uint4* rows, int step) {
  const int lane = warp_lane();
  load_matrices(b, rows + chunk_place<kChunks>(lane / 16 * 8 + lane % 8, 2 * step + lane / 8 % 2));
}
// B (16, 16): elements 16 pair, ..., 16 pair + 15 of the rows, as they are.
template <int kChunks>
__device__ inline void load_transposed(unsigned (&b)[4], const uint4* rows, int pair) {
  const int lane = warp_lane();
  gemm_mixed::load_transposed(b, rows + chunk_place<kChunks>(lane % 16, 2 * pair + lane / 16));
}

// c (16 kTiles, 8 kColumns) += a (16 kTiles, 16) · b, where b is columns 16 pair, ...
template <int kTiles, int kColumns>
__device__ inline void multiply_pair(float (&c)[kTiles][kColumns][4],
                                     const unsigned (&a)[kTiles][4], const unsigned (&b)[4],
                                     int pair) {
  GPU_UNROLL
  for (int i = 0; i < kTiles; ++i) {
    gemm_mixed::multiply_add<bfloat16>(c[i][2 * pair], a[i], b[0], b[1]);
    gemm_mixed::multiply_add<bfloat16>(c[i][2 * pair + 1], a[i], b[2], b[3]);
  }
}

// Columns 16 step, ..., 16 step + 15 of c (16, 8 kColumns) as a fragment of A: a lane holds the
// very elements that it must, and only rounds them.
//
//   c of columns 0-7:  lane l has row l/4, columns 2 (l%4), 2 (l%4) + 1  =  a[0]; row + 8 = a[1]
//   c of columns 8-15: the same                                          =  a[2];           a[3]
template <int kColumns>
__device__ inline void as_rows(unsigned (&a)[4], const float (&c)[kColumns][4], int step) {
  const float(&low)[4] = c[2 * step];
  const float(&high)[4] = c[2 * step + 1];
  a[0] = pack(low[0], low[1]);
  a[1] = pack(low[2], low[3]);
  a[2] = pack(high[0], high[1]);
  a[3] = pack(high[2], high[3]);
}

// c (16 kTiles, 8 kColumns) += so many rows times the transpose of so many other rows.
template <int kChunks, int kTiles, int kColumns>
__device__ inline void multiply_rows(float (&c)[kTiles][kColumns][4], const uint4* rows,
                                     const uint4* columns) {
  GPU_UNROLL
  for (int step = 0; step < kChunks / 2; ++step) {
    unsigned a[kTiles][4];
    GPU_UNROLL
    for (int i = 0; i < kTiles; ++i) load_rows<kChunks>(a[i], rows + 16 * i * kChunks, step);
    GPU_UNROLL
    for (int pair = 0; pair < kColumns / 2; ++pair) {
      unsigned b[4];
      load_columns<kChunks>(b, columns + 16 * pair * kChunks, step);
      multiply_pair(c, a, b, pair);
    }
  }
}

// sums (16 kTiles, depth) += weights (16 kTiles, 8 kColumns), rounded, times a tile of as many
// rows.
template <int kChunks, int kTiles, int kColumns>
__device__ inline void add_weighted(float (&sums)[kTiles][kChunks][4],
                                    const float (&weights)[kTiles][kColumns][4],
                                    const uint4* tile) {
  GPU_UNROLL
  for (int step = 0; step < kColumns / 2; ++step) {
    unsigned a[kTiles][4];
    GPU_UNROLL
    for (int i = 0; i < kTiles; ++i) as_rows(a[i], weights[i], step);
    GPU_UNROLL
    for (int pair = 0; pair < kChunks / 2; ++pair) {
      unsigned b[4];
      load_transposed<kChunks>(b, tile + 16 * step * kChunks, pair);
      multiply_pair(sums, a, b, pair);
    }
  }
}

}  // namespace attention

#endif
