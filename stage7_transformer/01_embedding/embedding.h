// 7.1  embedding: what a transformer knows of a token before it has looked at any other.
//
//   y[b,t] = token_table[tokens[b,t]] + position_table[t]           y (B, T, C)
//
//   tokens (B, T)     token_table (V, C)     position_table (T_max, C), of which T rows are used
//
// Forward copies rows from where the tokens say. Backward sends the gradients back there, and there
// the work begins, because many positions may have the same token:
//
//   grad_token[v]    = sum of grad_y[b,t] over all (b,t) with tokens[b,t] = v     0 where none has
//   grad_position[t] = sum of grad_y[b,t] over b                                  0 where t >= T
//
// Which sums meet is known only from the data. Atomics add in any order, and float sums depend on
// the order: a training that uses them can't be repeated bit for bit. The ladder ends with a sort:
// once the positions of a token are neighbours, their sum can be split and ordered like any other.
//
// Everything is on the device, row-major without gaps and aligned to 4 bytes; any sizes (0 too).
// Launchers queue on `stream`. They throw std::invalid_argument where T is more than T_max.
//
// A token outside [0, V) is a mistake in the data, and a kernel can't throw: nothing is read there,
// y[b,t] becomes NaN, no row of grad_token gets its gradient, and the first such position stays in
// a word on the device, which Workspace::check_tokens looks at (as step 3.3 does with labels).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/gpu.h"
#include "common/program.h"
#include "common/rounding.h"
#include "stage0_infra/04_device_matrix/device_matrix.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage2_matrix/02_gemv/detail/plan.h"
#include "stage3_ml_ops/02_softmax/detail/team.h"

namespace embedding {

using device_matrix::DeviceBuffer;

struct Shape {
  size_t B, T, C, V;  // sequences, positions of each, columns, tokens
  size_t T_max = 0;   // rows of the position table; 0: T
  __host__ __device__ size_t positions() const { return B * T; }
};

inline constexpr size_t kMost = std::numeric_limits<std::uint32_t>::max();  // they have 32 bits

// With T_max in the place of 0.
inline Shape checked(Shape shape) {
  if (shape.T_max == 0) shape.T_max = shape.T;
  if (shape.T > shape.T_max)
    throw std::invalid_argument("embedding: sequences of " + std::to_string(shape.T) +
                                " positions, and a table for " + std::to_string(shape.T_max));
  if (shape.positions() >= kMost)
    throw std::invalid_argument("embedding takes fewer than 2^32 - 1 positions");
  if (shape.V >= kMost) throw std::invalid_argument("embedding takes fewer than 2^32 - 1 tokens");
  return shape;
}

// ---- Tokens that are none ---------------------------------------------------------------------

// The position in the upper half and the token in the lower: the smallest word is the first one's.
inline constexpr unsigned long long kNoBadToken = ~0ull;  // every byte 0xFF

__host__ __device__ inline bool is_token(std::int32_t token, size_t V) {
  return token >= 0 && static_cast<size_t>(token) < V;
}

// bad_token may be null: nobody wants to know.
__device__ inline void report(unsigned long long* bad_token, size_t position, std::int32_t token) {
  if (bad_token != nullptr)
    atomicMin(bad_token,
              static_cast<unsigned long long>(position) << 32 | static_cast<std::uint32_t>(token));
}

// Throws std::out_of_range for what report has left: "position 17: token 70 is not in [0, 65)",
// where the positions of all sequences count on.
inline void check_tokens(unsigned long long bad_token, size_t V) {
  if (bad_token == kNoBadToken) return;
  const auto token = static_cast<std::int32_t>(static_cast<std::uint32_t>(bad_token));
  throw std::out_of_range("position " + std::to_string(bad_token >> 32) + ": token " +
                          std::to_string(token) + " is not in [0, " + std::to_string(V) + ")");
}

// ---- Reference and bound ----------------------------------------------------------------------

// Sums in double, of how many terms they are and the sum of their absolute values, of which
// rounding::worst_case makes what a float sum may be off.
struct Sums {
  std::vector<double> value, absolute;
  std::vector<double> terms;  // one per row
  explicit Sums(size_t rows = 0, size_t cols = 0)
      : value(rows * cols), absolute(rows * cols), terms(rows) {}
  void add(size_t row, const float* values, size_t cols) {
    terms[row] += 1;
    for (size_t c = 0; c < cols; ++c) {
      const double term = static_cast<double>(values[c]);
      value[row * cols + c] += term, absolute[row * cols + c] += std::fabs(term);
    }
  }
};

// y in double; one addition rounds once: vector_add::bound. A bad token's row is NaN.
inline std::vector<double> forward_cpu(const std::vector<std::int32_t>& tokens,
                                       const std::vector<float>& token_table,
                                       const std::vector<float>& position_table,
                                       const Shape& shape) {
  std::vector<double> y;
  for (size_t i = 0; i < tokens.size(); ++i)
    for (size_t c = 0; c < shape.C; ++c)
      y.push_back(
          is_token(tokens[i], shape.V)
              ? static_cast<double>(token_table[static_cast<size_t>(tokens[i]) * shape.C + c]) +
                    static_cast<double>(position_table[i % shape.T * shape.C + c])
              : std::numeric_limits<double>::quiet_NaN());
  return y;
}

struct Gradients {
  Sums token, position;
};

inline Gradients backward_cpu(const std::vector<float>& grad_y,
                              const std::vector<std::int32_t>& tokens, const Shape& shape) {
  Gradients want{Sums(shape.V, shape.C), Sums(checked(shape).T_max, shape.C)};
  for (size_t i = 0; i < tokens.size(); ++i) {
    const float* row = grad_y.data() + i * shape.C;
    want.position.add(i % shape.T, row, shape.C);
    if (is_token(tokens[i], shape.V)) want.token.add(static_cast<size_t>(tokens[i]), row, shape.C);
  }
  return want;
}

// ---- Tuning -----------------------------------------------------------------------------------

inline constexpr unsigned kBlock =
    vector_add::kBlock;                    // threads per block, if nothing else is said
inline constexpr unsigned kMaxWidth = 64;  // threads beside each other that share a row's columns
inline constexpr unsigned kSortThreads = 1024;
inline constexpr unsigned kDigitBits = 8;  // of a token, that one round of the sort looks at
inline constexpr unsigned kSortLoads = 4;  // positions on their way per thread of the sort
inline constexpr unsigned kChunk = 16;     // sorted positions that a thread adds up
inline constexpr unsigned kLoads = 8;      // rows on their way per thread, of all other sums
// Tables in shared memory: columns of one, rows of all that a block has, positions on their way per
// thread, blocks per multiprocessor.
inline constexpr unsigned kTableWidth = 32;
inline constexpr size_t kTableRows = 384;
inline constexpr size_t kTableLoads = 16;
inline constexpr size_t kTableBlocks = 4;
inline constexpr size_t kFewTokens = 4096;  // up to which all threads of a block share a token

// A Value is a float4 where every row of all arrays begins at a multiple of 16 bytes, else a float.
template <class Value>
inline constexpr size_t kWidth = sizeof(Value) / sizeof(float);

inline bool rows_are_aligned(size_t cols, std::initializer_list<const float*> arrays) {
  return cols % 4 == 0 && std::all_of(arrays.begin(), arrays.end(), gemv::is_float4_aligned);
}

// Blocks as wide as a row of `values` Values, or as an equal part of it, so that hardly a thread is
// idle; beside each other as many rows, or groups of rows, as there is room for.
struct Plan {
  dim3 blocks, threads;
};
inline Plan plan(size_t rows, size_t values) {
  constexpr size_t kMaxGridX = vector_add::kMaxThreads / kBlock;
  const size_t tiles = gpu::ceil_div(values, size_t{kMaxWidth});
  const size_t width = gpu::ceil_div(values, tiles), height = kBlock / width;
  return {dim3(static_cast<unsigned>(std::min(gpu::ceil_div(rows, height), kMaxGridX)),
               static_cast<unsigned>(tiles)),
          dim3(static_cast<unsigned>(width), static_cast<unsigned>(height))};
}

__device__ inline void add(float& sum, float value) { sum += value; }
__device__ inline void add(float4& sum, float4 value) {
  sum.x += value.x, sum.y += value.y, sum.z += value.z, sum.w += value.w;
}

// ---- Forward ----------------------------------------------------------------------------------

// What a forward pass reads.
struct Lookup {
  const std::int32_t* tokens;
  const float *token_table, *position_table;
  Shape shape;
  unsigned long long* bad_token;  // may be null
};

// y[b,t,c] = token_table[tokens[b,t],c] + position_table[t,c]    y (B, T, C).
// Fixes : a CPU core takes the elements one after the other.
// Idea  : one thread per element, which finds its row by dividing.
// Thread: k owns the elements k, k + K, ... of flat memory, with K threads in the grid.
// Costs : 4 bytes of token, of each table and of y per element, two quotients and two remainders.
static __global__ void embedding_element_per_thread(float* y, Lookup in) {
  const size_t C = in.shape.C, n = in.shape.positions() * C;
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t k = size_t{blockIdx.x} * blockDim.x + threadIdx.x; k < n; k += threads) {
    // exercise: the element's token and position, then the sum (about 6 lines)
    const size_t i = k / C, c = k % C;
    const std::int32_t token = in.tokens[i];
    const bool good = is_token(token, in.shape.V);
    if (!good && c == 0) report(in.bad_token, i, token);
    y[k] = good ? in.token_table[static_cast<size_t>(token) * C + c] +
                      in.position_table[i % in.shape.T * C + c]
                : NAN;
    // end exercise
  }
}

