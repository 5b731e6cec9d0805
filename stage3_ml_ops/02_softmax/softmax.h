// 3.2  softmax by rows: y[r,c] = exp(x[r,c]) / sum over k of exp(x[r,k]), for X, Y (rows, cols).
//
// exp overflows float above 88.7, so every version computes exp(x - m) / sum exp(x - m) with the
// row's maximum m, which is the same number: no exponent is positive and the sum is at least 1.
// Every element depends on its whole row, so a row is read, reduced and read again. The limit is
// one read and one write of 4 bytes per element; the ladder ends where a row is read only once.
//
// Every launcher takes device arrays of rows * cols floats, row-major without gaps, aligned to 4
// bytes, any sizes (0 too, and rows beyond 2^31 elements), and queues on `stream`. y may be x;
// otherwise they do not overlap. As IEEE arithmetic has it, a NaN or +infinity in a row makes the
// whole row NaN, and so does a row of nothing but -infinity; any other -infinity, such as a mask
// puts there, becomes exactly 0.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "common/gpu.h"
#include "common/program.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage1_vector/03_dot/detail/block_sum.h"
#include "stage3_ml_ops/02_softmax/choices.h"

namespace softmax {

using vector_add::kMaxThreads;

// ---- Reference and bound ----------------------------------------------------------------------

// The rows of x, each of `cols` elements, in double.
inline std::vector<double> softmax_cpu(const std::vector<float>& x, size_t cols) {
  std::vector<double> y(x.size());
  for (size_t begin = 0; begin < x.size(); begin += cols) {
    double max = -std::numeric_limits<double>::infinity(), sum = 0;
    for (size_t c = 0; c < cols; ++c) max = std::fmax(max, static_cast<double>(x[begin + c]));
    for (size_t c = 0; c < cols; ++c)
      sum += y[begin + c] = std::exp(static_cast<double>(x[begin + c]) - max);
    for (size_t c = 0; c < cols; ++c) y[begin + c] /= sum;
  }
  return y;
}

// What a float result may be off, to first order in u = 2^-24. Let d = m - x >= 0.
// An exponential is off by 3 u d, since the difference, its product with log2(e) and log2(e) itself
// are rounded, and by 4 u (2 ulp: the worst that CUDA, AMD's OCML and glibc promise for exp2f). A
// version that computes exp(-d) as a product of exponentials pays the 4 u and the product's u again
// each time, but 3 u d only once: the arguments add up to d. The sum's terms are positive: its
// relative error is the mean of theirs, weighted by y, and one u per addition (Higham, Accuracy and
// Stability of Numerical Algorithms, 2nd ed., section 4.2). The reciprocal and the last product
// cost u each. kTiny covers what lies below float's normal range. -infinity must give 0, not nearly
// 0.
inline constexpr double kTiny = 2.3509887016445750e-38;  // 2^-125

struct Roundings {
  double additions;     // that an element of the sum goes through
  double exponentials;  // as whose product an element of the sum is computed, at most
};

inline std::vector<double> bounds(const std::vector<float>& x, const std::vector<double>& y,
                                  size_t cols, Roundings roundings) {
  std::vector<double> result(x.size());
  const auto distance = [&](double max, size_t i) {
    return std::isinf(x[i]) ? 0.0 : max - static_cast<double>(x[i]);
  };
  for (size_t begin = 0; begin < x.size(); begin += cols) {
    double max = -std::numeric_limits<double>::infinity(), mean = 0;
    for (size_t c = 0; c < cols; ++c) max = std::fmax(max, static_cast<double>(x[begin + c]));
    for (size_t i = begin; i < begin + cols; ++i) mean += y[i] * distance(max, i);
    const double of_sum = 3 * mean + 5 * roundings.exponentials + roundings.additions;
    for (size_t i = begin; i < begin + cols; ++i) {
      const double of_term = 3 * distance(max, i) + 5 * roundings.exponentials;
      const bool masked = x[i] == -std::numeric_limits<float>::infinity();
      result[i] = masked ? 0.0 : kFloatRoundoff * y[i] * (of_term + of_sum + 2) + kTiny;
    }
  }
  return result;
}

// ---- Tuning -----------------------------------------------------------------------------------

inline constexpr unsigned kBlock = dot::kBlock;  // threads per block where nothing else is said

// Online: threads per row, float4s on their way in each of them.
inline constexpr unsigned kOnlineThreads = 512;
inline constexpr unsigned kOnlineBlocks = 2;  // resident per multiprocessor
inline constexpr unsigned kOnlineVectors = 4;

// Row in shared memory: threads per row, and what each of them holds in registers besides.
inline constexpr unsigned kSharedThreads = 256;
inline constexpr unsigned kSharedBlocks = 2;  // resident per multiprocessor
inline constexpr unsigned kSharedVectors = 22;

// Blocks for `rows`, of which each takes rows_per_block at a time; beyond what one launch may have
// they go round.
inline unsigned row_blocks(size_t rows, size_t rows_per_block, unsigned threads) {
  return static_cast<unsigned>(
      std::min(gpu::ceil_div(rows, rows_per_block), kMaxThreads / threads));
}

// ---- The exponential --------------------------------------------------------------------------

// exp(difference) for differences of at most 0. GPUs have an instruction for 2^x: exp2f takes half
// the instructions of expf, and a block that computes for less time keeps the memory busy longer.
__device__ inline float exponential(float difference) { return exp2f(1.44269504f * difference); }

// ---- Thread per row ---------------------------------------------------------------------------

// Y = softmax(X)    X, Y (rows, cols), any sizes.
// Fixes : a CPU core takes the rows one after the other.
// Idea  : rows are independent: one thread per row, in three passes: maximum, sum, quotient.
// Thread: t = blockIdx.x * blockDim.x + threadIdx.x owns the rows t, t + T, ...
// Costs : 3 reads and 1 write; the lanes of a wave read addresses a whole row apart.
static __global__ void softmax_thread_per_row(float* y, const float* x, size_t rows, size_t cols) {
  const size_t thread = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t row = thread; row < rows; row += threads) {
    const float* row_x = x + row * cols;
    float* row_y = y + row * cols;
    float max = -FLT_MAX, sum = 0;
    for (size_t c = 0; c < cols; ++c) max = fmaxf(max, row_x[c]);
    for (size_t c = 0; c < cols; ++c) sum += exponential(row_x[c] - max);
    const float scale = 1.0f / sum;
    for (size_t c = 0; c < cols; ++c) row_y[c] = scale * exponential(row_x[c] - max);
  }
}

