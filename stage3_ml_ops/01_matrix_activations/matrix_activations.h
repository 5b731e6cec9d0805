// 3.1  Activations over a matrix: Y = f(X), and what a layer does to its sums, Y[r,c] = f(X[r,c] +
// bias[c]), with the backward pass grad_x = grad_y * f'(x + bias).
//
// Where an element's column does not matter, a row-major matrix is flat memory and stage 1's
// kernels do as they are. The bias does depend on the column: the ladder first gets rid of the
// matrix's second trip through memory, then of a division per element, then of 4-byte loads.
// forward moves 8 bytes per element, backward 12; the bias stays in the caches.
//
// x, y, grad_x, grad_y (rows, cols), row-major without gaps; bias (cols); any sizes (0 too), all
// aligned to 4 bytes. The output may be x, or grad_y; apart from that it overlaps no input. One
// exception: the backward pass of `separate` keeps x + bias in grad_x, which can't be grad_y then.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "common/gpu.h"
#include "common/program.h"
#include "stage1_vector/01_vector_add/detail/operations.h"
#include "stage1_vector/04_activations/activations.h"
#include "stage1_vector/04_activations/detail/vectors.h"
#include "stage1_vector/04_activations/reference.h"

namespace matrix_activations {

using vector_add::full_grid;
using vector_add::kBlock;
using vector_add::kMaxThreads;
using vector_add::Split;
using vector_add::split_vectors;

// ---- Reference --------------------------------------------------------------------------------

// x[r,c] + bias[c] in float. One IEEE addition rounds alike everywhere, so the reference takes the
// rounded sum too: activations::forward_cpu and backward_cpu of these sums, with the bounds of
// step 1.4, are what the kernels are held against.
inline std::vector<float> biased_cpu(const std::vector<float>& x, const std::vector<float>& bias) {
  std::vector<float> sums(x.size());
  for (size_t i = 0; i < sums.size(); ++i) sums[i] = x[i] + bias[i % bias.size()];
  return sums;
}

// ---- A matrix as flat memory ------------------------------------------------------------------

// Y = f(X)    x, y (rows, cols). No element needs to know its column: stage 1's kernel.
template <class Activation>
inline void launch_activation(float* y, const float* x, size_t rows, size_t cols,
                              hipStream_t stream = nullptr) {
  activations::launch_forward_vectorized<Activation>(y, x, rows * cols, stream);
}

// ---- What is computed for one element, or for four neighbours ---------------------------------
// A pass holds its inputs; pass(i, column) is the output's element i, which lies in `column`.
// pass.load(i) are the inputs' four elements from there on, where i is a multiple of 16 bytes, and
// pass.vector(loaded, four biases) the output's.

__device__ inline float4 load_vector(const float* from) {
  return *reinterpret_cast<const float4*>(from);
}

// The bias of four neighbours. It begins where it likes, and the rows of an odd matrix begin all
// over the place, so these four need not lie at a multiple of 16 bytes.
__device__ inline float4 load_bias(const float* bias) {
  if (reinterpret_cast<std::uintptr_t>(bias) % sizeof(float4) == 0) return load_vector(bias);
  return make_float4(bias[0], bias[1], bias[2], bias[3]);
}

template <class Activation>
struct Forward {
  const float *x, *bias;
  __device__ float operator()(size_t i, size_t column) const {
    return Activation{}(x[i] + bias[column]);
  }

  struct Loaded {
    float4 x;
  };
  __device__ Loaded load(size_t i) const { return {load_vector(x + i)}; }
  __device__ static float4 vector(const Loaded& loaded, float4 biases) {
    return activations::value<Activation>(vector_add::apply(vector_add::Add{}, loaded.x, biases));
  }
};

template <class Activation>
struct Backward {
  const float *grad_y, *x, *bias;
  __device__ float operator()(size_t i, size_t column) const {
    return grad_y[i] * Activation{}.derivative(x[i] + bias[column]);
  }

