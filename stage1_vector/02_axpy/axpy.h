// 1.2  scale: y = alpha * x, and axpy: y = alpha * x + y, over n floats.
//
// axpy ("a x plus y") is the update step of every gradient descent, and the first routine of BLAS
// level 1 (Lawson, Hanson, Kincaid, Krogh: Basic linear algebra subprograms for Fortran usage,
// 1979). scale moves 8 bytes per element (read x, write y), axpy 12 (read x and y, write y).
// Every launcher takes device arrays of n floats, any n (0 too), aligned to 4 bytes. y is x or does
// not overlap it: scale with y == x is BLAS's scal.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "common/gpu.h"
#include "common/program.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage1_vector/01_vector_add/detail/operations.h"

namespace axpy {

using vector_add::full_grid;
using vector_add::grid_stride_blocks;
using vector_add::kBlock;
using vector_add::kMaxThreads;
using vector_add::Split;
using vector_add::split_vectors;

// ---- What is computed: the new y from the old x and y -----------------------------------------

struct Scale {
  float alpha;
  __host__ __device__ float operator()(float x, float /*y*/) const { return alpha * x; }
};

struct Axpy {
  float alpha;
  __host__ __device__ float operator()(float x, float y) const { return alpha * x + y; }
};

// The references in double.
inline std::vector<double> scale_cpu(double alpha, const std::vector<float>& x) {
  std::vector<double> y(x.size());
  for (size_t i = 0; i < y.size(); ++i) y[i] = alpha * static_cast<double>(x[i]);
  return y;
}
inline std::vector<double> axpy_cpu(double alpha, const std::vector<float>& x,
                                    const std::vector<float>& y) {
  std::vector<double> result(x.size());
  for (size_t i = 0; i < result.size(); ++i)
    result[i] = alpha * static_cast<double>(x[i]) + static_cast<double>(y[i]);
  return result;
}

// What a correct float result may be off. The compiler may fuse alpha * x + y into one instruction
// that rounds once; unfused, the product and the sum round once each: u |product| and u |sum| of
// the rounded product (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed.,
// equation 2.4).
inline double bound(double product, double result) {
  return kFloatRoundoff * ((1 + kFloatRoundoff) * std::fabs(product) + std::fabs(result));
}

// ---- One element per thread -------------------------------------------------------------------

// y = update(x, y)    x, y (n), n < 2^32.
// Fixes : a CPU core takes the elements one after the other.
// Idea  : one thread per element; the last block is cut off at n.
// Thread: t = blockIdx.x * blockDim.x + threadIdx.x owns y[t].
// Costs : axpy 12 n bytes of global memory, scale 8 n: a y that is not used is not read.
template <class Update>
static __global__ void update_naive(float* y, const float* x, size_t n, Update update) {
  // exercise: update this thread's element, if it has one (about 2 lines)
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) y[i] = update(x[i], y[i]);
  // end exercise
}

template <class Update>
inline void launch_naive(float* y, float alpha, const float* x, size_t n) {
  for (size_t begin = 0; begin < n; begin += kMaxThreads) {  // once, unless n is huge
    const size_t count = std::min(n - begin, kMaxThreads);
    LAUNCH((update_naive<Update>), static_cast<unsigned>(gpu::ceil_div(count, kBlock)), kBlock, 0,
           y + begin, x + begin, count, Update{alpha});
  }
}

// ---- Grid-stride ------------------------------------------------------------------------------

// y = update(x, y)    x, y (n), any n.
// Fixes : naive needs a grid as large as n, and hands alpha to a new thread for every element.
// Idea  : the grid is as large as the device can use; each thread steps through y by grid lengths.
// Thread: t owns y[t], y[t + T], y[t + 2T], ... with T threads in the grid.
// Costs : axpy 12 n bytes of global memory, scale 8 n.
template <class Update>
static __global__ void update_grid_stride(float* y, const float* x, size_t n, Update update) {
  const size_t thread = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t i = thread; i < n; i += threads) y[i] = update(x[i], y[i]);
}

template <class Update>
inline void launch_grid_stride(float* y, float alpha, const float* x, size_t n) {
  if (n == 0) return;
  LAUNCH((update_grid_stride<Update>), grid_stride_blocks(n), kBlock, 0, y, x, n, Update{alpha});
}

// ---- 128-bit loads and stores -----------------------------------------------------------------

// y = update(x, y)    x, y (n), any n, any alignment.
// Fixes : grid_stride asks for 4 bytes per instruction, from addresses all over the arrays.
// Idea  : float4 moves 16 bytes per instruction, a full grid hands out the addresses in order; head
//         and tail are done element by element.
// Thread: t owns the float4s t, t + T, ... and of the head and tail the elements t, t + T, ...
// Costs : axpy 12 n bytes of global memory, scale 8 n, in a quarter of the instructions.
template <class Update>
static __global__ void update_vectorized(float* y, const float* x, Split split, Update update) {
  const size_t thread = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  // exercise: the float4s between head and tail, then the single elements (about 8 lines)
  const float4* x4 = reinterpret_cast<const float4*>(x + split.head);
  float4* y4 = reinterpret_cast<float4*>(y + split.head);
  for (size_t v = thread; v < split.vectors; v += threads)
    y4[v] = vector_add::apply(update, x4[v], y4[v]);
  for (size_t s = thread; s < split.head + split.tail; s += threads) {
    const size_t i = s < split.head ? s : s + 4 * split.vectors;
    y[i] = update(x[i], y[i]);
  }
  // end exercise
}

template <class Update>
inline void launch_vectorized(float* y, float alpha, const float* x, size_t n) {
  if (n == 0) return;
  const Split split = split_vectors(n, {y, x});
  LAUNCH((update_vectorized<Update>), full_grid(std::max(split.vectors, split.head + split.tail)),
         kBlock, 0, y, x, split, Update{alpha});
}

// ---- The versions -----------------------------------------------------------------------------

struct Launch {
  using Function = void (*)(float* y, float alpha, const float* x, size_t n);
  Function scale, axpy;
};

inline constexpr Version<Launch> kVersions[] = {
    {"naive", {launch_naive<Scale>, launch_naive<Axpy>}, "one element per thread"},
    {"grid_stride",
     {launch_grid_stride<Scale>, launch_grid_stride<Axpy>},
     "a grid that fits the device walks over the elements"},
    {"vectorized",
     {launch_vectorized<Scale>, launch_vectorized<Axpy>},
     "16 bytes per load and store"},
};

}  // namespace axpy