inline void launch_thread_per_row(float* y, const float* x, size_t rows, size_t cols,
                                  hipStream_t stream = nullptr) {
  if (rows == 0 || cols == 0) return;
  LAUNCH_ON(stream, softmax_thread_per_row, row_blocks(rows, kBlock, kBlock), kBlock, 0, y, x, rows,
            cols);
}

// ---- Block per row ----------------------------------------------------------------------------

// The largest `value` of the block, in every thread: the tree of dot::block_sum_tree with another
// operation. Wait at a barrier before calling it again.
__device__ inline float block_max_tree(float value) {
  __shared__ float largest[kBlock];
  largest[threadIdx.x] = value;
  __syncthreads();  // every thread's value is in `largest`
  for (unsigned half = kBlock / 2; half > 0; half /= 2) {
    if (threadIdx.x < half)
      largest[threadIdx.x] = fmaxf(largest[threadIdx.x], largest[threadIdx.x + half]);
    __syncthreads();  // largest[0, half) hold the maximum of everything
  }
  return largest[0];
}

// Y = softmax(X)    X, Y (rows, cols), any sizes.
// Fixes : the lanes of thread_per_row use 4 bytes of every 32 that the memory sends.
// Idea  : the threads of a block share a row: neighbours read neighbours; trees in shared memory.
// Thread: t of the block owns the columns t, t + kBlock, ... of the row blockIdx.x.
// Costs : 3 reads and 1 write; 2 log2(kBlock) + 2 barriers per row, 8 kBlock bytes shared.
static __global__ void softmax_block_per_row(float* y, const float* x, size_t rows, size_t cols) {
  for (size_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const float* row_x = x + row * cols;
    float* row_y = y + row * cols;
    // exercise: the three passes, with the trees between them (about 7 lines)
    float max = -FLT_MAX, sum = 0;
    for (size_t c = threadIdx.x; c < cols; c += kBlock) max = fmaxf(max, row_x[c]);
    max = block_max_tree(max);
    for (size_t c = threadIdx.x; c < cols; c += kBlock) sum += exponential(row_x[c] - max);
    sum = dot::block_sum_tree(sum);
    const float scale = 1.0f / sum;
    for (size_t c = threadIdx.x; c < cols; c += kBlock)
      row_y[c] = scale * exponential(row_x[c] - max);
    // end exercise
  }
}

inline void launch_block_per_row(float* y, const float* x, size_t rows, size_t cols,
                                 hipStream_t stream = nullptr) {
  if (rows == 0 || cols == 0) return;
  LAUNCH_ON(stream, softmax_block_per_row, row_blocks(rows, 1, kBlock), kBlock, 0, y, x, rows,
            cols);
}

// ---- Wave per row -----------------------------------------------------------------------------