inline void launch_element_per_thread(float* y, const Lookup& in, hipStream_t stream) {
  const size_t n = in.shape.positions() * in.shape.C;
  if (n > 0)
    LAUNCH_ON(stream, embedding_element_per_thread, vector_add::full_grid(n), kBlock, 0, y, in);
}

// y[b,t] = token_table[tokens[b,t]] + position_table[t]    y (B, T, C).
// Fixes : element_per_thread asks C times for the same token, and divides for every element.
// Idea  : a wave per position: one token, one division, then the row's columns in order.
// Thread: lane l of a wave owns the columns l, l + wave size, ... of the wave's position.
// Costs : 4 bytes of each table and of y per element; the lanes beyond a short row are idle.
static __global__ void embedding_wave_per_row(float* y, Lookup in) {
  const size_t C = in.shape.C, waves = softmax::WaveTeam::rows_in_grid();
  for (size_t i = softmax::WaveTeam::first_row(); i < in.shape.positions(); i += waves) {
    const std::int32_t token = in.tokens[i];
    const bool good = is_token(token, in.shape.V);
    if (!good && gpu::lane_id() == 0) report(in.bad_token, i, token);
    const size_t of_token = good ? static_cast<size_t>(token) * C : 0;
    const size_t of_position = i % in.shape.T * C;
    for (size_t c = softmax::WaveTeam::rank(); c < C; c += softmax::WaveTeam::size())
      y[i * C + c] = good ? in.token_table[of_token + c] + in.position_table[of_position + c] : NAN;
  }
}

inline void launch_wave_per_row(float* y, const Lookup& in, hipStream_t stream) {
  constexpr unsigned kThreads = softmax::WaveTeam::kBlockThreads;
  const size_t rows = in.shape.positions();
  if (rows > 0 && in.shape.C > 0)
    LAUNCH_ON(stream, embedding_wave_per_row,
              softmax::row_blocks(rows, kThreads / softmax::WaveTeam::host_size(), kThreads),
              kThreads, 0, y, in);
}

__device__ inline void set(float& value, float to) { value = to; }
__device__ inline void set(float4& value, float to) {
  value.x = to, value.y = to, value.z = to, value.w = to;
}

