// 6.2  maxpool: of each window of an image only the largest value goes on, and on the way back only
// that value's cell gets the gradient.
//
//   y[n,c,p,q]      = max over r < R, s < S of x[n,c, p stride_h - pad_h + r, q stride_w - pad_w +
//   s] argmax[n,c,p,q] = r S + s of the cell that was taken: where its gradient goes
//   grad_x[n,c,h,w] = sum of grad_y over the windows whose argmax is the cell (h, w)
//
//   x, grad_x (N,C,H,W)    y, grad_y, argmax (N,C,P,Q)     row-major without gaps, on the device
//
// Nothing is computed: 2x2 windows every 2 cells compare three times per 22 bytes, and what can be
// won is in how the memory is asked. Windows may overlap (a stride smaller than the window) or
// leave cells out. What lies outside the image is no cell and is never taken. Of equal values the
// first in row-major order is, and NaN is larger than every number, so that a NaN is not lost: the
// first one.
//
// Any sizes; float arrays are aligned to 4 bytes and argmax to 2. Outputs overlap no input.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/gpu.h"
#include "common/program.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage3_ml_ops/01_matrix_activations/matrix_activations.h"

namespace maxpool {

using matrix_activations::Grid;
using matrix_activations::grid_2d;
using vector_add::full_grid;
using vector_add::kBlock;

// ---- The problem ------------------------------------------------------------------------------

struct Problem {
  size_t N, C, H, W;  // images, channels, rows and columns of x
  size_t R, S;        // rows and columns of a window
  size_t stride_h, stride_w;
  size_t pad_h = 0, pad_w = 0;  // rows above and below, columns left and right that hold no cell
};

struct Extent {
  size_t height, width;
};

// The place of a cell in its window, row-major: r * S + s.
using Index = std::uint16_t;

// P and Q: how many windows fit below and beside one another. Throws std::invalid_argument, one
// line, where the problem can't be. As the padding is smaller than the window, the first window
// reaches into the image, and the last one, which begins before H + pad_h - R + 1, begins in it:
// each window has a cell.
inline Extent output_of(const Problem& p) {
  constexpr size_t kMost = size_t{1} << 30;  // the kernels count rows and columns in 32 bits
  const auto refuse = [](const std::string& what) {
    throw std::invalid_argument("maxpool: " + what);
  };
  const auto pair = [](size_t a, size_t b) { return std::to_string(a) + "x" + std::to_string(b); };
  if (p.R == 0 || p.S == 0) refuse("a window of " + pair(p.R, p.S) + " has no cell");
  if (p.R > 65536 || p.S > 65536 || p.R * p.S > 65536)
    refuse("a window of " + pair(p.R, p.S) + " has more than the 65536 cells that 16 bits number");
  if (p.stride_h == 0 || p.stride_w == 0)
    refuse("a stride of " + pair(p.stride_h, p.stride_w) + " never moves on");
  if (p.pad_h >= p.R || p.pad_w >= p.S)
    refuse("with a padding of " + pair(p.pad_h, p.pad_w) + " some windows of " + pair(p.R, p.S) +
           " could have no cell");
  if (p.H == 0 || p.W == 0) refuse("an image of " + pair(p.H, p.W) + " has no cell");
  if (std::max({p.H, p.W, p.stride_h, p.stride_w}) > kMost)
    refuse("rows, columns and strides are at most 2^30");
  if (p.H + 2 * p.pad_h < p.R || p.W + 2 * p.pad_w < p.S)
    refuse("a window of " + pair(p.R, p.S) + " does not fit an image of " + pair(p.H, p.W) +
           " with a padding of " + pair(p.pad_h, p.pad_w));
  return {(p.H + 2 * p.pad_h - p.R) / p.stride_h + 1, (p.W + 2 * p.pad_w - p.S) / p.stride_w + 1};
}

// ---- Reference and bound ----------------------------------------------------------------------

struct Pooled {
  std::vector<double> y;
  std::vector<Index> argmax;
};

// A maximum is one of its values: nothing is rounded, and a float version agrees exactly.
inline Pooled forward_cpu(const std::vector<float>& x, const Problem& p) {
  const Extent out = output_of(p);
  Pooled pooled;
  for (size_t plane = 0; plane < p.N * p.C; ++plane)
    for (size_t i = 0; i < out.height * out.width; ++i) {
      bool found = false;
      double best = 0;
      size_t place = 0;
      for (size_t cell = 0; cell < p.R * p.S; ++cell) {
        const size_t row =
            i / out.width * p.stride_h + cell / p.S;  // from where the padding begins
        const size_t column = i % out.width * p.stride_w + cell % p.S;
        if (row < p.pad_h || row - p.pad_h >= p.H || column < p.pad_w || column - p.pad_w >= p.W)
          continue;
        const double value =
            static_cast<double>(x[(plane * p.H + row - p.pad_h) * p.W + column - p.pad_w]);
        if (!found || value > best || (std::isnan(value) && !std::isnan(best)))
          found = true, best = value, place = cell;
      }
      pooled.y.push_back(best);
      pooled.argmax.push_back(static_cast<Index>(place));
    }
  return pooled;
}

// grad_x in double, and what a float version may be off.
struct Expected {
  std::vector<double> value, bound;
};

// A cell that k windows have taken gets a sum of k terms, whose k - 1 additions round in whatever
// order: off by at most gamma(k - 1) times the sum of their absolute values, gamma(k) = k u / (1 -
// k u) (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 4.2). One term is
// exact, and windows that don't overlap leave no more.
inline Expected backward_cpu(const std::vector<float>& grad_y, const std::vector<Index>& argmax,
                             const Problem& p) {
  const Extent out = output_of(p);
  const size_t cells = p.N * p.C * p.H * p.W;
  Expected grad_x{std::vector<double>(cells), std::vector<double>(cells)};
  std::vector<double> terms(cells);
  for (size_t i = 0; i < grad_y.size(); ++i) {
    const size_t plane = i / (out.height * out.width), window = i % (out.height * out.width);
    const size_t row = window / out.width * p.stride_h + argmax[i] / p.S - p.pad_h;
    const size_t column = window % out.width * p.stride_w + argmax[i] % p.S - p.pad_w;
    const size_t cell = (plane * p.H + row) * p.W + column;
    const double grad = static_cast<double>(grad_y[i]);
    grad_x.value[cell] += grad, grad_x.bound[cell] += std::fabs(grad);
    ++terms[cell];
  }
  for (size_t cell = 0; cell < cells; ++cell) {
    const double ku = std::max(terms[cell] - 1, 0.0) * kFloatRoundoff;
    grad_x.bound[cell] *= ku / (1 - ku);
  }
  return grad_x;
}

// ---- Tuning -----------------------------------------------------------------------------------

inline constexpr unsigned kForwardItems = 2;   // of two loads of 16 bytes, on their way per thread
inline constexpr unsigned kBackwardItems = 2;  // of loads of 8 and 4 bytes, likewise
inline constexpr unsigned kGatherRows = 4;     // of grad_x, per thread of `gather`

// ---- What the kernels know of a problem -------------------------------------------------------

// n / d for n < 2^31 and a d that is known before the launch: a product and two shifts in place of
// some twenty instructions. With s = ceil(log2 d) and m = ceil(2^(31+s) / d) = (2^(31+s) + e) / d,
// where e < d <= 2^s, n m / 2^(31+s) is n / d and less than 1 / d more: not enough to reach the
// next integer. (Granlund and Montgomery: Division by invariant integers using multiplication,
// 1994.)
struct Divisor {
  Divisor() = default;
  explicit Divisor(size_t d) {
    while (size_t{1} << shift < d) ++shift;
    multiplier = static_cast<unsigned>(gpu::ceil_div(size_t{1} << (31 + shift), d));
  }
  __host__ __device__ unsigned quotient(unsigned n) const {
    return static_cast<unsigned>(std::uint64_t{2 * n} * multiplier >> 32) >> shift;
  }
  unsigned multiplier = 0, shift = 0;
};

// A problem in numbers of 32 bits. A plane is one channel of one image.
struct Shape {
  unsigned planes, H, W, P, Q, R, S, stride_h, stride_w, pad_h, pad_w;
  Divisor by_H, by_P, by_stride_h, by_stride_w;
};

inline Shape shape_of(const Problem& p) {
  const Extent out = output_of(p);
  const auto narrow = [](size_t n) { return static_cast<unsigned>(n); };
  Shape shape{};
  shape.H = narrow(p.H), shape.W = narrow(p.W);
  shape.P = narrow(out.height), shape.Q = narrow(out.width);
  shape.R = narrow(p.R), shape.S = narrow(p.S);
  shape.stride_h = narrow(p.stride_h), shape.stride_w = narrow(p.stride_w);
  shape.pad_h = narrow(p.pad_h), shape.pad_w = narrow(p.pad_w);
  shape.by_H = Divisor(p.H), shape.by_P = Divisor(out.height);
  shape.by_stride_h = Divisor(p.stride_h), shape.by_stride_w = Divisor(p.stride_w);
  return shape;
}

// Calls launch(first, planes) for all planes: once, unless `items` per plane are more than 32 bits
// can count.
template <class Launch>
inline void for_planes(const Problem& p, size_t items, Launch&& launch) {
  const size_t all = p.N * p.C, most = std::max(((size_t{1} << 31) - 1) / items, size_t{1});
  for (size_t first = 0; first < all; first += most)
    launch(first, static_cast<unsigned>(std::min(most, all - first)));
}

// ---- A window ---------------------------------------------------------------------------------

struct Largest {
  float value;
  unsigned place;
};

// What is not larger comes too late. A comparison with NaN is false: `not less or equal` lets a NaN
// win over numbers, and nothing wins over a NaN.
__device__ inline void take(Largest& best, float value, unsigned place) {
  // exercise: replace the best by a larger value or by the first NaN (about 2 lines)
  const bool larger = !(value <= best.value) && best.value == best.value;
  best = {larger ? value : best.value, larger ? place : best.place};
  // end exercise
}

// The rows [begin, end) of a window of `size` rows that lie in an image of `extent` rows, where the
// window's row 0 is the image's row `first`; columns alike.
struct Inside {
  int begin, end;
};
__device__ inline Inside inside(int first, unsigned size, unsigned extent) {
  return {max(-first, 0), min(static_cast<int>(size), static_cast<int>(extent) - first)};
}

// The largest cell of the window (p, q) of a plane. Where all are -infinity it is the first.
__device__ inline Largest largest(const float* plane, const Shape& shape, unsigned p, unsigned q) {
  const int top = static_cast<int>(p * shape.stride_h) - static_cast<int>(shape.pad_h);
  const int left = static_cast<int>(q * shape.stride_w) - static_cast<int>(shape.pad_w);
  const Inside rows = inside(top, shape.R, shape.H), columns = inside(left, shape.S, shape.W);
  Largest best = {-INFINITY, static_cast<unsigned>(rows.begin) * shape.S +
                                 static_cast<unsigned>(columns.begin)};
  for (int r = rows.begin; r < rows.end; ++r) {
    const float* row = plane + static_cast<size_t>(top + r) * shape.W;
    for (int s = columns.begin; s < columns.end; ++s)
      take(best, row[left + s], static_cast<unsigned>(r) * shape.S + static_cast<unsigned>(s));
  }
  return best;
}

// ---- Forward: one output per thread -----------------------------------------------------------

// y, argmax = the largest of each window    x (planes,H,W), y, argmax (planes,P,Q), any sizes.
// Fixes : a CPU core takes the windows one after the other.
// Idea  : one thread per output; plane, row and column are what divisions leave of its number.
// Thread: t owns the outputs t, t + T, ... of flat memory, with T threads in the grid.
// Costs : 4 H W + 6 P Q bytes per plane; two 64-bit divisions per output, one load on its way.
static __global__ void forward_thread_per_output(float* y, Index* argmax, const float* x,
                                                 Shape shape, size_t outputs) {
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < outputs; i += threads) {
    const size_t row = i / shape.Q, plane = row / shape.P;
    const Largest best =
        largest(x + plane * shape.H * shape.W, shape, static_cast<unsigned>(row % shape.P),
                static_cast<unsigned>(i % shape.Q));
    y[i] = best.value;
    argmax[i] = static_cast<Index>(best.place);
  }
}