// The largest `value` of the wave, in every lane, as dot::wave_sum.
__device__ inline float wave_max(float value) {
  for (int distance = gpu::wave_size() / 2; distance > 0; distance /= 2)
    value = fmaxf(value, gpu::wave_shfl_xor(value, distance));
  return value;
}

// Y = softmax(X)    X, Y (rows, cols), any sizes.
// Fixes : block_per_row waits at 18 barriers per row, and its threads have little of a short row.
// Idea  : a wave per row: shuffles instead of shared memory and barriers.
// Thread: lane l of a wave owns the columns l, l + wave size, ... of the wave's row.
// Costs : 3 reads and 1 write; no barrier, no shared memory. Slower than block_per_row at every
//         committed shape: as many threads work at more rows at a time (8 times as many with waves
//         of 32), more than the cache keeps from one pass to the next. It is the step to
//         row_in_registers, where a wave holds its row.
static __global__ void softmax_wave_per_row(float* y, const float* x, size_t rows, size_t cols) {
  const size_t waves_per_block = kBlock / static_cast<unsigned>(gpu::wave_size());
  const size_t wave = blockIdx.x * waves_per_block + static_cast<size_t>(gpu::wave_id());
  const size_t lane = static_cast<size_t>(gpu::lane_id());
  const size_t lanes = static_cast<size_t>(gpu::wave_size());
  for (size_t row = wave; row < rows; row += gridDim.x * waves_per_block) {
    const float* row_x = x + row * cols;
    float* row_y = y + row * cols;
    float max = -FLT_MAX, sum = 0;
    for (size_t c = lane; c < cols; c += lanes) max = fmaxf(max, row_x[c]);
    max = wave_max(max);
    for (size_t c = lane; c < cols; c += lanes) sum += exponential(row_x[c] - max);
    sum = dot::wave_sum(sum);
    const float scale = 1.0f / sum;
    for (size_t c = lane; c < cols; c += lanes) row_y[c] = scale * exponential(row_x[c] - max);
  }
}

inline void launch_wave_per_row(float* y, const float* x, size_t rows, size_t cols,
                                hipStream_t stream = nullptr) {
  if (rows == 0 || cols == 0) return;
  LAUNCH_ON(stream, softmax_wave_per_row,
            row_blocks(rows, kBlock / gpu::device_wave_size(), kBlock), kBlock, 0, y, x, rows,
            cols);
}

// ---- Maximum and sum together -----------------------------------------------------------------

// What is known of a part of a row: its maximum, and the sum of exp(x - max) over its elements.
//
//   {3, s} and {5, t}  are together  {5, s exp(3 - 5) + t}     (Milakov and Gimelshein: Online
//                                                  normalizer calculation for softmax, 2018)
//
// The maximum of no elements is the smallest finite float rather than -infinity: -infinity minus
// -infinity would be NaN, but exp(-infinity - smallest) is the 0 that a masked element shall count.
struct MaxSum {
  float max, sum;
};

__device__ inline MaxSum nothing() { return {-FLT_MAX, 0.0f}; }

__device__ inline MaxSum merge(MaxSum a, MaxSum b) {
  const float max = fmaxf(a.max, b.max);
  return {max, a.sum * exponential(a.max - max) + b.sum * exponential(b.max - max)};
}

// exp(x - max) becomes a probability of the whole row when it is multiplied by this.
__device__ inline float probability_scale(float max, MaxSum whole) {
  return exponential(max - whole.max) / whole.sum;
}

// The parts of all lanes together, in every lane: one exponential per lane, as the maximum of all
// is found first.
__device__ inline MaxSum wave_merge(MaxSum part) {
  const float max = wave_max(part.max);
  return {max, dot::wave_sum(part.sum * exponential(part.max - max))};
}

inline constexpr unsigned kMaxWaves = 32;  // in a block: of 1024 threads, by 32 or more

// The parts of all threads of a block of whole waves together, in every thread.
__device__ inline MaxSum block_merge(MaxSum part) {
  __shared__ MaxSum parts[kMaxWaves];
  // exercise: merge waves, leave one part per wave in `parts`, merge those (about 7 lines)
  part = wave_merge(part);
  __syncthreads();  // nobody reads the parts of the row before any more
  if (gpu::lane_id() == 0) parts[gpu::wave_id()] = part;
  __syncthreads();  // every wave's part is in `parts`
  const int waves = static_cast<int>(blockDim.x) / gpu::wave_size();
  return wave_merge(gpu::lane_id() < waves ? parts[gpu::lane_id()] : nothing());
  // end exercise
}

// ---- Who shares a row -------------------------------------------------------------------------
// The versions that follow are written for a team of threads: a block, or each wave of a block.