// y[b,t] = token_table[tokens[b,t]] + position_table[t]    y (B, T, C); Value divides a row.
// Fixes : wave_per_row moves 4 bytes per load, and of a row of 16 float4s half the lanes have none.
// Idea  : 16 bytes per load; a block is shaped like the rows: as wide as one, or as a part of it.
// Thread: (x, y) of block (b, tile) owns Value tile * width + x of row b * height + y.
// Costs : 4 bytes of each table and of y per element; a division per thread.
template <class Value>
static __global__ void embedding_vectorized(float* y, Lookup in) {
  const size_t values = in.shape.C / kWidth<Value>;
  const size_t v = size_t{blockIdx.y} * blockDim.x + threadIdx.x;
  const size_t step = size_t{gridDim.x} * blockDim.y;
  if (v >= values) return;
  for (size_t i = size_t{blockIdx.x} * blockDim.y + threadIdx.y; i < in.shape.positions();
       i += step) {
    const std::int32_t token = in.tokens[i];
    const bool good = is_token(token, in.shape.V);
    if (!good && v == 0) report(in.bad_token, i, token);
    Value sum;
    set(sum, NAN);
    if (good) {
      sum = reinterpret_cast<const Value*>(in.token_table)[static_cast<size_t>(token) * values + v];
      add(sum, reinterpret_cast<const Value*>(in.position_table)[i % in.shape.T * values + v]);
    }
    reinterpret_cast<Value*>(y)[i * values + v] = sum;
  }
}

template <class Value>
inline void launch_vectorized(float* y, const Lookup& in, hipStream_t stream) {
  const Plan shares = plan(in.shape.positions(), in.shape.C / kWidth<Value>);
  LAUNCH_ON(stream, embedding_vectorized<Value>, shares.blocks, shares.threads, 0, y, in);
}
inline void launch_vectorized(float* y, const Lookup& in, hipStream_t stream) {
  if (in.shape.positions() == 0 || in.shape.C == 0) return;
  const auto launch = rows_are_aligned(in.shape.C, {y, in.token_table, in.position_table})
                          ? launch_vectorized<float4>
                          : launch_vectorized<float>;
  launch(y, in, stream);
}

// y (B, T, C): what later steps call. bad_token may be null, else it is Workspace::bad_token().
inline void forward(float* y, const std::int32_t* tokens, const float* token_table,
                    const float* position_table, const Shape& shape, hipStream_t stream = nullptr,
                    unsigned long long* bad_token = nullptr) {
  launch_vectorized(y, {tokens, token_table, position_table, checked(shape), bad_token}, stream);
}

struct Launch {
  void (*run)(float* y, const Lookup& in, hipStream_t stream);
};

inline constexpr Version<Launch> kVersions[] = {
    {"element_per_thread", {launch_element_per_thread}, "every element looks for its own token"},
    {"wave_per_row", {launch_wave_per_row}, "a wave copies a row: one token, no division"},
    {"vectorized",
     {[](float* y, const Lookup& in, hipStream_t stream) { launch_vectorized(y, in, stream); }},
     "16 bytes per load, blocks shaped like the rows"},
};

// ---- Backward: what it needs ------------------------------------------------------------------

// A position and the token that it has; a bad token counts as V, behind all others.
struct alignas(8) Entry {
  std::uint32_t token, position;
};

// The sorted positions of one token: [first, last). Written only where there are any.
inline constexpr std::uint32_t kNowhere = ~0u;  // `first` of a token that no position has

// So many digits tell V + 1 tokens apart, one of them the bad ones'.
inline unsigned sort_rounds(size_t V) {
  unsigned rounds = 1;
  while (V >> kDigitBits * rounds > 0) ++rounds;
  return rounds;
}

// How few tokens must be for a table of kTableWidth columns to fit a block's shared memory, and how
// the positions are shared out then.
struct TablePlan {
  unsigned groups;  // of threads in a block, each with a table of its own
  size_t slice;     // positions of a block
  size_t slices;    // of them
  size_t most;      // slices of this or of fewer positions
};
inline bool table_fits(size_t V) { return V > 0 && V <= kTableRows; }
inline TablePlan plan_table(const Shape& shape) {
  const size_t groups = std::min(kTableRows / shape.V, size_t{kBlock / kTableWidth});
  const size_t tiles = gpu::ceil_div(std::max(shape.C, size_t{1}), size_t{kTableWidth});
  const size_t wanted = std::max(size_t{gpu::multiprocessors()} * kTableBlocks / tiles, size_t{1});
  const size_t n = shape.positions(), least = groups * kTableLoads;
  const size_t slice = std::max(gpu::ceil_div(n, wanted), least);
  return {static_cast<unsigned>(groups), slice, gpu::ceil_div(n, slice),
          std::min(wanted, gpu::ceil_div(n, least))};
}

// What the first pass leaves for the second: two rows for each chunk of sorted positions, or a
// table for each slice of the positions.
inline size_t partials_of(const Shape& shape) {
  const size_t chunks = gpu::ceil_div(shape.positions(), size_t{kChunk});
  const size_t tables = table_fits(shape.V) ? plan_table(shape).most * shape.V : 0;
  return std::max(2 * chunks, tables) * shape.C;
}

// For shapes of at most these sizes. No two streams use it at the same time.
class Workspace {
 public:
  explicit Workspace(const Shape& largest)
      : first(largest.V), last(largest.V), partials(partials_of(checked(largest))), bad_token_(1) {
    for (DeviceBuffer<Entry>& buffer : entries) buffer = DeviceBuffer<Entry>(largest.positions());
    bad_token_.poison();
  }
  unsigned long long* bad_token() { return bad_token_.data(); }
  // Waits for the default stream; throws std::out_of_range for the first bad token of any launch
  // since the last call.
  void check_tokens(size_t V) {
    const unsigned long long bad_token = bad_token_.to_host()[0];
    bad_token_.poison();
    embedding::check_tokens(bad_token, V);
  }
  // Where sort() leaves its result.
  const Entry* sorted(size_t V) const { return entries[(sort_rounds(V) + 1) % 2].data(); }
  // Throws std::invalid_argument where this shape needs more.
  void require(const Shape& shape) const {
    if (shape.positions() > entries[0].size() || shape.V > first.size() ||
        partials_of(shape) > partials.size())
      throw std::invalid_argument("embedding: a batch of " + std::to_string(shape.positions()) +
                                  " tokens of " + std::to_string(shape.V) + ", " +
                                  std::to_string(shape.C) +
                                  " columns each, is more than the workspace is for");
  }