inline void launch_thread_per_output(float* y, Index* argmax, const float* x, const Problem& p,
                                     hipStream_t stream = nullptr) {
  const Shape shape = shape_of(p);
  const size_t outputs = p.N * p.C * shape.P * shape.Q;
  if (outputs > 0)
    LAUNCH_ON(stream, forward_thread_per_output, full_grid(outputs), kBlock, 0, y, argmax, x, shape,
              outputs);
}

// ---- Forward: a grid of the output's rows -----------------------------------------------------

// y, argmax = the largest of each window    x (planes,H,W), y, argmax (planes,P,Q), any sizes.
// Fixes : thread_per_output divides twice in 64 bits for every output.
// Idea  : the grid's x counts columns, its y the rows of all planes: one short division per row.
// Thread: (x, y) owns the columns x, x + X, ... of the rows y, y + Y, ... in a grid of X by Y.
// Costs : 4 H W + 6 P Q bytes per plane; the loop knows no bounds, so few loads are on their way.
static __global__ void forward_rows(float* y, Index* argmax, const float* x, Shape shape) {
  const unsigned first_q = blockIdx.x * blockDim.x + threadIdx.x, next_q = gridDim.x * blockDim.x;
  const unsigned first_row = blockIdx.y * blockDim.y + threadIdx.y;
  const unsigned next_row = gridDim.y * blockDim.y;
  for (unsigned row = first_row; row < shape.planes * shape.P; row += next_row) {
    const unsigned plane = shape.by_P.quotient(row), p = row - plane * shape.P;
    for (unsigned q = first_q; q < shape.Q; q += next_q) {
      const size_t i = size_t{row} * shape.Q + q;
      const Largest best = largest(x + size_t{plane} * shape.H * shape.W, shape, p, q);
      y[i] = best.value;
      argmax[i] = static_cast<Index>(best.place);
    }
  }
}