  struct Loaded {
    float4 grad_y, x;
  };
  __device__ Loaded load(size_t i) const { return {load_vector(grad_y + i), load_vector(x + i)}; }
  __device__ static float4 vector(const Loaded& loaded, float4 biases) {
    return activations::chain_rule<Activation>(
        loaded.grad_y, vector_add::apply(vector_add::Add{}, loaded.x, biases));
  }
};

// f(x) = x: what is left is the addition of the bias.
struct Identity {
  __host__ __device__ float operator()(float x) const { return x; }
};

// ---- One element per thread -------------------------------------------------------------------

// out[r,c] = pass(r * cols + c, c)    out (rows, cols), any sizes.
// Fixes : a CPU core takes the elements one after the other.
// Idea  : one thread per element of flat memory; its column is what the division by cols leaves.
// Thread: t owns out's elements t, t + T, ... of flat memory, with T threads in the grid.
// Costs : one 64-bit division per element, as many instructions as a tanh.
template <class Pass>
static __global__ void elementwise_flat(float* out, Pass pass, size_t n, size_t cols) {
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads)
    out[i] = pass(i, i % cols);
}

template <class Pass>
inline void launch_flat(float* out, Pass pass, size_t rows, size_t cols, hipStream_t stream) {
  const size_t n = rows * cols;
  if (n == 0) return;
  LAUNCH_ON(stream, (elementwise_flat<Pass>), full_grid(n), kBlock, 0, out, pass, n, cols);
}

// Two kernels: the sums go to memory and come back.
template <class Activation>
inline void launch_forward_separate(float* y, const float* x, const float* bias, size_t rows,
                                    size_t cols, hipStream_t stream = nullptr) {
  launch_flat(y, Forward<Identity>{x, bias}, rows, cols, stream);
  launch_activation<Activation>(y, y, rows, cols, stream);
}
template <class Activation>
inline void launch_backward_separate(float* grad_x, const float* grad_y, const float* x,
                                     const float* bias, size_t rows, size_t cols,
                                     hipStream_t stream = nullptr) {
  launch_flat(grad_x, Forward<Identity>{x, bias}, rows, cols, stream);
  activations::launch_backward_vectorized<Activation>(grad_x, grad_y, grad_x, rows * cols, stream);
}

// One kernel: the sum stays in a register.
template <class Activation>
inline void launch_forward_fused_flat(float* y, const float* x, const float* bias, size_t rows,
                                      size_t cols, hipStream_t stream = nullptr) {
  launch_flat(y, Forward<Activation>{x, bias}, rows, cols, stream);
}
template <class Activation>
inline void launch_backward_fused_flat(float* grad_x, const float* grad_y, const float* x,
                                       const float* bias, size_t rows, size_t cols,
                                       hipStream_t stream = nullptr) {
  launch_flat(grad_x, Backward<Activation>{grad_y, x, bias}, rows, cols, stream);
}

// ---- A grid of the matrix's shape -------------------------------------------------------------

// out[r,c] = pass(r * cols + c, c)    out (rows, cols), any sizes.
// Fixes : flat divides to find an element's column.
// Idea  : the grid has two dimensions too: x counts columns, y rows.
// Thread: (x, y) owns the columns x, x + X, ... of the rows y, y + Y, ... in a grid of X by Y.
// Costs : threads beyond the last column do nothing.
template <class Pass>
static __global__ void elementwise_2d(float* out, Pass pass, size_t rows, size_t cols) {
  // exercise: the loops over this thread's rows and columns (about 7 lines)
  const size_t first_column = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t first_row = size_t{blockIdx.y} * blockDim.y + threadIdx.y;
  const size_t next_column = size_t{gridDim.x} * blockDim.x;
  const size_t next_row = size_t{gridDim.y} * blockDim.y;
  for (size_t row = first_row; row < rows; row += next_row)
    for (size_t column = first_column; column < cols; column += next_column)
      out[row * cols + column] = pass(row * cols + column, column);
  // end exercise
}