template <unsigned kThreads>
struct BlockTeam {
  static constexpr unsigned kBlockThreads = kThreads;
  static unsigned host_size() { return kThreads; }
  __device__ static unsigned size() { return kThreads; }
  __device__ static unsigned rank() { return threadIdx.x; }
  __device__ static size_t first_row() { return blockIdx.x; }
  __device__ static size_t rows_in_grid() { return gridDim.x; }
  __device__ static MaxSum merge(MaxSum part) { return block_merge(part); }
};

struct WaveTeam {
  static constexpr unsigned kBlockThreads = kBlock;
  static unsigned host_size() { return gpu::device_wave_size(); }
  __device__ static unsigned size() { return static_cast<unsigned>(gpu::wave_size()); }
  __device__ static unsigned rank() { return static_cast<unsigned>(gpu::lane_id()); }
  __device__ static size_t first_row() {
    return size_t{blockIdx.x} * (kBlock / size()) + static_cast<size_t>(gpu::wave_id());
  }
  __device__ static size_t rows_in_grid() { return size_t{gridDim.x} * (kBlock / size()); }
  __device__ static MaxSum merge(MaxSum part) { return wave_merge(part); }
};

// ---- A row, 16 bytes at a time ----------------------------------------------------------------

// One row of X, and where its results go. As vector_add::Split, but each row has its own: a row of
// 50257 floats begins 4 bytes further past a multiple of 16 than the row before.
//
//   column   0 1 | 2 3 4 5 | 6 7 8 9 | ... | cols-1      row_x[2] lies at a multiple of 16
//           head |   v=0   |   v=1   | ... | tail        head and tail: at most 3 single ones each
//
// Where row_y is not aligned like row_x, float4s can still be loaded, but are stored one by one.
template <bool kAlignedAlike>
struct Row {
  float* y;
  const float* x;
  size_t head, vectors, tail;

  __device__ Row(float* row_y, const float* row_x, size_t cols) : y(row_y), x(row_x) {
    const size_t past = reinterpret_cast<std::uintptr_t>(row_x) / sizeof(float) % 4;
    const size_t ahead = (4 - past) % 4;
    head = ahead < cols ? ahead : cols;
    vectors = (cols - head) / 4;
    tail = (cols - head) % 4;
  }

  __device__ size_t column(size_t vector) const { return head + 4 * vector; }
  __device__ float4 load(size_t vector) const {
    return reinterpret_cast<const float4*>(x + head)[vector];
  }
  __device__ void store(size_t vector, float4 value) const {
    if constexpr (kAlignedAlike) {
      reinterpret_cast<float4*>(y + head)[vector] = value;
    } else {
      float* to = y + column(vector);
      to[0] = value.x, to[1] = value.y, to[2] = value.z, to[3] = value.w;
    }
  }

  // Of the single elements each thread has at most one: every team has more threads.
  __device__ bool has_single(unsigned rank) const { return rank < head + tail; }
  __device__ size_t column_of_single(unsigned rank) const {
    return rank < head ? rank : rank + 4 * vectors;
  }
  __device__ float load_single(unsigned rank) const {
    return has_single(rank) ? x[column_of_single(rank)] : -INFINITY;
  }
};

// Whether the rows of y are aligned like those of x.
inline bool aligned_alike(const float* y, const float* x) {
  return (reinterpret_cast<std::uintptr_t>(y) - reinterpret_cast<std::uintptr_t>(x)) %
             sizeof(float4) ==
         0;
}

// Of the float4s first, first + team, ... a thread holds those whose distance from `first` is less
// than this: kVectors of them, unless `end` comes before. It fits 32 bits, which are compared in
// one instruction.
template <class Team, unsigned kVectors>
__device__ inline unsigned reach(size_t first, size_t end) {
  const size_t left = first < end ? end - first : 0, most = kVectors * Team::size();
  return static_cast<unsigned>(left < most ? left : most);
}

// held[k] = the float4 begin + rank + k * team of the row, or -infinity where that reaches `end`:
// kVectors independent loads, all on their way before the first is used.
template <class Team, unsigned kVectors, bool kAlignedAlike>
__device__ inline void load(float4 (&held)[kVectors], const Row<kAlignedAlike>& row, size_t begin,
                            size_t end) {
  const size_t first = begin + Team::rank();
  const unsigned within = reach<Team, kVectors>(first, end);
  GPU_UNROLL
  for (unsigned k = 0; k < kVectors; ++k)
    held[k] = k * Team::size() < within ? row.load(first + k * Team::size())
                                        : make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
}

__device__ inline float max_of(float4 x) { return fmaxf(fmaxf(x.x, x.y), fmaxf(x.z, x.w)); }
__device__ inline float sum_of(float4 x) { return (x.x + x.y) + (x.z + x.w); }
__device__ inline float4 exponential(float4 x, float max) {
  return make_float4(exponential(x.x - max), exponential(x.y - max), exponential(x.z - max),
                     exponential(x.w - max));
}