  DeviceBuffer<Entry> entries[2];           // between the rounds of the sort
  DeviceBuffer<std::uint32_t> first, last;  // (V)
  DeviceBuffer<float> partials;             // (chunks, 2, C)

 private:
  DeviceBuffer<unsigned long long> bad_token_;
};

// What a backward pass reads and writes.
struct Scatter {
  float *grad_token, *grad_position;
  const float* grad_y;
  const std::int32_t* tokens;
  Shape shape;
  unsigned long long* bad_token;
};

// ---- Atomics ----------------------------------------------------------------------------------

// grad_token[tokens[b,t]] += grad_y[b,t], grad_position[t] += grad_y[b,t]    both are 0 before.
// Fixes : a CPU core takes the elements one after the other.
// Idea  : one thread per element of grad_y; atomicAdd lets many add to the same place.
// Thread: k owns the elements k, k + K, ... of grad_y, with K threads in the grid.
// Costs : two atomics per element, which queue up where tokens are alike; any order: the bits
//         differ from run to run.
static __global__ void embedding_atomic(Scatter out) {
  const size_t C = out.shape.C, n = out.shape.positions() * C;
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t k = size_t{blockIdx.x} * blockDim.x + threadIdx.x; k < n; k += threads) {
    const size_t i = k / C, c = k % C;
    const std::int32_t token = out.tokens[i];
    const float grad = out.grad_y[k];
    if (is_token(token, out.shape.V))
      atomicAdd(&out.grad_token[static_cast<size_t>(token) * C + c], grad);
    else if (c == 0)
      report(out.bad_token, i, token);
    atomicAdd(&out.grad_position[i % out.shape.T * C + c], grad);
  }
}

inline void clear(float* values, size_t n, hipStream_t stream) {
  if (n > 0) HIP_CHECK(hipMemsetAsync(values, 0, n * sizeof(float), stream));
}

inline void launch_atomic(const Scatter& out, Workspace&, hipStream_t stream) {
  const size_t n = out.shape.positions() * out.shape.C;
  clear(out.grad_token, out.shape.V * out.shape.C, stream);
  clear(out.grad_position, out.shape.T_max * out.shape.C, stream);
  if (n > 0) LAUNCH_ON(stream, embedding_atomic, vector_add::full_grid(n), kBlock, 0, out);
}

// ---- Gather -----------------------------------------------------------------------------------

// The sum of the rows first, first + step, ... of Value v of a matrix (rows, values), in this
// order, kLoads of them on their way at a time.
template <class Value>
__device__ inline Value sum_of_rows(const float* matrix, size_t first, size_t rows, size_t step,
                                    size_t values, size_t v) {
  const Value* column = reinterpret_cast<const Value*>(matrix) + v;
  Value sum = {};
  size_t row = first;
  for (; row + (kLoads - 1) * step < rows; row += kLoads * step) {
    Value held[kLoads];
    GPU_UNROLL
    for (unsigned k = 0; k < kLoads; ++k) held[k] = column[(row + k * step) * values];
    GPU_UNROLL
    for (unsigned k = 0; k < kLoads; ++k) add(sum, held[k]);
  }
  for (; row < rows; row += step) add(sum, column[row * values]);
  return sum;
}

// The sums of the positions that block number `block` of `blocks` owns.
template <class Value>
__device__ inline void sum_positions(const Scatter& out, size_t block, size_t blocks) {
  const size_t values = out.shape.C / kWidth<Value>;
  const size_t v = size_t{blockIdx.y} * blockDim.x + threadIdx.x;
  if (v >= values) return;
  for (size_t t = block * blockDim.y + threadIdx.y; t < out.shape.T_max; t += blocks * blockDim.y) {
    const size_t rows = t < out.shape.T ? out.shape.positions() : 0;
    reinterpret_cast<Value*>(out.grad_position)[t * values + v] =
        sum_of_rows<Value>(out.grad_y, t, rows, out.shape.T, values, v);
  }
}

// grad_position[t] = sum over b of grad_y[b,t]    grad_position (T_max, C), 0 where t >= T.
// Fixes : atomic adds what could be added in a register.
// Idea  : which gradients belong to a position is known without looking: the rows t, t + T, ...
// Thread: (x, y) of block (b, tile) owns Value tile * width + x of position b * height + y.
// Costs : 4 bytes of grad_y per element; B additions one after the other.
template <class Value>
static __global__ void embedding_sum_positions(Scatter out) {
  sum_positions<Value>(out, blockIdx.x, gridDim.x);
}

// grad_token[v] = sum of grad_y[i] over all positions i with tokens[i] = v    grad_token (V, C).
// Fixes : atomic gives other bits on every run.
// Idea  : turned round: every element of the table looks for the positions that it wants, in order.
// Thread: k owns the elements k, k + K, ... of grad_token, with K threads in the grid.
// Costs : V C B T comparisons.
static __global__ void embedding_gather(Scatter out) {
  const size_t C = out.shape.C, n = out.shape.V * C;
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t k = size_t{blockIdx.x} * blockDim.x + threadIdx.x; k < n; k += threads) {
    const std::int32_t wanted = static_cast<std::int32_t>(k / C);
    float sum = 0;
    // exercise: add up the gradients of the positions that have this token (about 2 lines)
    for (size_t i = 0; i < out.shape.positions(); ++i)
      if (out.tokens[i] == wanted) sum += out.grad_y[i * C + k % C];
    // end exercise
    out.grad_token[k] = sum;
  }
}