// kBlock threads as wide as `items` per row, and so many blocks that each has its thread. A grid's
// y ends at 65535: beyond that the threads go round.
struct Grid {
  dim3 blocks, threads;
};
inline Grid grid_2d(size_t rows, size_t items) {
  constexpr unsigned kMaxGridY = 65535;
  unsigned width = 8;
  while (width < kBlock && width < items) width *= 2;
  const size_t across = std::min(gpu::ceil_div(items, width), vector_add::grid_limit / width);
  const size_t down = std::min(
      {gpu::ceil_div(rows, kBlock / width), size_t{kMaxGridY}, vector_add::grid_limit / kBlock});
  return {dim3(static_cast<unsigned>(across), static_cast<unsigned>(down)),
          dim3(width, kBlock / width)};
}

template <class Pass>
inline void launch_2d(float* out, Pass pass, size_t rows, size_t cols, hipStream_t stream) {
  if (rows == 0 || cols == 0) return;
  const Grid grid = grid_2d(rows, cols);
  LAUNCH_ON(stream, (elementwise_2d<Pass>), grid.blocks, grid.threads, 0, out, pass, rows, cols);
}

template <class Activation>
inline void launch_forward_fused_2d(float* y, const float* x, const float* bias, size_t rows,
                                    size_t cols, hipStream_t stream = nullptr) {
  launch_2d(y, Forward<Activation>{x, bias}, rows, cols, stream);
}
template <class Activation>
inline void launch_backward_fused_2d(float* grad_x, const float* grad_y, const float* x,
                                     const float* bias, size_t rows, size_t cols,
                                     hipStream_t stream = nullptr) {
  launch_2d(grad_x, Backward<Activation>{grad_y, x, bias}, rows, cols, stream);
}

// ---- 128-bit loads and stores -----------------------------------------------------------------

inline constexpr int kRowsPerThread = 4;

// How a row that begins at `row` is split; of a matrix with an odd number of columns each row is
// split in another way. vector_add.h draws it.
__device__ inline Split split_row(const float* row, size_t cols) {
  const size_t past = reinterpret_cast<std::uintptr_t>(row) % sizeof(float4) / sizeof(float);
  const size_t before = (4 - past) % 4;
  const size_t head = before < cols ? before : cols;
  const size_t vectors = (cols - head) / 4;
  return {head, vectors, cols - head - 4 * vectors};
}

// This thread's part of the kRows rows row, row + next_row, ..., which are all split alike: the
// float4s first, first + next, ... and the single elements of head and tail. The float4s of all
// kRows rows are on their way before the first is used, and share the biases.
template <int kRows, class Pass>
__device__ inline void elementwise_rows(float* out, const Pass& pass, size_t row, size_t next_row,
                                        size_t cols, size_t first, size_t next) {
  const size_t begin = row * cols, next_begin = next_row * cols;
  const Split split = split_row(out + begin, cols);
  // exercise: the float4s of the rows, then their single elements (about 15 lines)
  for (size_t v = first; v < split.vectors; v += next) {
    const size_t column = split.head + 4 * v;
    const float4 biases = load_bias(pass.bias + column);
    typename Pass::Loaded loaded[kRows];
    for (int k = 0; k < kRows; ++k) loaded[k] = pass.load(begin + k * next_begin + column);
    for (int k = 0; k < kRows; ++k)
      *reinterpret_cast<float4*>(out + begin + k * next_begin + column) =
          pass.vector(loaded[k], biases);
  }
  for (size_t s = first; s < split.head + split.tail; s += next) {
    const size_t column = s < split.head ? s : s + 4 * split.vectors;
    for (int k = 0; k < kRows; ++k) {
      const size_t i = begin + k * next_begin + column;
      out[i] = pass(i, column);
    }
  }
  // end exercise
}