template <unsigned kVectors>
__device__ inline float max_of(const float4 (&held)[kVectors], float max) {
  GPU_UNROLL
  for (unsigned k = 0; k < kVectors; ++k) max = fmaxf(max, max_of(held[k]));
  return max;
}
// Replaces each x by exp(x - max) and returns their sum.
template <unsigned kVectors>
__device__ inline float exponentials(float4 (&held)[kVectors], float max) {
  float sum = 0;
  GPU_UNROLL
  for (unsigned k = 0; k < kVectors; ++k) {
    held[k] = exponential(held[k], max);
    sum += sum_of(held[k]);
  }
  return sum;
}

// ---- What is stored of a row ------------------------------------------------------------------
// An Output makes a Row of its own for each row, after the row's loads have begun and before any of
// its elements is stored: what it waits for from memory holds nothing else up. One thread calls
// finish(whole). Every element then becomes (column, probability) -> what is stored. Softmax stores
// the probability; a loss fused with its gradient stores something else.

struct Probabilities {
  struct Row {
    __device__ void finish(MaxSum) const {}
    __device__ float operator()(size_t, float probability) const { return probability; }
  };
  __device__ Row row(size_t) const { return {}; }
};

// Below, the exponentials e times `scale` are the probabilities.

template <class OutputRow, bool kAlignedAlike>
__device__ inline void store(const Row<kAlignedAlike>& row, const OutputRow& output, size_t vector,
                             float4 e, float scale) {
  const size_t c = row.column(vector);
  row.store(vector, make_float4(output(c, e.x * scale), output(c + 1, e.y * scale),
                                output(c + 2, e.z * scale), output(c + 3, e.w * scale)));
}

// The float4s that `load` brought with the same begin and end.
template <class Team, unsigned kVectors, class OutputRow, bool kAlignedAlike>
__device__ inline void store(const Row<kAlignedAlike>& row, const OutputRow& output,
                             const float4 (&held)[kVectors], size_t begin, size_t end,
                             float scale) {
  const size_t first = begin + Team::rank();
  const unsigned within = reach<Team, kVectors>(first, end);
  GPU_UNROLL
  for (unsigned k = 0; k < kVectors; ++k)
    if (k * Team::size() < within) store(row, output, first + k * Team::size(), held[k], scale);
}

template <class OutputRow, bool kAlignedAlike>
__device__ inline void store_single(const Row<kAlignedAlike>& row, const OutputRow& output,
                                    unsigned rank, float e, float scale) {
  if (!row.has_single(rank)) return;
  const size_t c = row.column_of_single(rank);
  row.y[c] = output(c, e * scale);
}

// ---- Online -----------------------------------------------------------------------------------

// Y = softmax(X)    X, Y (rows, cols), any sizes.
// Fixes : three passes read the row three times, 4 bytes per load.
// Idea  : maximum and sum in one pass: where a larger element appears, the sum so far is rescaled.
//         float4s, several on their way; the second pass walks back, over what is still in cache.
// Thread: t of the block owns the float4s t, t + kOnlineThreads, ... of the row, and a single one.
// Costs : 2 reads, of which the cache may serve one, and 1 write; 2 barriers per row.
template <bool kAlignedAlike, class Output>
static __global__ void GPU_LAUNCH_BOUNDS(kOnlineThreads, kOnlineBlocks)
    softmax_online(float* y, const float* x, size_t rows, size_t cols, Output output) {
  using Team = BlockTeam<kOnlineThreads>;
  constexpr size_t kStep = size_t{kOnlineVectors} * kOnlineThreads;
  for (size_t r = Team::first_row(); r < rows; r += Team::rows_in_grid()) {
    const Row<kAlignedAlike> row(y + r * cols, x + r * cols, cols);
    const float single = row.load_single(Team::rank());
    MaxSum part = merge(nothing(), {single, 1.0f});
    float4 held[kOnlineVectors];
    // exercise: for each step, load, then merge maximum and sum of `held` into part (about 6 lines)
    for (size_t begin = 0; begin < row.vectors; begin += kStep) {
      load<Team>(held, row, begin, row.vectors);
      const float max = max_of(held, part.max);
      part.sum = part.sum * exponential(part.max - max) + exponentials(held, max);
      part.max = max;
    }
    // end exercise
    const auto output_row = output.row(r);
    const MaxSum whole = Team::merge(part);
    if (Team::rank() == 0) output_row.finish(whole);
    const float scale = 1.0f / whole.sum;
    for (size_t step = gpu::ceil_div(row.vectors, kStep); step-- > 0;) {
      load<Team>(held, row, step * kStep, row.vectors);
      exponentials(held, whole.max);
      store<Team>(row, output_row, held, step * kStep, row.vectors, scale);
    }
    store_single(row, output_row, Team::rank(), exponential(single - whole.max), scale);
  }
}