// The smallest position whose token is none    tokens (n).
// Fixes : gather never sees a token that no row of the table has.
// Idea  : look at each of them once.
// Thread: t owns the tokens t, t + T, ...
// Costs : 4 n bytes.
static __global__ void embedding_report(const std::int32_t* tokens, size_t n, size_t V,
                                        unsigned long long* bad_token) {
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads)
    if (!is_token(tokens[i], V)) report(bad_token, i, tokens[i]);
}

inline void launch_gather(const Scatter& out, Workspace&, hipStream_t stream) {
  const size_t n = out.shape.V * out.shape.C, positions = out.shape.positions();
  if (positions > 0)
    LAUNCH_ON(stream, embedding_report, vector_add::full_grid(positions), kBlock, 0, out.tokens,
              positions, out.shape.V, out.bad_token);
  if (n > 0) LAUNCH_ON(stream, embedding_gather, vector_add::full_grid(n), kBlock, 0, out);
  if (out.shape.T_max == 0 || out.shape.C == 0) return;
  const Plan shares = plan(out.shape.T_max, out.shape.C);
  LAUNCH_ON(stream, embedding_sum_positions<float>, shares.blocks, shares.threads, 0, out);
}

// ---- Sorted: the sort -------------------------------------------------------------------------
// Positions in the order of their tokens, those of one token in their own: a counting sort, digit
// by digit of the token from the lowest on, each of which keeps the order that it finds (Knuth: The
// Art of Computer Programming 3, section 5.2.5). One block does it: the positions of a batch are
// few beside their gradients.

inline constexpr unsigned kDigits = 1u << kDigitBits;
inline constexpr unsigned kCounts = kDigits * softmax::kMaxWaves;

// Where number i of counts lies: a word is left out behind every 8, so that threads that each read
// 8 of them in order meet in no bank.
__device__ inline unsigned place_of(unsigned i) { return i + i / 8; }

// The sum of `value` over the lanes up to this one.
__device__ inline unsigned sum_up_to_lane(unsigned value) {
  for (int distance = 1; distance < gpu::wave_size(); distance *= 2) {
    const unsigned other = gpu::wave_shfl_up(value, distance);
    if (gpu::lane_id() >= distance) value += other;
  }
  return value;
}

// The sum of `value` over the threads before this one.
__device__ inline unsigned sum_of_those_before(unsigned value) {
  __shared__ unsigned totals[softmax::kMaxWaves];
  const int waves = static_cast<int>(blockDim.x) / gpu::wave_size();
  const unsigned sum = sum_up_to_lane(value);
  if (gpu::lane_id() == gpu::wave_size() - 1) totals[gpu::wave_id()] = sum;
  __syncthreads();  // every wave's sum is in `totals`
  const unsigned of_wave = gpu::lane_id() < waves ? totals[gpu::lane_id()] : 0;
  const unsigned before = gpu::wave_shfl(sum_up_to_lane(of_wave) - of_wave, gpu::wave_id());
  return before + sum - value;
}

// The lanes of `among` that have the same digit as this one.
__device__ inline gpu::WaveMask lanes_with(unsigned digit, gpu::WaveMask among) {
  // exercise: a ballot for each bit of the digit says who agrees in it (about 4 lines)
  for (unsigned bit = 0; bit < kDigitBits; ++bit) {
    const bool set = (digit >> bit & 1u) != 0;
    const gpu::WaveMask with = gpu::wave_ballot(set);
    among &= set ? with : ~with;
  }
  // end exercise
  return among;
}
__device__ inline unsigned count_lanes(gpu::WaveMask lanes) {
  return static_cast<unsigned>(__popcll(lanes));
}

// sorted = the positions by token, and first[v] = kNowhere    tokens (n), entries (n), first (V).
// Fixes : gather has every element of the table look at every token.
// Idea  : each wave counts the digits of its own consecutive positions. Summed up over the digits,
//         and for each digit over the waves, the counts say where each wave's entries go; among its
//         lanes ballots tell how many before this one have the same digit.
// Thread: lane l of wave w owns every wave size-th position from the wave's l-th on.
// Costs : for each 8 bits of a token 2 reads of n entries, 1 write and 5 barriers;
//         kCounts + kCounts / 8 words of shared memory.
static __global__ void __launch_bounds__(kSortThreads)
    embedding_sort(Entry* even, Entry* odd, std::uint32_t* first, const std::int32_t* tokens,
                   size_t n, size_t V, unsigned rounds, unsigned long long* bad_token) {
  __shared__ unsigned counts[kCounts + kCounts / 8];
  const unsigned t = threadIdx.x, lane = static_cast<unsigned>(gpu::lane_id());
  const unsigned wave = static_cast<unsigned>(gpu::wave_id());
  const unsigned lanes = static_cast<unsigned>(gpu::wave_size()), waves = kSortThreads / lanes;
  const size_t step = size_t{kSortLoads} * lanes;
  const size_t share = gpu::ceil_div(n, waves * step) * step;
  const size_t begin = min(wave * share, n), end = min(begin + share, n);
  for (size_t v = t; v < V; v += kSortThreads) first[v] = kNowhere;

  for (unsigned round = 0; round < rounds; ++round) {
    const Entry* from = round % 2 == 0 ? odd : even;  // what the round before has written
    Entry* to = round % 2 == 0 ? even : odd;
    const auto load = [&](Entry(&held)[kSortLoads], size_t at) {
      for (unsigned k = 0; k < kSortLoads; ++k) {
        const size_t i = at + k * lanes;
        if (i >= end) continue;
        if (round > 0) {
          held[k] = from[i];
        } else {
          held[k].position = static_cast<std::uint32_t>(i);
          held[k].token = static_cast<std::uint32_t>(is_token(tokens[i], V) ? tokens[i] : V);
        }
      }
    };
    const auto digit = [&](const Entry& e) { return (e.token >> kDigitBits * round) % kDigits; };
    for (unsigned i = t; i < kDigits * waves; i += kSortThreads) counts[place_of(i)] = 0;
    __syncthreads();  // all counts are 0

    for (size_t at = begin + lane; at < end; at += step) {
      Entry held[kSortLoads] = {};
      load(held, at);
      for (unsigned k = 0; k < kSortLoads; ++k) {
        if (at + k * lanes >= end) continue;
        atomicAdd(&counts[place_of(digit(held[k]) * waves + wave)], 1u);
        if (round == 0 && held[k].token == V)
          report(bad_token, at + k * lanes, tokens[at + k * lanes]);
      }
    }
    __syncthreads();  // counts[d, w] says how many entries of wave w have the digit d
    const unsigned per_thread = kDigits * waves / kSortThreads;
    unsigned sum = 0;
    for (unsigned k = 0; k < per_thread; ++k) sum += counts[place_of(t * per_thread + k)];
    sum = sum_of_those_before(sum);
    for (unsigned k = 0; k < per_thread; ++k) {
      const unsigned count = counts[place_of(t * per_thread + k)];
      counts[place_of(t * per_thread + k)] = sum;
      sum += count;
    }
    __syncthreads();  // counts[d, w] says where the first of them goes

    for (size_t at = begin; at < end; at += step) {  // alike in all lanes of the wave
      Entry held[kSortLoads] = {};
      load(held, at + lane);
      for (unsigned k = 0; k < kSortLoads; ++k) {
        const bool mine = at + lane + k * lanes < end;
        const gpu::WaveMask same = lanes_with(digit(held[k]), gpu::wave_ballot(mine));
        const unsigned before = count_lanes(same & ((gpu::WaveMask{1} << lane) - 1));
        unsigned& next = counts[place_of(digit(held[k]) * waves + wave)];
        const unsigned place = next + before;
        gpu::wave_sync();  // every lane knows its place
        if (mine && before == 0) next += count_lanes(same);
        gpu::wave_sync();  // the counts are behind these entries
        if (mine) to[place] = held[k];
      }
    }
    __syncthreads();  // all entries are in the order of the digits so far
  }
}