// Launches such a kernel for all planes.
template <class Kernel>
inline void launch_over_rows(Kernel&& kernel, float* y, Index* argmax, const float* x,
                             const Problem& p) {
  Shape shape = shape_of(p);
  for_planes(p, shape.P, [&](size_t first, unsigned planes) {
    shape.planes = planes;
    const size_t output = first * shape.P * shape.Q;
    kernel(grid_2d(size_t{planes} * shape.P, shape.Q), y + output, argmax + output,
           x + first * shape.H * shape.W, shape);
  });
}

inline void launch_rows(float* y, Index* argmax, const float* x, const Problem& p,
                        hipStream_t stream = nullptr) {
  launch_over_rows(
      [&](const Grid& grid, float* to, Index* places, const float* from, const Shape& shape) {
        LAUNCH_ON(stream, forward_rows, grid.blocks, grid.threads, 0, to, places, from, shape);
      },
      y, argmax, x, p);
}

// ---- Forward: a window that the compiler knows ------------------------------------------------

// y, argmax = the largest of each window    x (planes,H,W), y, argmax (planes,P,Q); R = kR, S = kS.
// Fixes : the loop of rows compares a cell before it asks for the next, and counts as much as it
//         compares.
// Idea  : with kR and kS known there are no loops: all cells are on their way before the first is
//         looked at. What lies outside the image is -infinity, which is never larger.
// Thread: (x, y) owns the columns x, x + X, ... of the rows y, y + Y, ... in a grid of X by Y.
// Costs : 4 H W + 6 P Q bytes per plane; kR kS registers; a kernel for each size of a window.
template <unsigned kR, unsigned kS>
static __global__ void forward_unrolled(float* y, Index* argmax, const float* x, Shape shape) {
  const unsigned first_q = blockIdx.x * blockDim.x + threadIdx.x, next_q = gridDim.x * blockDim.x;
  const unsigned first_row = blockIdx.y * blockDim.y + threadIdx.y;
  const unsigned next_row = gridDim.y * blockDim.y;
  for (unsigned row = first_row; row < shape.planes * shape.P; row += next_row) {
    const unsigned plane = shape.by_P.quotient(row), p = row - plane * shape.P;
    const int top = static_cast<int>(p * shape.stride_h) - static_cast<int>(shape.pad_h);
    const Inside rows = inside(top, kR, shape.H);
    for (unsigned q = first_q; q < shape.Q; q += next_q) {
      const int left = static_cast<int>(q * shape.stride_w) - static_cast<int>(shape.pad_w);
      const Inside columns = inside(left, kS, shape.W);
      // The window's corner may lie outside: this wraps around, and back where a cell is added.
      const size_t corner = (size_t{plane} * shape.H + static_cast<size_t>(top)) * shape.W +
                            static_cast<size_t>(left);
      // exercise: load all cells, take the largest, store it with its place (about 19 lines)
      float cells[kR][kS];
      GPU_UNROLL
      for (int r = 0; r < static_cast<int>(kR); ++r) {
        GPU_UNROLL
        for (int s = 0; s < static_cast<int>(kS); ++s) {
          const bool is_cell =
              r >= rows.begin && r < rows.end && s >= columns.begin && s < columns.end;
          const size_t cell = corner + static_cast<size_t>(r) * shape.W + static_cast<size_t>(s);
          cells[r][s] = is_cell ? x[cell] : -INFINITY;
        }
      }
      Largest best = {
          -INFINITY, static_cast<unsigned>(rows.begin) * kS + static_cast<unsigned>(columns.begin)};
      GPU_UNROLL
      for (unsigned r = 0; r < kR; ++r) {
        GPU_UNROLL
        for (unsigned s = 0; s < kS; ++s) take(best, cells[r][s], r * kS + s);
      }
      const size_t i = size_t{row} * shape.Q + q;
      y[i] = best.value;
      argmax[i] = static_cast<Index>(best.place);
      // end exercise
    }
  }
}