template <class Output>
void launch_online(float* y, const float* x, size_t rows, size_t cols, Output output,
                   hipStream_t stream) {
  const unsigned blocks = row_blocks(rows, 1, kOnlineThreads);
  if (aligned_alike(y, x))
    LAUNCH_ON(stream, (softmax_online<true, Output>), blocks, kOnlineThreads, 0, y, x, rows, cols,
              output);
  else
    LAUNCH_ON(stream, (softmax_online<false, Output>), blocks, kOnlineThreads, 0, y, x, rows, cols,
              output);
}

// ---- Row in registers -------------------------------------------------------------------------

// Y = softmax(X)    X, Y (rows, cols), any rows; cols / 4 <= kVectors * the team's threads.
// Fixes : online reads the row twice.
// Idea  : the team holds the row in its registers: read once, all loads on their way at the same
//         time. Each thread takes exponentials by its own maximum, without waiting for the others,
//         and rescales them when the row's is known.
// Thread: t of the team owns the float4s t, t + team, ... of the row, and at most one single one.
// Costs : 1 read and 1 write; 4 kVectors registers; 2 barriers per row, none in a wave.
template <class Team, unsigned kVectors, unsigned kResidentBlocks, class Output>
static __global__ void GPU_LAUNCH_BOUNDS(Team::kBlockThreads, kResidentBlocks)
    softmax_row_in_registers(float* y, const float* x, size_t rows, size_t cols, Output output) {
  for (size_t r = Team::first_row(); r < rows; r += Team::rows_in_grid()) {
    const Row<true> row(y + r * cols, x + r * cols, cols);
    float4 held[kVectors];
    load<Team>(held, row, 0, row.vectors);
    float single = row.load_single(Team::rank());
    const auto output_row = output.row(r);
    MaxSum part;
    part.max = fmaxf(max_of(held, -FLT_MAX), single);
    single = exponential(single - part.max);
    part.sum = exponentials(held, part.max) + single;
    const MaxSum whole = Team::merge(part);
    if (Team::rank() == 0) output_row.finish(whole);
    const float scale = probability_scale(part.max, whole);
    store<Team>(row, output_row, held, 0, row.vectors, scale);
    store_single(row, output_row, Team::rank(), single, scale);
  }
}

// Returns false, and launches nothing, where the team can't hold a row.
template <class Team, unsigned kVectors, unsigned kResidentBlocks, class Output>
inline bool launch_team(float* y, const float* x, size_t rows, size_t cols, Output output,
                        hipStream_t stream) {
  const unsigned threads = Team::host_size();
  if (cols / 4 > size_t{kVectors} * threads) return false;
  LAUNCH_ON(stream, (softmax_row_in_registers<Team, kVectors, kResidentBlocks, Output>),
            row_blocks(rows, Team::kBlockThreads / threads, Team::kBlockThreads),
            Team::kBlockThreads, 0, y, x, rows, cols, output);
  return true;
}

// Returns false, and launches nothing, where no team can hold a row or y is not aligned like x. A
// team that is larger than its rows has idle threads.
template <class Output>
bool launch_row_in_registers(float* y, const float* x, size_t rows, size_t cols, Output output,
                             hipStream_t stream) {
  return aligned_alike(y, x) &&
         (launch_team<WaveTeam, 1, 4>(y, x, rows, cols, output, stream) ||
          launch_team<WaveTeam, 2, 4>(y, x, rows, cols, output, stream) ||
          launch_team<WaveTeam, 4, 4>(y, x, rows, cols, output, stream) ||
          launch_team<WaveTeam, 8, 3>(y, x, rows, cols, output, stream) ||
          launch_team<BlockTeam<256>, 4, 4>(y, x, rows, cols, output, stream) ||
          launch_team<BlockTeam<512>, 4, 2>(y, x, rows, cols, output, stream) ||
          launch_team<BlockTeam<512>, 8, 2>(y, x, rows, cols, output, stream) ||
          launch_team<BlockTeam<512>, 16, 1>(y, x, rows, cols, output, stream) ||
          launch_team<BlockTeam<512>, 25, 1>(y, x, rows, cols, output, stream));
}

// ---- Row in registers and shared memory -------------------------------------------------------