// ---- Sorted: the sums -------------------------------------------------------------------------

// grad_token[v] = the sum of v's gradients where they are all in one chunk of kChunk sorted
// positions; else the chunk's part of it, to partials (chunks, 2, C); and where v's positions are.
//
//   sorted tokens   3 3 3 5 | 5 5 5 5 | 5 7 8 9 | 9 ...        chunks of 4
//                   \___/ \_|_________|_/ | | \_|_
//                   table  1     0      0  table  1  0         slot of the partials
//
// Fixes : gather reads a gradient where it is wanted, after B T comparisons.
// Idea  : positions of a token are neighbours now. However many a token has, a thread adds up
//         kChunk, all of them on their way at once; what goes on in the next chunk is left for
//         later.
// Thread: (x, y) of block (b, tile) owns Value tile * width + x of chunk b * height + y.
//         The first position_blocks blocks add up positions meanwhile.
// Costs : 8 bytes of grad_y per element; 4 kChunk registers; a row of partials, or two, per chunk.
template <class Value>
static __global__ void embedding_sum_chunks(Scatter out, unsigned position_blocks, float* partials,
                                            const Entry* sorted, std::uint32_t* first,
                                            std::uint32_t* last) {
  if (blockIdx.x < position_blocks) return sum_positions<Value>(out, blockIdx.x, position_blocks);
  const size_t values = out.shape.C / kWidth<Value>, n = out.shape.positions();
  const size_t v = size_t{blockIdx.y} * blockDim.x + threadIdx.x;
  const size_t step = size_t{gridDim.x - position_blocks} * blockDim.y;
  if (v >= values) return;
  const Value* grad_y = reinterpret_cast<const Value*>(out.grad_y) + v;
  for (size_t chunk = size_t{blockIdx.x - position_blocks} * blockDim.y + threadIdx.y;
       chunk * kChunk < n; chunk += step) {
    const size_t begin = chunk * kChunk;
    const unsigned count = static_cast<unsigned>(min(n - begin, size_t{kChunk}));
    std::uint32_t token[kChunk + 1];  // and the one behind the chunk
    Value held[kChunk] = {};
    GPU_UNROLL
    for (unsigned k = 0; k < kChunk; ++k) {
      token[k] = kNowhere;
      if (k >= count) continue;
      const Entry entry = sorted[begin + k];
      token[k] = entry.token;
      held[k] = grad_y[entry.position * values];
    }
    token[kChunk] = begin + kChunk < n ? sorted[begin + kChunk].token : kNowhere;

    // The run of one token that is being added up, and whether it has begun in this chunk.
    bool begun = begin == 0 || sorted[begin - 1].token != token[0];
    unsigned run = 0;
    Value sum = {};
    // exercise: add; where a run or the chunk ends, store the sum where it belongs (about 17 lines)
    GPU_UNROLL
    for (unsigned k = 0; k < kChunk; ++k) {
      add(sum, held[k]);
      const bool ends = token[k] != token[k + 1];
      if (k >= count || (!ends && k + 1 < kChunk)) continue;
      if (token[k] < out.shape.V) {
        const bool whole = begun && ends;
        const size_t row = whole ? token[k] : 2 * chunk + (begun ? 1 : 0);
        reinterpret_cast<Value*>(whole ? out.grad_token : partials)[row * values + v] = sum;
        if (v == 0 && begun) first[token[k]] = static_cast<std::uint32_t>(begin + run);
        if (v == 0 && ends) last[token[k]] = static_cast<std::uint32_t>(begin + k + 1);
      }
      begun = true, run = k + 1;
      sum = Value{};
    }
    // end exercise
  }
}