template <unsigned kR, unsigned kS>
inline void launch_window(float* y, Index* argmax, const float* x, const Problem& p,
                          hipStream_t stream) {
  launch_over_rows(
      [&](const Grid& grid, float* to, Index* places, const float* from, const Shape& shape) {
        LAUNCH_ON(stream, (forward_unrolled<kR, kS>), grid.blocks, grid.threads, 0, to, places,
                  from, shape);
      },
      y, argmax, x, p);
}

// Windows for which there is no kernel are left to `rows`.
inline void launch_unrolled(float* y, Index* argmax, const float* x, const Problem& p,
                            hipStream_t stream = nullptr) {
  if (p.R == 2 && p.S == 2)
    launch_window<2, 2>(y, argmax, x, p, stream);
  else if (p.R == 3 && p.S == 3)
    launch_window<3, 3>(y, argmax, x, p, stream);
  else
    launch_rows(y, argmax, x, p, stream);
}

// ---- 2x2 windows every 2 cells ----------------------------------------------------------------
// Two rows of x make one row of y, and kWidth neighbours of both make kWidth / 2 neighbours of y:
//
//   x  row 2p    | a b c d | e f g h | ...        item i: the kWidth = 4 cells of both rows
//      row 2p+1  | A B C D | E F G H | ...
//   y  row p     | max(a,b,A,B) max(c,d,C,D) | ...
//
// Rows of W / kWidth such items follow one another without gaps, in y as well: item i of all is y's
// values i kWidth / 2, ..., and its cells begin i kWidth behind as many rows as there are above it.

// n neighbours that are loaded and stored by one instruction.
template <class T, unsigned n>
struct alignas(sizeof(T) * n) Pack {
  T element[n];
};
template <unsigned n, class T>
__host__ __device__ inline Pack<T, n>* packs(T* values) {
  return reinterpret_cast<Pack<T, n>*>(values);
}
template <unsigned n, class T>
__host__ __device__ inline const Pack<T, n>* packs(const T* values) {
  return reinterpret_cast<const Pack<T, n>*>(values);
}

// Where an item's cells are, in packs of kWidth.
struct RowPairs {
  unsigned items;     // of all planes
  unsigned row;       // packs in a row: W / kWidth
  unsigned left_out;  // 1 where a plane has a last row that is in no pair, else 0
  Divisor by_row, by_P;

  __device__ size_t upper(unsigned item) const {
    const unsigned pair = by_row.quotient(item);
    return item + (size_t{pair} + left_out * by_P.quotient(pair)) * row;
  }
};

template <unsigned n, class T>
inline bool is_packed(const T* values) {
  return reinterpret_cast<std::uintptr_t>(values) % sizeof(Pack<T, n>) == 0;
}

inline bool is_row_pairs(const Problem& p) {
  return p.R == 2 && p.S == 2 && p.stride_h == 2 && p.stride_w == 2 && p.pad_h == 0 && p.pad_w == 0;
}

// Whether two rows can be read kWidth cells at a time, of which each row begins aligned, and their
// places kWidth / 2 at a time.
template <unsigned kWidth>
inline bool has_row_pairs(const Problem& p, const float* cells, const Index* argmax) {
  return is_row_pairs(p) && p.W % kWidth == 0 && p.H * (p.W / kWidth) < size_t{1} << 31 &&
         is_packed<kWidth>(cells) && is_packed<kWidth / 2>(argmax);
}

// Whether threads of `each` items would leave multiprocessors without a block.
inline bool are_few(size_t items, unsigned each) {
  return items < size_t{kBlock} * each * gpu::multiprocessors();
}

// Calls launch(pairs, blocks, cells, outputs) for all planes, or for so many at a time as 32 bits
// can count: `cells` and `outputs` of the planes before are to be left out.
template <unsigned kWidth, unsigned kItems, class Launch>
inline void for_row_pairs(const Problem& p, Launch&& launch) {
  const Extent out = output_of(p);
  const size_t row = p.W / kWidth;
  for_planes(p, out.height * row, [&](size_t first, unsigned planes) {
    const size_t items = planes * out.height * row;
    launch(RowPairs{static_cast<unsigned>(items), static_cast<unsigned>(row),
                    static_cast<unsigned>(p.H % 2), Divisor(row), Divisor(out.height)},
           static_cast<unsigned>(gpu::ceil_div(items, size_t{kBlock} * kItems)), first * p.H * p.W,
           first * out.height * out.width);
  });
}

// y, argmax = the largest of each window    x (planes,H,W), y, argmax (planes,H/2,W/2); W % kWidth
//         is 0, R = S = 2, both strides 2, no padding; every row begins aligned.
// Fixes : each load of unrolled takes 4 bytes and leaves out the next 4, and where a row does not
//         fill its waves some lanes have nothing to do.
// Idea  : kWidth cells of two rows at a time; kItems of such pairs are on their way per thread. All
//         rows of all planes are one flat array of items: no lane is left over at a row's end.
// Thread: t of block b owns the items b kBlock kItems + t, + kBlock, ...
// Costs : 22 bytes per output; 2 kWidth kItems registers; a short division per item.
template <unsigned kWidth, unsigned kItems>
static __global__ void __launch_bounds__(kBlock)
    forward_vectorized(float* y, Index* argmax, const float* x, RowPairs pairs) {
  const unsigned first = blockIdx.x * (kBlock * kItems) + threadIdx.x;
  Pack<float, kWidth> upper[kItems] = {}, lower[kItems] = {};
  GPU_UNROLL
  for (unsigned k = 0; k < kItems; ++k) {
    const unsigned item = first + k * kBlock;
    if (item >= pairs.items) continue;
    const Pack<float, kWidth>* from = packs<kWidth>(x) + pairs.upper(item);
    upper[k] = from[0], lower[k] = from[pairs.row];
  }
  // exercise: of every item the largest of each window, and the stores (about 17 lines)
  GPU_UNROLL
  for (unsigned k = 0; k < kItems; ++k) {
    const unsigned item = first + k * kBlock;
    if (item >= pairs.items) continue;
    Pack<float, kWidth / 2> values;
    Pack<Index, kWidth / 2> places;
    GPU_UNROLL
    for (unsigned j = 0; j < kWidth / 2; ++j) {
      Largest best = {upper[k].element[2 * j], 0};
      take(best, upper[k].element[2 * j + 1], 1);
      take(best, lower[k].element[2 * j], 2);
      take(best, lower[k].element[2 * j + 1], 3);
      values.element[j] = best.value, places.element[j] = static_cast<Index>(best.place);
    }
    packs<kWidth / 2>(y)[item] = values;
    packs<kWidth / 2>(argmax)[item] = places;
  }
  // end exercise
}