// kept[v] = the float4 v of the row, for those that `load` brought with the same begin and end.
template <class Team, unsigned kVectors>
__device__ inline void keep(float4* kept, const float4 (&held)[kVectors], size_t begin,
                            size_t end) {
  const size_t first = begin + Team::rank();
  const unsigned within = reach<Team, kVectors>(first, end);
  GPU_UNROLL
  for (unsigned k = 0; k < kVectors; ++k)
    if (k * Team::size() < within) kept[first + k * Team::size()] = held[k];
}

// Y = softmax(X)    X, Y (rows, cols), any rows; in_shared = how many float4s shared memory holds.
// Fixes : row_in_registers ends where a thread's registers end, and near that end a multiprocessor
//         holds one block only.
// Idea  : shared memory is as large as all registers together: a thread keeps there what its
//         registers do not hold. It takes the exponentials of the one part while the other arrives.
// Thread: t of the block owns the float4s t, t + kSharedThreads, ... of the row, and at most one
//         single one. No other thread reads its shared memory: no barrier for it.
// Costs : 1 read and 1 write; 4 kSharedVectors registers and 16 bytes of shared memory for each
//         float4 beyond them; 2 barriers per row.
template <class Output>
static __global__ void GPU_LAUNCH_BOUNDS(kSharedThreads, kSharedBlocks)
    softmax_row_in_shared(float* y, const float* x, size_t rows, size_t cols, size_t in_shared,
                          Output output) {
  using Team = BlockTeam<kSharedThreads>;
  constexpr size_t kStep = size_t{kSharedVectors} * kSharedThreads;
  DYNAMIC_SHARED(float4, kept);
  for (size_t r = Team::first_row(); r < rows; r += Team::rows_in_grid()) {
    const Row<true> row(y + r * cols, x + r * cols, cols);
    const size_t split = in_shared < row.vectors ? in_shared : row.vectors;

    float4 held[kSharedVectors];
    MaxSum shared_part = nothing();
    for (size_t begin = 0; begin < split; begin += kStep) {
      load<Team>(held, row, begin, split);
      keep<Team>(kept, held, begin, split);
      shared_part.max = max_of(held, shared_part.max);
    }
    load<Team>(held, row, split, row.vectors);
    float single = row.load_single(Team::rank());
    const auto output_row = output.row(r);
    for (size_t v = Team::rank(); v < split; v += kSharedThreads) {
      const float4 e = exponential(kept[v], shared_part.max);
      kept[v] = e;
      shared_part.sum += sum_of(e);
    }

    MaxSum part;
    part.max = fmaxf(max_of(held, -FLT_MAX), single);
    single = exponential(single - part.max);
    part.sum = exponentials(held, part.max) + single;
    const MaxSum whole = Team::merge(merge(part, shared_part));
    if (Team::rank() == 0) output_row.finish(whole);

    const float scale = probability_scale(part.max, whole);
    store<Team>(row, output_row, held, split, row.vectors, scale);
    store_single(row, output_row, Team::rank(), single, scale);
    const float shared_scale = probability_scale(shared_part.max, whole);
    for (size_t v = Team::rank(); v < split; v += kSharedThreads)
      store(row, output_row, v, kept[v], shared_scale);
  }
}

// Returns false, and launches nothing, where registers and shared memory together do not hold a row
// or y is not aligned like x.
template <class Output>
bool launch_row_in_shared(float* y, const float* x, size_t rows, size_t cols, Output output,
                          hipStream_t stream) {
  constexpr size_t kInRegisters = size_t{kSharedVectors} * kSharedThreads;
  const size_t vectors = cols / 4, in_shared = vectors - std::min(vectors, kInRegisters);
  const size_t bytes = in_shared * sizeof(float4);
  if (bytes + sizeof(MaxSum) * kMaxWaves > gpu::max_shared_bytes() || !aligned_alike(y, x))
    return false;
  gpu::allow_shared_bytes(softmax_row_in_shared<Output>, bytes);
  LAUNCH_ON(stream, (softmax_row_in_shared<Output>), row_blocks(rows, 1, kSharedThreads),
            kSharedThreads, bytes, y, x, rows, cols, in_shared, output);
  return true;
}

// ---- The best for each length -----------------------------------------------------------------

// Whatever `output` makes of the probabilities of X, (rows, cols), stored to y, by the version that
// choices.h names for this length. Where that one can't hold a row, the row is read once if
// registers, or they and shared memory, can hold it, else twice. y may be x.
template <class Output>
inline void launch_best(float* y, const float* x, size_t rows, size_t cols, Output output,
                        hipStream_t stream) {
  if (rows == 0 || cols == 0) return;
  const Choice first = choice(cols);
  if (first == Choice::row_in_shared && launch_row_in_shared(y, x, rows, cols, output, stream))
    return;
  if (first == Choice::online || (!launch_row_in_registers(y, x, rows, cols, output, stream) &&
                                  !launch_row_in_shared(y, x, rows, cols, output, stream)))
    launch_online(y, x, rows, cols, output, stream);
}

