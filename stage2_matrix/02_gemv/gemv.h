// 2.2  gemv: y = alpha A x + beta y, and with A transposed: y = alpha A^T x + beta y.
//
// Every element of A is used once, so the time is that of reading A: two operations per 4 bytes.
// The ladder asks who shall read a row: a thread, a block, a wave; then keeps many 16-byte loads on
// their way, then cuts long rows up so that a matrix of few rows keeps the whole device busy too.
// Below A^T x sums down the columns of the same row-major A. Source of the routine: BLAS level 2
// (Dongarra, Du Croz, Hammarling, Hanson: An extended set of Fortran basic linear algebra
// subprograms. ACM TOMS 14, 1988).
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
#include "common/rounding.h"
#include "stage1_vector/03_dot/detail/block_sum.h"
#include "stage1_vector/03_dot/reference.h"

namespace gemv {

using dot::kBlock;

// What is computed, of arrays on the device that are aligned to 4 bytes. y does not overlap A or x.
// As in BLAS, alpha = 0 does not read A and x, and beta = 0 does not read y: what they hold (NaN,
// too) does not matter. Where nothing is summed up (no columns, transposed: no rows), y = beta y.
struct Product {
  size_t rows, cols;  // of A, any sizes; with no rows (transposed: no columns) nothing is done
  float alpha;
  const float* a;  // A[i, j] is a[i * lda + j]
  size_t lda;      // at least cols
  const float* x;  // (cols), transposed: (rows)
  float beta;
  float* y;  // (rows), transposed: (cols)
};

// What every launcher begins with: the sums of alpha = 0 are empty. Throws std::invalid_argument
// where lda is too small.
inline Product checked(Product p, bool transposed) {
  if (p.lda < p.cols)
    throw std::invalid_argument("gemv: rows of " + std::to_string(p.cols) +
                                " elements begin only lda = " + std::to_string(p.lda) + " apart");
  if (p.alpha == 0) (transposed ? p.rows : p.cols) = 0;
  return p;
}

// ---- Reference and bound ----------------------------------------------------------------------

// One element of y in double, and the sum of the absolute values of all that is added up in it.
struct Reference {
  double y, absolute;
};

// `line` is the element's row of A (transposed: its column), `y` its old value.
inline Reference gemv_cpu(float alpha, const std::vector<float>& line, const std::vector<float>& x,
                          float beta, float y) {
  const double wide_alpha = static_cast<double>(alpha);
  const double old = beta == 0 ? 0 : static_cast<double>(beta) * static_cast<double>(y);
  const rounding::Sum sums = alpha == 0 ? rounding::Sum{} : dot::dot_cpu(line, x);
  return {wide_alpha * sums.value + old, std::fabs(wide_alpha) * sums.absolute + std::fabs(old)};
}

// What an element may be off whose products go through at most `roundings` operations in a sum of
// n: that of the dot product, and two more roundings, by alpha (or beta) and by the last addition.
inline double bound(double roundings, double n, double absolute) {
  const double once = 1 + kFloatRoundoff;
  return ((1 + rounding::worst_case(roundings, n, 1)) * once * once - 1) * absolute;
}

// ---- Tuning and workspace ---------------------------------------------------------------------

inline constexpr unsigned kRows = 2;  // of A, that the vectorised versions read at a time
// float4s of each of these rows (transposed: of each column) that a thread has on their way; where
// the matrix does not allow float4s, twice as many floats.
inline constexpr unsigned kRowLoads = 4;
inline constexpr unsigned kColumnLoads = 8;
inline constexpr unsigned kResidentBlocks = 4;  // of kBlock threads that shall fit a multiprocessor
inline constexpr unsigned kMaxWidth = 128;      // threads beside each other in split_columns
inline constexpr size_t kShortRow = 32;  // columns up to which a thread per row is the best choice
inline constexpr size_t kMaxPartials = size_t{1} << 20;
inline constexpr size_t kMaxGrid = dot::kMaxThreads / kBlock;  // blocks of kBlock threads

__host__ __device__ constexpr unsigned loads_in_flight(unsigned width, unsigned float4s) {
  return width == 4 ? float4s : 2 * float4s;
}

// Device memory for the sums over slices of rows or columns. No two streams use it at a time.
struct Workspace {
  float* partials;  // (kMaxPartials)
};

inline unsigned grid_size(size_t blocks) {
  return static_cast<unsigned>(std::min(blocks, kMaxGrid));
}

// ---- A thread, a block or a wave per row --------------------------------------------------------

// y[i] = alpha sum + beta y[i], without reading y where beta is 0.
__device__ inline void store(const Product& p, size_t i, float sum) {
  const float scaled = p.alpha * sum;
  p.y[i] = p.beta == 0 ? scaled : scaled + p.beta * p.y[i];
}

// A thread's share of row `row` of A times x: the columns first, first + step, ...
__device__ inline float thread_sum(const Product& p, size_t row, unsigned first, unsigned step) {
  const float* a = p.a + row * p.lda;
  float sum = 0;
  for (size_t col = first; col < p.cols; col += step) sum += a[col] * p.x[col];
  return sum;
}

// y = alpha A x + beta y    A (rows, cols), x (cols), y (rows), any sizes.
// Fixes : a CPU core takes the rows one after the other.
// Idea  : one thread per row: no thread needs another.
// Thread: t owns y[t], y[t + T], ... with T threads in the grid.
// Costs : 4 rows cols bytes, of which a wave asks in each step for one element of each of its rows.
static __global__ void gemv_thread_per_row(Product p) {
  const size_t threads = size_t{gridDim.x} * kBlock;
  for (size_t row = size_t{blockIdx.x} * kBlock + threadIdx.x; row < p.rows; row += threads)
    store(p, row, thread_sum(p, row, 0, 1));
}

inline void launch_thread_per_row(const Product& product, const Workspace&, hipStream_t stream) {
  const Product p = checked(product, false);
  if (p.rows == 0) return;
  LAUNCH_ON(stream, gemv_thread_per_row, grid_size(gpu::ceil_div(p.rows, kBlock)), kBlock, 0, p);
}

// y = alpha A x + beta y    A (rows, cols), x (cols), y (rows), any sizes.
// Fixes : the lanes of thread_per_row read addresses that lie a row apart.
// Idea  : a block reads a row: neighbours read neighbours; a tree in shared memory adds their sums.
// Thread: t sums columns t, t + kBlock, ... of the rows b, b + gridDim.x, ... of its block b.
// Costs : 4 rows cols bytes; log2(kBlock) + 2 barriers per row; 4 kBlock bytes of shared memory.
static __global__ void gemv_block_per_row(Product p) {
  for (size_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
    const float sum = dot::block_sum_tree(thread_sum(p, row, threadIdx.x, kBlock));
    if (threadIdx.x == 0) store(p, row, sum);
    __syncthreads();  // every thread has read the sum: shared memory is free for the next row
  }
}

inline void launch_block_per_row(const Product& product, const Workspace&, hipStream_t stream) {
  const Product p = checked(product, false);
  if (p.rows == 0) return;
  LAUNCH_ON(stream, gemv_block_per_row, grid_size(p.rows), kBlock, 0, p);
}

// y = alpha A x + beta y    A (rows, cols), x (cols), y (rows), any sizes.
// Fixes : block_per_row waits at barriers, and leaves threads idle in rows shorter than a block.
// Idea  : a wave reads a row; its lanes add their sums by shuffles, without a barrier.
// Thread: lane l of wave w sums columns l, l + wave, ... of the rows w, w + all waves, ...
// Costs : 4 rows cols bytes; log2(wave) shuffles per row.
static __global__ void gemv_wave_per_row(Product p) {
  // exercise: this wave's rows, the lanes' share of each, their sum (about 8 lines)
  const unsigned wave = static_cast<unsigned>(gpu::wave_size());
  const unsigned lane = static_cast<unsigned>(gpu::lane_id());
  const unsigned waves_per_block = kBlock / wave;
  const size_t waves = size_t{gridDim.x} * waves_per_block;
  for (size_t row = size_t{blockIdx.x} * waves_per_block + threadIdx.x / wave; row < p.rows;
       row += waves) {
    const float sum = dot::wave_sum(thread_sum(p, row, lane, wave));
    if (lane == 0) store(p, row, sum);
  }
  // end exercise
}

inline void launch_wave_per_row(const Product& product, const Workspace&, hipStream_t stream) {
  const Product p = checked(product, false);
  if (p.rows == 0) return;
  const size_t blocks = gpu::ceil_div(p.rows, kBlock / gpu::device_wave_size());
  LAUNCH_ON(stream, gemv_wave_per_row, grid_size(blocks), kBlock, 0, p);
}

// ---- Many loads in flight ---------------------------------------------------------------------

__device__ inline void multiply_add(float& sum, float a, float x) { sum += a * x; }
__device__ inline void multiply_add(float& sum, float4 a, float4 x) {
  sum += a.x * x.x;
  sum += a.y * x.y;
  sum += a.z * x.z;
  sum += a.w * x.w;
}

// Sum number i of `count` of this block's slice (blockIdx.y): final where there is only one slice,
// else one of those that add_slices will add up.
__device__ inline void deliver(const Product& p, float* partials, size_t count, size_t i,
                               float sum) {
  if (gridDim.y == 1)
    store(p, i, sum);
  else
    partials[blockIdx.y * count + i] = sum;
}

// y = alpha A x + beta y, or in slices of columns: partials[s, i] = row i of A times x in slice s.
// Fixes : wave_per_row has one 4-byte load of A on its way per lane, and reads x for every row.
// Idea  : kRows rows at a time share what is read of x; all their loads, 16 bytes each where Value
//         is float4, are on their way together. A team is as wide as the rows are long.
// Thread: (t, g) of block (b, s) sums Values t, t + team, ... of slice s in kRows rows of team g.
// Costs : 4 rows cols bytes of A; 4 cols bytes of x and 2 barriers per kRows rows;
//         4 kRowLoads (kRows + 1) registers for what is on its way.
template <class Value>
static __global__ void GPU_LAUNCH_BOUNDS(kBlock, kResidentBlocks)
    gemv_vectorized(Product p, float* partials) {
  __shared__ float sums[kBlock][kRows];  // one row per wave is used
  constexpr unsigned kWidth = sizeof(Value) / sizeof(float),
                     kLoads = loads_in_flight(kWidth, kRowLoads);
  const unsigned team = blockDim.x;
  const size_t values = p.cols / kWidth, slice = gpu::ceil_div(values, gridDim.y);
  const size_t begin = blockIdx.y * slice, end = min(begin + slice, values);
  const Value* x = reinterpret_cast<const Value*>(p.x);

  const size_t rows_per_block = size_t{blockDim.y} * kRows;
  for (size_t block_row = blockIdx.x * rows_per_block; block_row < p.rows;
       block_row += gridDim.x * rows_per_block) {
    const size_t first_row = block_row + threadIdx.y * kRows;
    // Behind the last row the last one is read again: no branch, and nothing new from memory.
    const Value* rows[kRows];
    for (unsigned r = 0; r < kRows; ++r)
      rows[r] = reinterpret_cast<const Value*>(p.a + min(first_row + r, p.rows - 1) * p.lda);
    float sum[kRows] = {};
    // exercise: rounds of kLoads Values of each row, the Values left over (about 14 lines)
    size_t v = begin + threadIdx.x;
    for (; v + (kLoads - 1) * team < end; v += kLoads * team) {
      Value held_x[kLoads], held_a[kRows][kLoads];
      for (unsigned k = 0; k < kLoads; ++k) {
        held_x[k] = x[v + k * team];
        for (unsigned r = 0; r < kRows; ++r) held_a[r][k] = rows[r][v + k * team];
      }
      for (unsigned k = 0; k < kLoads; ++k)
        for (unsigned r = 0; r < kRows; ++r) multiply_add(sum[r], held_a[r][k], held_x[k]);
    }
    for (; v < end; v += team)
      for (unsigned r = 0; r < kRows; ++r) multiply_add(sum[r], rows[r][v], x[v]);
    // end exercise
    if (blockIdx.y == 0)  // the columns behind the last float4
      for (size_t col = values * kWidth + threadIdx.x; col < p.cols; col += team)
        for (unsigned r = 0; r < kRows; ++r)
          sum[r] += reinterpret_cast<const float*>(rows[r])[col] * p.x[col];

    for (unsigned r = 0; r < kRows; ++r) {
      sum[r] = dot::wave_sum(sum[r]);
      if (gpu::lane_id() == 0) sums[gpu::wave_id()][r] = sum[r];
    }
    __syncthreads();  // every wave's sums are in shared memory
    const unsigned waves = team / static_cast<unsigned>(gpu::wave_size());
    if (threadIdx.x < kRows && first_row + threadIdx.x < p.rows) {
      float total = 0;
      for (unsigned w = 0; w < waves; ++w) total += sums[threadIdx.y * waves + w][threadIdx.x];
      deliver(p, partials, p.rows, first_row + threadIdx.x, total);
    }
    __syncthreads();  // the sums have been read: the next rows may overwrite them
  }
}

// y[i] = alpha (sum over s of partials[s, i]) + beta y[i]    partials (slices, count), y (count).
// Fixes : a block can't know when the others have left their sums; the next launch can.
// Idea  : a fixed order, so that every run gives the same bits.
// Thread: t owns y[t], y[t + T], ... with T threads in the grid.
// Costs : 4 slices count bytes, which the caches still hold.
static __global__ void add_slices(Product p, const float* partials, size_t count, unsigned slices) {
  const size_t threads = size_t{gridDim.x} * kBlock;
  for (size_t i = size_t{blockIdx.x} * kBlock + threadIdx.x; i < count; i += threads) {
    float sum = 0;
    for (unsigned s = 0; s < slices; ++s) sum += partials[s * count + i];
    store(p, i, sum);
  }
}

inline void launch_add_slices(const Product& p, const Workspace& workspace, size_t count,
                              unsigned slices, hipStream_t stream) {
  if (slices > 1)
    LAUNCH_ON(stream, add_slices, grid_size(gpu::ceil_div(count, kBlock)), kBlock, 0, p,
              static_cast<const float*>(workspace.partials), count, slices);
}

// As many slices of `length` as fill the device with blocks when one slice needs `blocks` of them,
// but none shorter than `shortest`, and no more than there is workspace for.
inline unsigned choose_slices(size_t blocks, size_t length, size_t shortest, size_t count) {
  constexpr size_t kMaxGridY = 65535;
  const size_t resident = size_t{gpu::multiprocessors()} * kResidentBlocks;
  const size_t most = std::min({length / shortest, kMaxPartials / count, kMaxGridY});
  return static_cast<unsigned>(std::clamp(resident / blocks, size_t{1}, std::max(most, size_t{1})));
}

inline bool is_aligned(const float* p) {
  return reinterpret_cast<std::uintptr_t>(p) % sizeof(float4) == 0;
}

// How the rows of a product are shared out.
struct RowPlan {
  unsigned width;   // elements per load: 4 where every row of A, and x, begin at a multiple of 16
  unsigned team;    // threads per row
  unsigned slices;  // of the columns
};

inline RowPlan plan_rows(const Product& p, bool split) {
  RowPlan plan{1, gpu::device_wave_size(), 1};
  if (is_aligned(p.a) && is_aligned(p.x) && p.lda % 4 == 0) plan.width = 4;
  const size_t values = p.cols / plan.width, loads = loads_in_flight(plan.width, kRowLoads);
  while (plan.team < kBlock && plan.team * loads < values) plan.team *= 2;
  if (split && p.rows > 0) {
    const size_t rows_per_block = size_t{kBlock / plan.team} * kRows;
    plan.slices =
        choose_slices(gpu::ceil_div(p.rows, rows_per_block), values, plan.team * loads, p.rows);
  }
  return plan;
}

inline void launch_rows(const Product& p, const Workspace& workspace, const RowPlan& plan,
                        hipStream_t stream) {
  if (p.rows == 0) return;
  const dim3 block(plan.team, kBlock / plan.team);
  const dim3 grid(grid_size(gpu::ceil_div(p.rows, size_t{block.y} * kRows)), plan.slices);
  if (plan.width == 4)
    LAUNCH_ON(stream, gemv_vectorized<float4>, grid, block, 0, p, workspace.partials);
  else
    LAUNCH_ON(stream, gemv_vectorized<float>, grid, block, 0, p, workspace.partials);
  launch_add_slices(p, workspace, p.rows, plan.slices, stream);
}

// kSplit: cut the columns of few long rows into slices.
template <bool kSplit>
inline void launch_vectorized(const Product& product, const Workspace& workspace,
                              hipStream_t stream) {
  const Product p = checked(product, false);
  launch_rows(p, workspace, plan_rows(p, kSplit), stream);
}

// ---- The transposed product -------------------------------------------------------------------

// y = alpha A^T x + beta y    A (rows, cols), x (rows), y (cols), any sizes.
// Fixes : the versions above would read a column of A for each element of y.
// Idea  : one thread per column; neighbours read neighbours in every row.
// Thread: t owns y[t], y[t + T], ... with T threads in the grid.
// Costs : 4 rows cols bytes, asked for by as many threads as there are columns.
static __global__ void gemv_thread_per_column(Product p) {
  const size_t threads = size_t{gridDim.x} * kBlock;
  for (size_t col = size_t{blockIdx.x} * kBlock + threadIdx.x; col < p.cols; col += threads) {
    float sum = 0;
    for (size_t row = 0; row < p.rows; ++row) sum += p.a[row * p.lda + col] * p.x[row];
    store(p, col, sum);
  }
}

inline void launch_thread_per_column(const Product& product, const Workspace&, hipStream_t stream) {
  const Product p = checked(product, true);
  if (p.cols == 0) return;
  LAUNCH_ON(stream, gemv_thread_per_column, grid_size(gpu::ceil_div(p.cols, kBlock)), kBlock, 0, p);
}

// A Value of a row, element by element, times the one element of x that belongs to the row.
__device__ inline void scale_add(float& sum, float a, float x) { sum += a * x; }
__device__ inline void scale_add(float4& sum, float4 a, float x) {
  sum.x += a.x * x, sum.y += a.y * x, sum.z += a.z * x, sum.w += a.w * x;
}

// y = alpha A^T x + beta y, or in slices of rows: partials[s, j] = column j of A times x in slice
// s. Fixes : thread_per_column has too few threads, each with one 4-byte load on its way. Idea  :
// slices of rows give every multiprocessor work; a thread owns a Value's columns, float4 or
//         float, and has loads of several rows on their way; the block adds its rows' sums.
// Thread: (x, y) of block (b, s) sums the Value b * blockDim.x + x of rows y, y + blockDim.y, ...
// Costs : 4 rows cols bytes; 1 barrier; 5 kColumnLoads registers for what is on its way.
template <class Value>
static __global__ void GPU_LAUNCH_BOUNDS(kBlock, kResidentBlocks)
    gemv_split_columns(Product p, float* partials) {
  __shared__ Value sums[kBlock];
  constexpr unsigned kWidth = sizeof(Value) / sizeof(float),
                     kLoads = loads_in_flight(kWidth, kColumnLoads);
  const unsigned height = blockDim.y;
  const size_t values = p.cols / kWidth, stride = p.lda / kWidth;
  const size_t value = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t slice = gpu::ceil_div(p.rows, gridDim.y);
  const size_t begin = blockIdx.y * slice, end = min(begin + slice, p.rows);

  Value sum = {};
  if (value < values) {
    const Value* column = reinterpret_cast<const Value*>(p.a) + value;
    // exercise: rounds of kLoads rows, the rows left over (about 11 lines)
    size_t row = begin + threadIdx.y;
    for (; row + (kLoads - 1) * height < end; row += kLoads * height) {
      Value held[kLoads];
      float held_x[kLoads];
      for (unsigned k = 0; k < kLoads; ++k) {
        held[k] = column[(row + k * height) * stride];
        held_x[k] = p.x[row + k * height];
      }
      for (unsigned k = 0; k < kLoads; ++k) scale_add(sum, held[k], held_x[k]);
    }
    for (; row < end; row += height) scale_add(sum, column[row * stride], p.x[row]);
    // end exercise
  }
  sums[threadIdx.y * blockDim.x + threadIdx.x] = sum;
  __syncthreads();  // the sums of all the block's rows are in shared memory
  if (threadIdx.y == 0 && value < values) {
    for (unsigned y = 1; y < height; ++y) scale_add(sum, sums[y * blockDim.x + threadIdx.x], 1.0f);
    const float* elements = reinterpret_cast<const float*>(&sum);
    for (unsigned k = 0; k < kWidth; ++k)
      deliver(p, partials, p.cols, value * kWidth + k, elements[k]);
  }
}

// How the columns of a product are shared out.
struct ColumnPlan {
  unsigned block_width;  // threads beside each other in a block, each with one Value
  unsigned slices;       // of the rows
};

// For columns that are read `width` at a time.
inline ColumnPlan plan_columns(const Product& p, unsigned width) {
  ColumnPlan plan{1, 1};
  const size_t values = p.cols / width, loads = loads_in_flight(width, kColumnLoads);
  while (plan.block_width < kMaxWidth && plan.block_width < values) plan.block_width *= 2;
  if (p.cols > 0)
    plan.slices = choose_slices(gpu::ceil_div(values, plan.block_width), p.rows,
                                kBlock / plan.block_width * loads, p.cols);
  return plan;
}

template <class Value>
inline void launch_columns(const Product& p, const Workspace& workspace, const ColumnPlan& plan,
                           hipStream_t stream) {
  if (p.cols == 0) return;
  const size_t values = p.cols / (sizeof(Value) / sizeof(float));
  const dim3 block(plan.block_width, kBlock / plan.block_width);
  const dim3 grid(static_cast<unsigned>(gpu::ceil_div(values, plan.block_width)), plan.slices);
  LAUNCH_ON(stream, gemv_split_columns<Value>, grid, block, 0, p, workspace.partials);
  launch_add_slices(p, workspace, p.cols, plan.slices, stream);
}

// How many columns, from the first on, are read as float4s. What is left are at most three, or all.
inline size_t float4_columns(const Product& p) {
  return is_aligned(p.a) && p.lda % 4 == 0 ? p.cols - p.cols % 4 : 0;
}

// The columns [first, first + count) of p as a product of their own.
inline Product some_columns(Product p, size_t first, size_t count) {
  p.a += first, p.y += first, p.cols = count;
  return p;
}

inline void launch_split_columns(const Product& product, const Workspace& workspace,
                                 hipStream_t stream) {
  const Product p = checked(product, true);
  const size_t vectors = float4_columns(p);
  const Product wide = some_columns(p, 0, vectors);
  const Product single = some_columns(p, vectors, p.cols - vectors);
  launch_columns<float4>(wide, workspace, plan_columns(wide, 4), stream);
  launch_columns<float>(single, workspace, plan_columns(single, 1), stream);
}

// ---- The best version for a shape -------------------------------------------------------------

// y = alpha A x + beta y (transposed: y = alpha A^T x + beta y), queued on `stream`. Every run on
// one device gives the same bits.
inline void best(bool transposed, const Product& product, const Workspace& workspace,
                 hipStream_t stream = nullptr) {
  if (transposed)
    launch_split_columns(product, workspace, stream);
  else if (product.cols <= kShortRow)
    launch_thread_per_row(product, workspace, stream);
  else
    launch_vectorized<true>(product, workspace, stream);
}

// ---- Through how many roundings does a product go? --------------------------------------------
// Each is one rounding itself, and goes through one per addition to its thread's sum, and what the
// block's and the slices' sums take.

inline double roundings_thread_per_row(const Product& p) { return 1 + static_cast<double>(p.cols); }
inline double roundings_block_per_row(const Product& p) {
  return 1 + dot::sum_of_thread(static_cast<double>(p.cols), kBlock) + std::log2(kBlock);
}
inline double roundings_wave_per_row(const Product& p) {
  const double wave = gpu::device_wave_size();
  return 1 + dot::sum_of_thread(static_cast<double>(p.cols), wave) + std::log2(wave);
}
// One of the columns behind the last float4 may be a thread's too.
template <bool kSplit>
inline double roundings_vectorized(const Product& p) {
  const RowPlan plan = plan_rows(p, kSplit);
  const double values = dot::sum_of_thread(static_cast<double>(p.cols / plan.width), plan.slices);
  return 1 + plan.width * dot::sum_of_thread(values, plan.team) + 1 +
         std::log2(gpu::device_wave_size()) + plan.team / gpu::device_wave_size() + plan.slices;
}
inline double roundings_thread_per_column(const Product& p) {
  return 1 + static_cast<double>(p.rows);
}
inline double roundings_split_columns(const Product& p) {
  const auto roundings = [&](const ColumnPlan& plan) {
    const double rows = dot::sum_of_thread(static_cast<double>(p.rows), plan.slices);
    const double height = kBlock / plan.block_width;
    return 1 + dot::sum_of_thread(rows, height) + height + plan.slices;
  };
  const size_t vectors = float4_columns(p);
  return std::max(roundings(plan_columns(some_columns(p, 0, vectors), 4)),
                  roundings(plan_columns(some_columns(p, vectors, p.cols - vectors), 1)));
}

// ---- The versions -----------------------------------------------------------------------------

struct Launch {
  void (*run)(const Product& product, const Workspace& workspace, hipStream_t stream);
  double (*roundings)(const Product& product);
  bool transposed;
};

inline constexpr Version<Launch> kVersions[] = {
    {"thread_per_row",
     {launch_thread_per_row, roundings_thread_per_row, false},
     "no thread needs another, no lane reads beside its neighbour"},
    {"block_per_row",
     {launch_block_per_row, roundings_block_per_row, false},
     "neighbours read neighbours; a tree in shared memory per row"},
    {"wave_per_row",
     {launch_wave_per_row, roundings_wave_per_row, false},
     "shuffles instead of barriers, short rows without idle threads"},
    {"vectorized",
     {launch_vectorized<false>, roundings_vectorized<false>, false},
     "several rows share x; many 16-byte loads on their way"},
    {"split_rows",
     {launch_vectorized<true>, roundings_vectorized<true>, false},
     "slices of few long rows keep every multiprocessor busy"},
    {"thread_per_column",
     {launch_thread_per_column, roundings_thread_per_column, true},
     "A^T x: neighbours read neighbours, but there are few threads"},
    {"split_columns",
     {launch_split_columns, roundings_split_columns, true},
     "A^T x: slices of rows, 16-byte loads of several rows on their way"},
};

}  // namespace gemv