template <unsigned kWidth, unsigned kItems>
inline void launch_items(float* y, Index* argmax, const float* x, const Problem& p,
                         hipStream_t stream) {
  for_row_pairs<kWidth, kItems>(
      p, [&](const RowPairs& pairs, unsigned blocks, size_t cells, size_t outputs) {
        LAUNCH_ON(stream, (forward_vectorized<kWidth, kItems>), blocks, kBlock, 0, y + outputs,
                  argmax + outputs, x + cells, pairs);
      });
}

template <unsigned kWidth>
inline void launch_row_pairs(float* y, Index* argmax, const float* x, const Problem& p,
                             hipStream_t stream) {
  const bool few = are_few(p.N * p.C * (p.H / 2) * (p.W / kWidth), kForwardItems);
  const auto launch = few ? launch_items<kWidth, 1> : launch_items<kWidth, kForwardItems>;
  launch(y, argmax, x, p, stream);
}

// Other windows, and rows of an odd number of columns, are left to `unrolled`.
inline void launch_vectorized(float* y, Index* argmax, const float* x, const Problem& p,
                              hipStream_t stream = nullptr) {
  output_of(p);  // throws
  if (has_row_pairs<4>(p, x, argmax) && is_packed<2>(y))
    launch_row_pairs<4>(y, argmax, x, p, stream);
  else if (has_row_pairs<2>(p, x, argmax))
    launch_row_pairs<2>(y, argmax, x, p, stream);
  else
    launch_unrolled(y, argmax, x, p, stream);
}

// What later steps call.
inline void forward(float* y, Index* argmax, const float* x, const Problem& p,
                    hipStream_t stream = nullptr) {
  launch_vectorized(y, argmax, x, p, stream);
}

struct Launch {
  void (*run)(float* y, Index* argmax, const float* x, const Problem& p, hipStream_t stream);
  bool row_pairs_only;  // other windows than 2x2 every 2 are left to the version before
};

inline constexpr Version<Launch> kVersions[] = {
    {"thread_per_output", {launch_thread_per_output, false}, "one window per thread, by divisions"},
    {"rows", {launch_rows, false}, "a grid of the output's rows: a short division per row"},
    {"unrolled",
     {launch_unrolled, false},
     "2x2 and 3x3: all cells on their way before the first is used"},
    {"vectorized",
     {launch_vectorized, true},
     "2x2 every 2: 16 bytes of two rows at a time, no lane idle"},
};

// ---- What arrives at an output ----------------------------------------------------------------
// The kernels of the backward pass are written for either.

// The gradient of output i as it is.
struct Arriving {
  const float* grad_y;
  Arriving from(size_t first) const { return {grad_y + first}; }
  bool is_packed_by_2() const { return is_packed<2>(grad_y); }
  __device__ float operator()(size_t i) const { return grad_y[i]; }
  template <unsigned n>
  __device__ Pack<float, n> pack(size_t i) const {
    return packs<n>(grad_y)[i];
  }
};

// Where x is what a ReLU has made, the gradient of the ReLU's input: its slope at the one cell that
// gets it is that at y, which is the cell's value.
struct ArrivingThroughRelu {
  const float *grad_y, *y;
  ArrivingThroughRelu from(size_t first) const { return {grad_y + first, y + first}; }
  bool is_packed_by_2() const { return is_packed<2>(grad_y) && is_packed<2>(y); }
  __device__ float operator()(size_t i) const {
    return grad_y[i] * activations::Relu{}.derivative(y[i]);
  }
  template <unsigned n>
  __device__ Pack<float, n> pack(size_t i) const {
    Pack<float, n> grad = packs<n>(grad_y)[i];
    const Pack<float, n> value = packs<n>(y)[i];
    GPU_UNROLL
    for (unsigned j = 0; j < n; ++j)
      grad.element[j] *= activations::Relu{}.derivative(value.element[j]);
    return grad;
  }
};

// ---- Backward: outputs add to their cells -----------------------------------------------------

// grad_x[argmax[i]] += what arrives at i    grad_x (planes,H,W), 0 before; argmax (planes,P,Q).
// Fixes : a CPU core takes the outputs one after the other.
// Idea  : one thread per output adds to the cell that its window has taken. Where windows overlap
//         several threads may add to the same cell: the addition has to be atomic.
// Thread: t owns the outputs t, t + T, ... of flat memory, with T threads in the grid.
// Costs : grad_x goes to memory twice and comes back once; sums in the order in which threads come.
template <class Gradient>
static __global__ void backward_scatter_atomic(float* grad_x, Gradient arriving,
                                               const Index* argmax, Shape shape, size_t outputs) {
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < outputs; i += threads) {
    // exercise: the cell's row and column in the image, then the addition (about 6 lines)
    const size_t row = i / shape.Q, plane = row / shape.P;
    const unsigned p = static_cast<unsigned>(row % shape.P), place = argmax[i];
    const unsigned q = static_cast<unsigned>(i % shape.Q);
    const unsigned h = p * shape.stride_h + place / shape.S - shape.pad_h;
    const unsigned w = q * shape.stride_w + place % shape.S - shape.pad_w;
    atomicAdd(grad_x + (plane * shape.H + h) * shape.W + w, arriving(i));
    // end exercise
  }
}