// grad_token[v] = 0 where no position has the token v, and the sum of its partials where its
// positions are in several chunks    grad_token (V, C), partials (chunks, 2, C).
// Fixes : a chunk can't know when the others have left their sums; the next launch can.
// Idea  : a token's partials lie behind each other: slot 1 of its first chunk, slot 0 of the rest.
//         `split` groups of threads share them, and add their sums in the order of the groups.
// Thread: (x, y) of block (b, tile) owns Value tile * width + x of token b * height / split + y /
//         split, and of its chunks y % split, y % split + split, ...
// Costs : 4 V C bytes, and 4 C for each partial; 1 barrier.
template <class Value>
static __global__ void embedding_sum_partials(float* grad_token, const float* partials,
                                              const std::uint32_t* first, const std::uint32_t* last,
                                              Shape shape, unsigned split) {
  __shared__ Value sums[kBlock];
  const size_t values = shape.C / kWidth<Value>;
  const size_t v = size_t{blockIdx.y} * blockDim.x + threadIdx.x;
  const unsigned part = threadIdx.y % split, tokens = blockDim.y / split;
  const unsigned place = threadIdx.y * blockDim.x + threadIdx.x;
  for (size_t block = blockIdx.x; block * tokens < shape.V; block += gridDim.x) {
    const size_t token = block * tokens + threadIdx.y / split;
    const std::uint32_t begin = token < shape.V ? first[token] : kNowhere;
    size_t chunk = 0, chunks = 0;  // none where the token has no position
    if (begin != kNowhere) chunk = begin / kChunk, chunks = (last[token] - 1) / kChunk - chunk + 1;
    Value sum = {};
    if (v < values && chunks > 1) {
      const float* rows = partials + chunk * 2 * shape.C;
      if (part == 0) sum = reinterpret_cast<const Value*>(rows)[values + v];
      add(sum, sum_of_rows<Value>(rows, part == 0 ? split : part, chunks, split, 2 * values, v));
    }
    sums[place] = sum;
    __syncthreads();  // the sums of all the groups are in shared memory
    if (part == 0 && v < values && token < shape.V && chunks != 1) {
      for (unsigned y = 1; y < split; ++y) add(sum, sums[place + y * blockDim.x]);
      reinterpret_cast<Value*>(grad_token)[token * values + v] = sum;
    }
    __syncthreads();  // the sums have been read: the next tokens' may overwrite them
  }
}

// The sums alone: two launches, or fewer where there is nothing to add.
template <class Value>
inline void launch_sums(const Scatter& out, Workspace& workspace, hipStream_t stream) {
  const Shape& shape = out.shape;
  const size_t chunks = gpu::ceil_div(shape.positions(), size_t{kChunk});
  const size_t values = shape.C / kWidth<Value>;
  std::uint32_t *first = workspace.first.data(), *last = workspace.last.data();
  float* partials = workspace.partials.data();
  if (values == 0) return;
  if (shape.T_max > 0) {  // else there is nothing at all
    Plan shares = plan(chunks, values);
    const unsigned position_blocks = plan(shape.T_max, values).blocks.x;
    shares.blocks.x += position_blocks;
    LAUNCH_ON(stream, embedding_sum_chunks<Value>, shares.blocks, shares.threads, 0, out,
              position_blocks, partials, workspace.sorted(shape.V), first, last);
  }
  if (shape.V > 0) {
    Plan shares = plan(shape.V, values);
    const unsigned split = shape.V <= kFewTokens ? shares.threads.y : 1;
    if (split > 1) shares.blocks.x = static_cast<unsigned>(shape.V);  // a block for each
    LAUNCH_ON(stream, embedding_sum_partials<Value>, shares.blocks, shares.threads, 0,
              out.grad_token, partials, first, last, shape, split);
  }
}

// The first half of a backward pass, which needs the tokens alone: a training step may have it done
// on another stream while the forward pass runs.
inline void sort(const std::int32_t* tokens, const Shape& shape, Workspace& workspace,
                 hipStream_t stream = nullptr) {
  workspace.require(checked(shape));
  LAUNCH_ON(stream, embedding_sort, 1, kSortThreads, 0, workspace.entries[0].data(),
            workspace.entries[1].data(), workspace.first.data(), tokens, shape.positions(), shape.V,
            sort_rounds(shape.V), workspace.bad_token());
}

// The second half, for the tokens that the last sort() with this workspace was given.
inline void backward_sorted(float* grad_token, float* grad_position, const float* grad_y,
                            const Shape& shape, Workspace& workspace,
                            hipStream_t stream = nullptr) {
  const Scatter out{grad_token, grad_position, grad_y, nullptr, checked(shape), nullptr};
  workspace.require(out.shape);
  const auto launch = rows_are_aligned(shape.C, {grad_token, grad_position, grad_y})
                          ? launch_sums<float4>
                          : launch_sums<float>;
  launch(out, workspace, stream);
}

inline void launch_sorted(const Scatter& out, Workspace& workspace, hipStream_t stream) {
  sort(out.tokens, out.shape, workspace, stream);
  backward_sorted(out.grad_token, out.grad_position, out.grad_y, out.shape, workspace, stream);
}

// ---- A table in shared memory -----------------------------------------------------------------

