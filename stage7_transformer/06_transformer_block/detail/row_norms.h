// Normalizations of a tile of rows, forwards and backwards: every row has kParts threads, which are
// in different waves. Their sums meet in shared memory.
#pragma once

#include "common/gpu.h"
#include "stage7_transformer/02_layernorm/detail/values.h"
#include "stage7_transformer/03_layernorm_backward/detail/values.h"
#include "stage7_transformer/06_transformer_block/detail/row_tiles.h"
#include "stage7_transformer/06_transformer_block/problem.h"

namespace transformer_block {

// Who has what: thread t owns kPartColumns neighbouring columns of row t % kTileRows.
template <bool kAligned>
struct PartPlace {
  using Fours = RowPlace<kAligned>;

  __device__ PartPlace(size_t first, size_t rows, size_t cols)
      : row(static_cast<int>(threadIdx.x) % kTileRows),
        part(static_cast<int>(threadIdx.x) / kTileRows),
        col(part * kPartColumns),
        at((first + static_cast<size_t>(row)) * cols + static_cast<size_t>(col)),
        is_row(first + static_cast<size_t>(row) < rows),
        count(static_cast<size_t>(col) < cols ? cols - static_cast<size_t>(col) : 0) {}

  // The thread's columns of a vector, or of its row of a matrix; 0 where there are none.
  __device__ void load(float (&values)[kPartColumns], const float* from, bool is_there) const {
    GPU_UNROLL
    for (int i = 0; i < kPartColumns; i += 4)
      Fours::load_four(values + i, from + i, is_there ? left(i) : 0);
  }
  __device__ void store(float* to, const float (&values)[kPartColumns]) const {
    GPU_UNROLL
    for (int i = 0; i < kPartColumns; i += 4)
      Fours::store_four(to + i, values + i, is_row ? left(i) : 0);
  }
  __device__ bool has(int i) const { return static_cast<size_t>(i) < count; }
  __device__ size_t left(int i) const { return has(i) ? count - static_cast<size_t>(i) : 0; }

  int row, part, col;
  size_t at;     // of the first of its numbers in a matrix
  bool is_row;   // the row is there
  size_t count;  // of its columns on
};

// The sum of what the kParts threads of a row have left in sums[slot].
__device__ inline float sum_of_parts(const RowTiles& tiles, int slot, int row) {
  float sum = tiles.sums[slot][0][row];
  for (int part = 1; part < kParts; ++part) sum += tiles.sums[slot][part][row];
  return sum;
}

struct Norm {
  const float *gain, *bias;     // (C)
  float *result, *mean, *rstd;  // (rows, C), (rows), (rows)
};

// tiles.a and norm.result = the rows of tiles.b, normalized as in step 7.2's row_cached.
template <bool kAligned>
__device__ inline void normalize(RowTiles& tiles, const Norm& norm, size_t first, size_t rows,
                                 size_t cols) {
  const PartPlace<kAligned> place(first, rows, cols);
  float gain[kPartColumns], bias[kPartColumns], held[kPartColumns];
  place.load(gain, norm.gain + place.col, true), place.load(bias, norm.bias + place.col, true);
  __syncthreads();  // the rows are in shared memory, and tiles.a was read
  const float origin = tiles.b[0][place.row];
  float sum = 0, squares = 0;
  GPU_UNROLL
  for (int i = 0; i < kPartColumns; ++i) {
    held[i] = place.has(i) ? tiles.b[place.col + i][place.row] - origin : 0;
    sum += held[i];
  }
  tiles.sums[0][place.part][place.row] = sum;
  __syncthreads();  // every part's sum is in shared memory
  const float mean = sum_of_parts(tiles, 0, place.row) / static_cast<float>(cols);
  GPU_UNROLL
  for (int i = 0; i < kPartColumns; ++i) {
    held[i] = place.has(i) ? held[i] - mean : 0;
    squares += held[i] * held[i];
  }
  tiles.sums[1][place.part][place.row] = squares;
  __syncthreads();  // so is every part's sum of squares
  const float variance = sum_of_parts(tiles, 1, place.row) / static_cast<float>(cols);
  const float rstd = 1.0f / sqrtf(variance + kEpsilon);
  GPU_UNROLL
  for (int i = 0; i < kPartColumns; ++i) {
    held[i] = layernorm::normalized(held[i], rstd, gain[i], bias[i]);
    tiles.a[place.col + i][place.row] = held[i];
  }
  place.store(norm.result + place.at, held);
  if (place.part == 0 && place.is_row) {
    norm.mean[first + static_cast<size_t>(place.row)] = origin + mean;
    norm.rstd[first + static_cast<size_t>(place.row)] = rstd;
  }
}

struct NormGradient {
  const float *x, *mean, *rstd, *gain, *past;  // past (rows, C): the gradient that went past it
  float *grad_x, *parts;                       // (rows, C), (blocks, 2, C)
};

// tiles.a and grad_x = the gradients of the rows of x from those of their norms, which are in
// tiles.b; parts[block] = this tile's sums for the gradients of gain and bias. Uses tiles.c.
template <bool kAligned>
__device__ inline void normalize_backward(RowTiles& tiles, const NormGradient& norm, size_t first,
                                          size_t rows, size_t cols) {
  const PartPlace<kAligned> place(first, rows, cols);
  const size_t row = first + static_cast<size_t>(place.row);
  float gain[kPartColumns], n[kPartColumns], g[kPartColumns], past[kPartColumns] = {};
  place.load(gain, norm.gain + place.col, true);
  place.load(n, norm.x + place.at, place.is_row);
  if (norm.past != nullptr) place.load(past, norm.past + place.at, place.is_row);
  const float mean = place.is_row ? norm.mean[row] : 0, rstd = place.is_row ? norm.rstd[row] : 0;
  __syncthreads();  // the gradients are in shared memory; a and c were read
  float sum = 0, sum_n = 0;
  GPU_UNROLL
  for (int i = 0; i < kPartColumns; ++i) {
    const float grad = tiles.b[place.col + i][place.row];
    n[i] = place.has(i) ? layernorm_backward::normal(n[i], mean, rstd) : 0;
    tiles.c[place.col + i][place.row] = grad * n[i];
    g[i] = grad * gain[i];
    sum += g[i];
    sum_n += g[i] * n[i];
  }
  tiles.sums[0][place.part][place.row] = sum;
  tiles.sums[1][place.part][place.row] = sum_n;
  __syncthreads();  // every part's sums are in shared memory, and the products for gain
  const float mean_g = sum_of_parts(tiles, 0, place.row) / static_cast<float>(cols);
  const float mean_gn = sum_of_parts(tiles, 1, place.row) / static_cast<float>(cols);
  GPU_UNROLL
  for (int i = 0; i < kPartColumns; ++i) {
    const float grad = layernorm_backward::gradient(g[i], n[i], rstd, mean_g, mean_gn);
    g[i] = place.has(i) ? grad + past[i] : 0;
    tiles.a[place.col + i][place.row] = g[i];
  }
  place.store(norm.grad_x + place.at, g);

  const int thread = static_cast<int>(threadIdx.x), column = thread % kRowWidth;
  if (thread >= 2 * kRowWidth || static_cast<size_t>(column) >= cols) return;
  const Activations& from = thread < kRowWidth ? tiles.c : tiles.b;
  float all = 0;
  for (int i = 0; i < kTileRows; ++i) all += from[column][i];
  norm.parts[(2 * size_t{blockIdx.x} + (thread < kRowWidth ? 0 : 1)) * cols +
             static_cast<size_t>(column)] = all;
}

}  // namespace transformer_block