template <class Gradient>
inline void launch_scatter_atomic(float* grad_x, const Gradient& arriving, const Index* argmax,
                                  const Problem& p, hipStream_t stream = nullptr) {
  const Shape shape = shape_of(p);
  const size_t planes = p.N * p.C, outputs = planes * shape.P * shape.Q;
  if (planes == 0) return;
  HIP_CHECK(hipMemsetAsync(grad_x, 0, planes * p.H * p.W * sizeof(float), stream));
  LAUNCH_ON(stream, (backward_scatter_atomic<Gradient>), full_grid(outputs), kBlock, 0, grad_x,
            arriving, argmax, shape, outputs);
}

// ---- Backward: cells ask their windows --------------------------------------------------------

// The windows [begin, end) over a row of the image, of `count` windows of `size` rows; columns
// alike. `stride` divides.
struct Windows {
  unsigned begin, end;
};
__device__ inline Windows windows_over(unsigned row, unsigned size, Divisor stride, unsigned pad,
                                       unsigned count) {
  const unsigned at = row + pad;  // in rows of the padding and the image
  return {at < size ? 0 : stride.quotient(at - size) + 1, min(stride.quotient(at) + 1, count)};
}

// grad_x = what arrives at the windows that have taken a cell    grad_x (planes,H,W); argmax
//         (planes,P,Q), any sizes.
// Fixes : scatter_atomic has grad_x come back from memory, and its sums depend on who comes first.
// Idea  : a cell knows which windows lie over it and asks each, in their order, whether it was
//         taken. Every cell is written once, by one thread.
// Thread: (x, y) owns the columns x, x + X, ... of the rows y, y + Y, ... in a grid of X by Y.
// Costs : 4 H W + 6 P Q bytes per plane, as often out of a cache as windows overlap; a short
//         division and two quotients by a stride per row, two more per column.
template <class Gradient>
static __global__ void backward_gather(float* grad_x, Gradient arriving, const Index* argmax,
                                       Shape shape) {
  const unsigned first_w = blockIdx.x * blockDim.x + threadIdx.x, next_w = gridDim.x * blockDim.x;
  const unsigned first_row = blockIdx.y * blockDim.y + threadIdx.y;
  const unsigned next_row = gridDim.y * blockDim.y;
  for (unsigned w = first_w; w < shape.W; w += next_w) {
    const Windows across = windows_over(w, shape.S, shape.by_stride_w, shape.pad_w, shape.Q);
    for (unsigned row = first_row; row < shape.planes * shape.H; row += next_row) {
      const unsigned plane = shape.by_H.quotient(row), h = row - plane * shape.H;
      const Windows down = windows_over(h, shape.R, shape.by_stride_h, shape.pad_h, shape.P);
      float sum = 0;
      // exercise: the sum of what arrives where this cell was taken (about 8 lines)
      for (unsigned p = down.begin; p < down.end; ++p)
        for (unsigned q = across.begin; q < across.end; ++q) {
          const size_t i = (size_t{plane} * shape.P + p) * shape.Q + q;
          const unsigned r = h + shape.pad_h - p * shape.stride_h;
          const unsigned s = w + shape.pad_w - q * shape.stride_w;
          const float grad = arriving(i);
          sum += argmax[i] == r * shape.S + s ? grad : 0.0f;
        }
      // end exercise
      grad_x[size_t{row} * shape.W + w] = sum;
    }
  }
}

template <class Gradient>
inline void launch_gather(float* grad_x, const Gradient& arriving, const Index* argmax,
                          const Problem& p, hipStream_t stream = nullptr) {
  Shape shape = shape_of(p);
  for_planes(p, std::max(shape.H, shape.P), [&](size_t first, unsigned planes) {
    shape.planes = planes;
    const size_t output = first * shape.P * shape.Q;
    const Grid grid =
        grid_2d(gpu::ceil_div(size_t{planes} * shape.H, size_t{kGatherRows}), shape.W);
    LAUNCH_ON(stream, (backward_gather<Gradient>), grid.blocks, grid.threads, 0,
              grad_x + first * shape.H * shape.W, arriving.from(output), argmax + output, shape);
  });
}

// ---- Backward: windows that the compiler knows -------------------------------------------------
// As many cells as a stride is long have the same windows over them. 3x3 every 2, padding 1:
//
//   cell              0 1 | 2 3 | 4 5 | ...        a block: cells 2a, 2a + 1
//   window 0   [ .    0 1 ]  |     |
//   window 1          [ 1 | 2 3 ]  |               over the block are the windows a and a + 1;
//   window 2              |   [ 3 | 4 5 ]          cell 2a is in a's row 1, 2a + 1 in a's row 2 and
//                                                  in row 0 of a + 1

// How the image is cut into blocks of stride x stride cells.
struct Blocks {
  unsigned down, across;  // of a plane
  Divisor by_down;
  bool packed;  // the rows of a block are whole and aligned: one store each
};