// out[r,c] = pass(r * cols + c, c)    out (rows, cols), any sizes, as far behind a multiple
//         of 16 bytes in memory as the matrices of the pass.
// Fixes : 2d asks for 4 bytes per instruction, and has nothing on its way while it computes f.
// Idea  : float4s between each row's head and tail, of kRowsPerThread rows at a time.
// Thread: (x, y) owns the float4s x, x + X, ... and of head and tail the elements x, x + X, ... of
//         the rows y, y + Y, ..., kRowsPerThread per round.
// Costs : the same bytes in a quarter of the instructions; up to 6 single elements per row. Rows of
//         an odd matrix are split in different ways: one at a time.
template <class Pass>
static __global__ void elementwise_vectorized(float* out, Pass pass, size_t rows, size_t cols) {
  const size_t first = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t next = size_t{gridDim.x} * blockDim.x;
  const size_t next_row = size_t{gridDim.y} * blockDim.y;
  size_t row = size_t{blockIdx.y} * blockDim.y + threadIdx.y;
  if (cols % 4 == 0)
    for (; row + (kRowsPerThread - 1) * next_row < rows; row += kRowsPerThread * next_row)
      elementwise_rows<kRowsPerThread>(out, pass, row, next_row, cols, first, next);
  for (; row < rows; row += next_row)
    elementwise_rows<1>(out, pass, row, next_row, cols, first, next);
}

template <class Pass>
inline void launch_vectorized(float* out, Pass pass, size_t rows, size_t cols, hipStream_t stream) {
  if (rows == 0 || cols == 0) return;
  const Grid grid = grid_2d(gpu::ceil_div(rows, size_t{kRowsPerThread}), gpu::ceil_div(cols, 4));
  LAUNCH_ON(stream, (elementwise_vectorized<Pass>), grid.blocks, grid.threads, 0, out, pass, rows,
            cols);
}

// True where the arrays lie at the same distance from a multiple of 16 bytes. Where they do not, no
// row has a place at which all of them could be read 16 bytes at a time.
inline bool aligned_alike(std::initializer_list<const float*> arrays) {
  return split_vectors(7, arrays).vectors > 0;
}

template <class Activation>
inline void launch_forward_vectorized(float* y, const float* x, const float* bias, size_t rows,
                                      size_t cols, hipStream_t stream = nullptr) {
  const Forward<Activation> pass{x, bias};
  if (aligned_alike({y, x}))
    launch_vectorized(y, pass, rows, cols, stream);
  else
    launch_2d(y, pass, rows, cols, stream);
}
template <class Activation>
inline void launch_backward_vectorized(float* grad_x, const float* grad_y, const float* x,
                                       const float* bias, size_t rows, size_t cols,
                                       hipStream_t stream = nullptr) {
  const Backward<Activation> pass{grad_y, x, bias};
  if (aligned_alike({grad_x, grad_y, x}))
    launch_vectorized(grad_x, pass, rows, cols, stream);
  else
    launch_2d(grad_x, pass, rows, cols, stream);
}

// ---- The versions -----------------------------------------------------------------------------

struct Launch {
  void (*forward)(float* y, const float* x, const float* bias, size_t rows, size_t cols,
                  hipStream_t stream);
  void (*backward)(float* grad_x, const float* grad_y, const float* x, const float* bias,
                   size_t rows, size_t cols, hipStream_t stream);
};

// The same versions for every function: kVersions<Relu>, kVersions<Sigmoid>, ...
template <class Activation>
inline constexpr Version<Launch> kVersions[] = {
    {"separate",
     {launch_forward_separate<Activation>, launch_backward_separate<Activation>},
     "bias and activation in two kernels: the sums go to memory and come back"},
    {"fused_flat",
     {launch_forward_fused_flat<Activation>, launch_backward_fused_flat<Activation>},
     "one kernel; a division per element finds its column"},
    {"fused_2d",
     {launch_forward_fused_2d<Activation>, launch_backward_fused_2d<Activation>},
     "a grid of the matrix's shape: nothing to divide"},
    {"vectorized",
     {launch_forward_vectorized<Activation>, launch_backward_vectorized<Activation>},
     "16 bytes per load and store, row by row"},
};

}  // namespace matrix_activations
