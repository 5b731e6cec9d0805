// The softmax of rows whose scores come tile by tile, in the registers of a product.
#pragma once

#include "stage7_transformer/04_attention/detail/sizes_sm80.h"

#if !defined(GPU_BACKEND_HIP)

namespace attention {

// The running softmax of a warp's queries, 16 kTiles rows. A lane has two rows in every 16, and of
// each row's sum only what its own elements add to it. Scores are counted in units of log 2.
template <int kTiles>
struct RunningSoftmax {
  float shift[kTiles][2];  // the largest score so far, -infinity before the first key
  float sum[kTiles][2];    // of 2^(score - shift)

  __device__ RunningSoftmax() {
    GPU_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      shift[i][0] = shift[i][1] = kNone;
      sum[i][0] = sum[i][1] = 0;
    }
  }

  // Turns the scores of a tile, unit * scores, into weights 2^(score - shift). Where they raise the
  // shift, what has been summed before becomes smaller, and out with it.
  template <int kColumns, int kOutColumns>
  __device__ void add(float (&scores)[kTiles][kColumns][4], float (&out)[kTiles][kOutColumns][4],
                      float unit) {
    float smaller[kTiles][2];
    weigh(scores, unit, smaller);
    shrink(out, smaller);
  }

  // The same in two parts, for those who have something to do in between: the weights, and the
  // factors of the rows that out still has to be multiplied by.
  template <int kColumns>
  __device__ void weigh(float (&scores)[kTiles][kColumns][4], float unit,
                        float (&smaller)[kTiles][2]) {
    GPU_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      smaller[i][0] = weigh_row<0>(scores[i], unit, shift[i][0], sum[i][0]);
      smaller[i][1] = weigh_row<2>(scores[i], unit, shift[i][1], sum[i][1]);
    }
  }
  template <int kOutColumns>
  static __device__ void shrink(float (&out)[kTiles][kOutColumns][4],
                                const float (&smaller)[kTiles][2]) {
    GPU_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      GPU_UNROLL
      for (int j = 0; j < kOutColumns; ++j) {
        GPU_UNROLL
        for (int k = 0; k < 4; ++k) out[i][j][k] *= smaller[i][k / 2];
      }
    }
  }

  // Completes the sums.
  __device__ void finish() {
    GPU_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      GPU_UNROLL
      for (float& row_sum : sum[i]) {
        row_sum += gpu::wave_shfl_xor(row_sum, 1);
        row_sum += gpu::wave_shfl_xor(row_sum, 2);
      }
    }
  }

 private:
  // The row that this lane's elements kFirst, kFirst + 1 of each 16 x 8 belong to. Returns the
  // factor of what was summed before.
  template <int kFirst, int kColumns>
  static __device__ float weigh_row(float (&scores)[kColumns][4], float unit, float& shift,
                                    float& sum) {
    float highest = fmaxf(scores[0][kFirst], scores[0][kFirst + 1]);
    GPU_UNROLL
    for (int j = 1; j < kColumns; ++j)
      highest = fmaxf(highest, fmaxf(scores[j][kFirst], scores[j][kFirst + 1]));
    highest = fmaxf(highest, gpu::wave_shfl_xor(highest, 1));
    highest = fmaxf(highest, gpu::wave_shfl_xor(highest, 2));  // a row is spread over four lanes
    // The difference of two shifts is taken of what the weights were made with, rounded as it is:
    // an error common to all of a row's weights goes out with the division by their sum.
    const float before = shift;
    shift = fmaxf(before, unit * highest);
    const float subtract = shift == kNone ? 0 : shift;
    const float smaller = gpu::exp2_flushed(before - subtract);
    float added = 0;
    GPU_UNROLL
    for (int j = 0; j < kColumns; ++j) {
      GPU_UNROLL
      for (int k = kFirst; k < kFirst + 2; ++k) {
        scores[j][k] = gpu::exp2_flushed(fmaf(scores[j][k], unit, -subtract));
        added += scores[j][k];
      }
    }
    sum = sum * smaller + added;
    return smaller;
  }
};

}  // namespace attention

#endif