// grad_x = what arrives at the windows that have taken a cell    grad_x (planes,H,W); argmax
//         (planes,P,Q); R = S = kSize, both strides kStride, both paddings kPhase + k kStride.
// Fixes : the cells of gather ask the same windows one by one, and which ones takes longer to find
//         out than to ask.
// Idea  : one thread for a block of cells asks each window once, all of them before it looks at the
//         first answer. Which place of a window is which cell is known to the compiler.
// Thread: (x, y) owns the blocks x, x + X, ... of the rows of blocks y, y + Y, ...
// Costs : 4 H W + 6 P Q bytes per plane, out of a cache as often as the windows of blocks overlap.
template <unsigned kSize, unsigned kStride, unsigned kPhase, class Gradient>
static __global__ void backward_gather_unrolled(float* grad_x, Gradient arriving,
                                                const Index* argmax, Shape shape, Blocks blocks) {
  // Over block a lie the windows a + kFirst, ..., counted from that whose row kPhase is the block's
  // row 0.
  constexpr int kFirst = -static_cast<int>((kSize - 1 - kPhase) / kStride);
  constexpr int kOver = static_cast<int>((kStride - 1 + kPhase) / kStride) - kFirst + 1;
  constexpr int step = kStride, size = kSize;
  const unsigned next_block = gridDim.x * blockDim.x, next_row = gridDim.y * blockDim.y;
  for (unsigned row = blockIdx.y * blockDim.y + threadIdx.y; row < shape.planes * blocks.down;
       row += next_row) {
    const unsigned plane = blocks.by_down.quotient(row), a = row - plane * blocks.down;
    const int first_p = static_cast<int>(a + shape.pad_h / kStride) + kFirst;
    for (unsigned b = blockIdx.x * blockDim.x + threadIdx.x; b < blocks.across; b += next_block) {
      const int first_q = static_cast<int>(b + shape.pad_w / kStride) + kFirst;
      float grads[kOver][kOver] = {};
      unsigned places[kOver][kOver];
      GPU_UNROLL
      for (int i = 0; i < kOver; ++i) {
        GPU_UNROLL
        for (int j = 0; j < kOver; ++j) {
          const int p = first_p + i, q = first_q + j;
          places[i][j] = kSize * kSize;  // no cell's
          if (p < 0 || p >= static_cast<int>(shape.P) || q < 0 || q >= static_cast<int>(shape.Q))
            continue;
          const size_t window = (size_t{plane} * shape.P + static_cast<unsigned>(p)) * shape.Q +
                                static_cast<unsigned>(q);
          places[i][j] = argmax[window], grads[i][j] = arriving(window);
        }
      }

      const size_t first_cell = (size_t{plane} * shape.H + size_t{a} * kStride) * shape.W;
      GPU_UNROLL
      for (int u = 0; u < step; ++u) {
        Pack<float, kStride> sums = {};
        // exercise: the sums of the cells of the block's row u (about 13 lines)
        GPU_UNROLL
        for (int v = 0; v < step; ++v) {
          GPU_UNROLL
          for (int i = 0; i < kOver; ++i) {
            GPU_UNROLL
            for (int j = 0; j < kOver; ++j) {
              const int r = u + static_cast<int>(kPhase) - (kFirst + i) * step;
              const int s = v + static_cast<int>(kPhase) - (kFirst + j) * step;
              if (r < 0 || r >= size || s < 0 || s >= size) continue;
              const bool taken = places[i][j] == static_cast<unsigned>(r * size + s);
              sums.element[v] += taken ? grads[i][j] : 0.0f;
            }
          }
        }
        // end exercise
        if (a * kStride + static_cast<unsigned>(u) >= shape.H) continue;
        float* to = grad_x + first_cell + static_cast<size_t>(u) * shape.W + size_t{b} * kStride;
        if (blocks.packed) {
          packs<kStride>(to)[0] = sums;
          continue;
        }
        GPU_UNROLL
        for (int v = 0; v < step; ++v)
          if (b * kStride + static_cast<unsigned>(v) < shape.W) to[v] = sums.element[v];
      }
    }
  }
}

template <unsigned kSize, unsigned kStride, unsigned kPhase, class Gradient>
inline void launch_blocks(float* grad_x, const Gradient& arriving, const Index* argmax,
                          const Problem& p, hipStream_t stream) {
  Shape shape = shape_of(p);
  const size_t down = gpu::ceil_div(p.H, kStride), across = gpu::ceil_div(p.W, kStride);
  const Blocks blocks{static_cast<unsigned>(down), static_cast<unsigned>(across), Divisor(down),
                      p.W % kStride == 0 && is_packed<kStride>(grad_x)};
  for_planes(p, down, [&](size_t first, unsigned planes) {
    shape.planes = planes;
    const size_t output = first * shape.P * shape.Q;
    const Grid grid = grid_2d(size_t{planes} * down, across);
    LAUNCH_ON(stream, (backward_gather_unrolled<kSize, kStride, kPhase, Gradient>), grid.blocks,
              grid.threads, 0, grad_x + first * p.H * p.W, arriving.from(output), argmax + output,
              shape, blocks);
  });
}

// Windows for which there is no kernel are left to `gather`.
template <class Gradient>
inline void launch_gather_unrolled(float* grad_x, const Gradient& arriving, const Index* argmax,
                                   const Problem& p, hipStream_t stream = nullptr) {
  const auto is = [&](size_t size, size_t stride, size_t phase) {
    return p.R == size && p.S == size && p.stride_h == stride && p.stride_w == stride &&
           p.pad_h % stride == phase && p.pad_w % stride == phase;
  };
  output_of(p);  // throws
  if (is(2, 2, 0))
    launch_blocks<2, 2, 0>(grad_x, arriving, argmax, p, stream);
  else if (is(3, 2, 0))
    launch_blocks<3, 2, 0>(grad_x, arriving, argmax, p, stream);
  else if (is(3, 2, 1))
    launch_blocks<3, 2, 1>(grad_x, arriving, argmax, p, stream);
  else if (is(3, 1, 0))
    launch_blocks<3, 1, 0>(grad_x, arriving, argmax, p, stream);
  else
    launch_gather(grad_x, arriving, argmax, p, stream);
}

// ---- Backward: 2x2 windows every 2 cells ------------------------------------------------------

// grad_x as one flat array of items: packs of kWidth cells, of all rows of all planes.
struct PackedRows {
  unsigned items;
  unsigned row;   // packs in a row: W / kWidth
  unsigned H, P;  // rows of a plane, and pairs of them
  Divisor by_row, by_H;
};