// partials[s] = the sums of slice s of the positions, for every token    partials (slices, V, C).
// Fixes : sorted must sort first, however few tokens there are.
// Idea  : a table of few rows fits shared memory. A thread owns a column of it and goes through
//         its positions in order: nobody else adds there, so that no atomic is needed. Several
//         groups of threads have a table each, and add them up at the end.
// Thread: (x, y) of block (p + s, tile) owns column tile * kTableWidth + x of group y's share of
//         slice s. The first position_blocks = p blocks add up positions meanwhile.
// Costs : 8 bytes of grad_y per element; V C floats of partials per slice; 2 barriers;
//         kTableRows * kTableWidth floats of shared memory.
static __global__ void embedding_sum_in_table(Scatter out, unsigned position_blocks,
                                              float* partials, size_t slice) {
  __shared__ float tables[kTableRows * kTableWidth];
  if (blockIdx.x < position_blocks) return sum_positions<float>(out, blockIdx.x, position_blocks);
  const size_t C = out.shape.C, V = out.shape.V, c = size_t{blockIdx.y} * kTableWidth + threadIdx.x;
  const size_t s = blockIdx.x - position_blocks, share = gpu::ceil_div(slice, blockDim.y);
  const size_t begin = min(s * slice + threadIdx.y * share, out.shape.positions());
  const size_t end = min(min(begin + share, (s + 1) * slice), out.shape.positions());
  float* table = tables + threadIdx.y * V * kTableWidth + threadIdx.x;
  for (size_t v = 0; v < V; ++v) table[v * kTableWidth] = 0;  // this thread's own column
  if (c < C) {
    // exercise: rounds of kTableLoads positions: load tokens and gradients, then add them to this
    // thread's column (about 17 lines)
    for (size_t at = begin; at < end; at += kTableLoads) {
      std::int32_t token[kTableLoads] = {};
      float grad[kTableLoads] = {};
      GPU_UNROLL
      for (unsigned k = 0; k < kTableLoads; ++k)
        if (at + k < end) {
          token[k] = out.tokens[at + k];
          grad[k] = out.grad_y[(at + k) * C + c];
        }
      GPU_UNROLL
      for (unsigned k = 0; k < kTableLoads; ++k) {
        if (at + k >= end) continue;
        if (is_token(token[k], V))
          table[static_cast<size_t>(token[k]) * kTableWidth] += grad[k];
        else if (c == 0)
          report(out.bad_token, at + k, token[k]);
      }
    }
    // end exercise
  }
  __syncthreads();  // every group's table is complete
  if (c >= C) return;
  for (size_t v = threadIdx.y; v < V; v += blockDim.y) {
    float sum = 0;
    for (unsigned y = 0; y < blockDim.y; ++y)
      sum += tables[(y * V + v) * kTableWidth + threadIdx.x];
    partials[(s * V + v) * C + c] = sum;
  }
}

// grad_token[i] = sum over s of partials[s, i]    grad_token (n), partials (slices, n), n = V C.
// Fixes : a block can't know when the others have left their tables; the next launch can.
// Idea  : threads beside each other share an element's slices, in an order that is always the same.
// Thread: (x, y) adds the slices y, y + height, ... of element blockIdx.x * width + x.
// Costs : 4 bytes per element and slice, which the L2 cache still holds; 1 barrier.
static __global__ void embedding_add_tables(float* grad_token, const float* partials, size_t slices,
                                            size_t n) {
  __shared__ float sums[kBlock];
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  float sum = 0;
  if (i < n) sum = sum_of_rows<float>(partials, threadIdx.y, slices, blockDim.y, n, i);
  sums[threadIdx.y * blockDim.x + threadIdx.x] = sum;
  __syncthreads();  // the sums of all the block's threads are in shared memory
  if (threadIdx.y > 0 || i >= n) return;
  for (unsigned y = 1; y < blockDim.y; ++y) sum += sums[y * blockDim.x + threadIdx.x];
  grad_token[i] = sum;
}

// Returns false, and launches nothing, where there are too many tokens.
inline bool launch_table(const Scatter& out, Workspace& workspace, hipStream_t stream) {
  if (!table_fits(out.shape.V)) return false;
  workspace.require(out.shape);
  if (out.shape.C == 0) return true;
  const TablePlan shares = plan_table(out.shape);
  const size_t tiles = gpu::ceil_div(out.shape.C, size_t{kTableWidth});
  const unsigned position_blocks =
      static_cast<unsigned>(gpu::ceil_div(out.shape.T_max, size_t{shares.groups}));
  const dim3 grid(position_blocks + static_cast<unsigned>(shares.slices),
                  static_cast<unsigned>(tiles));
  float* partials = workspace.partials.data();
  if (grid.x > 0)
    LAUNCH_ON(stream, embedding_sum_in_table, grid, dim3(kTableWidth, shares.groups), 0, out,
              position_blocks, partials, shares.slice);
  const size_t n = out.shape.V * out.shape.C;
  const dim3 threads(8, kBlock / 8);
  LAUNCH_ON(stream, embedding_add_tables, static_cast<unsigned>(gpu::ceil_div(n, threads.x)),
            threads, 0, out.grad_token, partials, shares.slices, n);
  return true;
}

inline void launch_table_or_sorted(const Scatter& out, Workspace& workspace, hipStream_t stream) {
  if (!launch_table(out, workspace, stream)) launch_sorted(out, workspace, stream);
}

// ---- What later steps call --------------------------------------------------------------------

// grad_token (V, C) and grad_position (T_max, C), which are overwritten. The same bits on every run
// of one device. Two launches where the tokens are few, else three, of which the first is sort().
inline void backward(float* grad_token, float* grad_position, const float* grad_y,
                     const std::int32_t* tokens, const Shape& shape, Workspace& workspace,
                     hipStream_t stream = nullptr) {
  const Scatter out{grad_token, grad_position,  grad_y,
                    tokens,     checked(shape), workspace.bad_token()};
  launch_table_or_sorted(out, workspace, stream);
}

// ---- The versions of the backward pass --------------------------------------------------------

// Through how many additions one of `terms` goes at most.
inline double roundings_in_order(double terms) { return terms; }
// Its chunk's, a group's share of the chunks and the groups; or its position's, in order.
inline double roundings_sorted(double terms) {
  const double chunks = terms / kChunk + 2;
  return std::fmin(terms, kChunk + chunks + kBlock);
}

struct BackwardLaunch {
  void (*run)(const Scatter& out, Workspace& workspace, hipStream_t stream);
  double (*roundings)(double terms);
  bool deterministic;  // the same bits on every run
};

inline constexpr Version<BackwardLaunch> kBackwardVersions[] = {
    {"backward_atomic",
     {launch_atomic, roundings_in_order, false},
     "atomics: any order, other bits on every run"},
    {"backward_gather",
     {launch_gather, roundings_in_order, true},
     "every element of the table looks for its positions"},
    {"backward_sorted",
     {launch_sorted, roundings_sorted, true},
     "positions sorted by token, sums of neighbours in a fixed order"},
    {"backward_table",
     {launch_table_or_sorted, roundings_in_order, true},
     "few tokens: every block has a table of its own in shared memory"},
};

}  // namespace embedding