// Compiled once, in softmax_instances.hip, and not in every program that includes this file.
extern template void launch_online(float*, const float*, size_t, size_t, Probabilities,
                                   hipStream_t);
extern template bool launch_row_in_registers(float*, const float*, size_t, size_t, Probabilities,
                                             hipStream_t);
extern template bool launch_row_in_shared(float*, const float*, size_t, size_t, Probabilities,
                                          hipStream_t);

// Y = softmax(X): the entry for later stages.
inline void best(float* y, const float* x, size_t rows, size_t cols, hipStream_t stream = nullptr) {
  launch_best(y, x, rows, cols, Probabilities{}, stream);
}

// ---- The versions -----------------------------------------------------------------------------
// Rows that row_in_registers or row_in_shared can't hold are left to online.

inline void launch_online(float* y, const float* x, size_t rows, size_t cols,
                          hipStream_t stream = nullptr) {
  if (rows == 0 || cols == 0) return;
  launch_online(y, x, rows, cols, Probabilities{}, stream);
}
inline void launch_row_in_registers(float* y, const float* x, size_t rows, size_t cols,
                                    hipStream_t stream = nullptr) {
  if (rows == 0 || cols == 0) return;
  if (!launch_row_in_registers(y, x, rows, cols, Probabilities{}, stream))
    launch_online(y, x, rows, cols, Probabilities{}, stream);
}
inline void launch_row_in_shared(float* y, const float* x, size_t rows, size_t cols,
                                 hipStream_t stream = nullptr) {
  if (rows == 0 || cols == 0) return;
  if (!launch_row_in_shared(y, x, rows, cols, Probabilities{}, stream))
    launch_online(y, x, rows, cols, Probabilities{}, stream);
}

// Additions: those of a thread one after the other, those of a float4, and the tree of the team.
inline double additions(size_t cols, size_t threads) {
  return static_cast<double>(gpu::ceil_div(cols, threads)) + std::log2(threads);
}
inline Roundings roundings_thread_per_row(size_t cols) { return {static_cast<double>(cols), 1}; }
inline Roundings roundings_block_per_row(size_t cols) { return {additions(cols, kBlock), 1}; }
inline Roundings roundings_wave_per_row(size_t cols) {
  return {additions(cols, gpu::device_wave_size()), 1};
}
// Exponentials: an element's own, those of two merges, and of every step that may rescale the sum.
inline Roundings roundings_online(size_t cols) {
  const double steps = std::ceil(static_cast<double>(cols) / (4 * kOnlineVectors * kOnlineThreads));
  return {additions(cols, 4 * kOnlineThreads) + 2 + steps, 3 + steps};
}
// A thread adds kVectors float4s, or those that there are, and a single element.
inline Roundings roundings_row_in_registers(size_t cols) {
  const double vectors = std::fmax(8.0, std::ceil(static_cast<double>(cols) / (4 * 256)));
  const Roundings online = roundings_online(cols);
  return {std::fmax(vectors + 3 + std::log2(512), online.additions), online.exponentials};
}
// Shared memory is one part more to merge.
inline Roundings roundings_row_in_shared(size_t cols) {
  const Roundings online = roundings_online(cols);
  return {std::fmax(additions(cols, 4 * kSharedThreads) + 2, online.additions),
          1 + online.exponentials};
}
inline Roundings roundings_best(size_t cols) {
  const Roundings a = roundings_row_in_registers(cols), b = roundings_row_in_shared(cols);
  return {std::fmax(a.additions, b.additions), std::fmax(a.exponentials, b.exponentials)};
}

struct Launch {
  void (*run)(float* y, const float* x, size_t rows, size_t cols, hipStream_t stream);
  Roundings (*roundings)(size_t cols);
};

inline constexpr Version<Launch> kVersions[] = {
    {"thread_per_row",
     {launch_thread_per_row, roundings_thread_per_row},
     "three passes, lanes a row apart"},
    {"block_per_row",
     {launch_block_per_row, roundings_block_per_row},
     "neighbours read neighbours; trees in shared memory"},
    {"wave_per_row", {launch_wave_per_row, roundings_wave_per_row}, "shuffles instead of barriers"},
    {"online", {launch_online, roundings_online}, "maximum and sum in one pass"},
    {"row_in_registers",
     {launch_row_in_registers, roundings_row_in_registers},
     "the row is read once"},
    {"row_in_shared",
     {launch_row_in_shared, roundings_row_in_shared},
     "a row in two memories: longer rows are read once"},
};

}  // namespace softmax