// grad_x = what arrives at a window, at the cell that it has taken    grad_x (planes,H,W), argmax
//         (planes,H/2,W/2); W % kWidth is 0, R = S = 2, both strides 2, no padding; rows aligned.
// Fixes : a thread of gather_unrolled has 6 bytes on their way, and stores 8 at a time, in two
// rows. Idea  : three quarters of the bytes are written: they are written in their order, 16 bytes
// per
//         thread and wave after wave without a gap. Both rows of a window load its gradient; the
//         second time it comes out of a cache. kItems such packs per thread.
// Thread: t of block b owns the items b kBlock kItems + t, + kBlock, ... of grad_x.
// Costs : 22 bytes per output, of which 16 are written, and 6 more out of a cache; two short
//         divisions per item.
template <unsigned kWidth, unsigned kItems, class Gradient>
static __global__ void __launch_bounds__(kBlock)
    backward_gather_vectorized(float* grad_x, Gradient arriving, const Index* argmax,
                               PackedRows rows) {
  const unsigned first = blockIdx.x * (kBlock * kItems) + threadIdx.x;
  Pack<float, kWidth / 2> grads[kItems] = {};  // stay 0 for a last row that is in no pair
  Pack<Index, kWidth / 2> places[kItems] = {};
  unsigned place_of_first[kItems] = {};  // 0 in a window's upper row, 2 in its lower one
  GPU_UNROLL
  for (unsigned k = 0; k < kItems; ++k) {
    const unsigned item = first + k * kBlock;
    if (item >= rows.items) continue;
    const unsigned row = rows.by_row.quotient(item), plane = rows.by_H.quotient(row);
    const unsigned h = row - plane * rows.H, column = item - row * rows.row;
    if (h >= 2 * rows.P) continue;
    const size_t window = size_t{plane * rows.P + h / 2} * rows.row + column;
    grads[k] = arriving.template pack<kWidth / 2>(window);
    places[k] = packs<kWidth / 2>(argmax)[window];
    place_of_first[k] = h % 2 * 2;
  }
  GPU_UNROLL
  for (unsigned k = 0; k < kItems; ++k) {
    const unsigned item = first + k * kBlock;
    if (item >= rows.items) continue;
    Pack<float, kWidth> cells;
    GPU_UNROLL
    for (unsigned j = 0; j < kWidth / 2; ++j) {
      const unsigned place = places[k].element[j];
      cells.element[2 * j] = place == place_of_first[k] ? grads[k].element[j] : 0.0f;
      cells.element[2 * j + 1] = place == place_of_first[k] + 1 ? grads[k].element[j] : 0.0f;
    }
    packs<kWidth>(grad_x)[item] = cells;
  }
}

template <unsigned kWidth, unsigned kItems, class Gradient>
inline void launch_gather_items(float* grad_x, const Gradient& arriving, const Index* argmax,
                                const Problem& p, hipStream_t stream) {
  const Extent out = output_of(p);
  const size_t row = p.W / kWidth;
  for_planes(p, p.H * row, [&](size_t first, unsigned planes) {
    const size_t items = planes * p.H * row, output = first * out.height * out.width;
    const PackedRows rows{static_cast<unsigned>(items),
                          static_cast<unsigned>(row),
                          static_cast<unsigned>(p.H),
                          static_cast<unsigned>(out.height),
                          Divisor(row),
                          Divisor(p.H)};
    const size_t blocks = gpu::ceil_div(items, size_t{kBlock} * kItems);
    LAUNCH_ON(stream, (backward_gather_vectorized<kWidth, kItems, Gradient>),
              static_cast<unsigned>(blocks), kBlock, 0, grad_x + first * p.H * p.W,
              arriving.from(output), argmax + output, rows);
  });
}

template <unsigned kWidth, class Gradient>
inline void launch_gather_packs(float* grad_x, const Gradient& arriving, const Index* argmax,
                                const Problem& p, hipStream_t stream) {
  const bool few = are_few(p.N * p.C * p.H * (p.W / kWidth), kBackwardItems);
  const auto launch = few ? launch_gather_items<kWidth, 1, Gradient>
                          : launch_gather_items<kWidth, kBackwardItems, Gradient>;
  launch(grad_x, arriving, argmax, p, stream);
}

// Other windows, and rows of an odd number of columns, are left to `gather_unrolled`.
template <class Gradient>
inline void launch_gather_vectorized(float* grad_x, const Gradient& arriving, const Index* argmax,
                                     const Problem& p, hipStream_t stream = nullptr) {
  output_of(p);  // throws
  if (has_row_pairs<4>(p, grad_x, argmax) && arriving.is_packed_by_2())
    launch_gather_packs<4>(grad_x, arriving, argmax, p, stream);
  else if (has_row_pairs<2>(p, grad_x, argmax))
    launch_gather_packs<2>(grad_x, arriving, argmax, p, stream);
  else
    launch_gather_unrolled(grad_x, arriving, argmax, p, stream);
}

// What later steps call: overwrites grad_x.
inline void backward(float* grad_x, const float* grad_y, const Index* argmax, const Problem& p,
                     hipStream_t stream = nullptr) {
  launch_gather_vectorized(grad_x, Arriving{grad_y}, argmax, p, stream);
}

// Likewise where a ReLU has made x: overwrites grad_x with the gradient of the ReLU's input.
inline void backward_through_relu(float* grad_x, const float* grad_y, const float* y,
                                  const Index* argmax, const Problem& p,
                                  hipStream_t stream = nullptr) {
  launch_gather_vectorized(grad_x, ArrivingThroughRelu{grad_y, y}, argmax, p, stream);
}

template <class Gradient>
struct BackwardLaunch {
  void (*run)(float* grad_x, const Gradient& arriving, const Index* argmax, const Problem& p,
              hipStream_t stream);
  bool deterministic;   // also where windows overlap
  bool row_pairs_only;  // other windows than 2x2 every 2 are left to the version before
};

// The same versions for either gradient.
template <class Gradient>
inline constexpr Version<BackwardLaunch<Gradient>> kBackwardVersions[] = {
    {"scatter_atomic",
     {launch_scatter_atomic<Gradient>, false, false},
     "each output adds to its cell; grad_x is set to 0 before"},
    {"gather",
     {launch_gather<Gradient>, true, false},
     "each cell asks the windows over it: written once, in a fixed order"},
    {"gather_unrolled",
     {launch_gather_unrolled<Gradient>, true, false},
     "2x2 and 3x3: a thread asks for all cells that have the same windows over them"},
    {"gather_vectorized",
     {launch_gather_vectorized<Gradient>, true, true},
     "2x2 every 2: grad_x is written in its order, 16 bytes at a time"},
};

}  // namespace maxpool
