// 5.2  activation_backward: what happens between two layers on the way back.
//
//   grad_x    = grad_y * f'(x)        (rows, cols)   through Y = f(X); x = sums of the layer below
//   grad_bias = sum of grad_x's rows  (cols)         what the layer below adds to them is its bias
//
// and through P = softmax(X), row by row, whose slopes are dp[k]/dx[j] = p[j] (1[j=k] - p[k]):
//
//   grad_x[j] = sum over k of grad_p[k] dp[k]/dx[j]
//             = p[j] (grad_p[j] - sum over k of p[k] grad_p[k])
//
// The first ladder is about the sums of columns, which cost a trip through memory of their own
// unless they are taken while grad_x is in a register, and about what f' is computed from: x, or y,
// which the next layer keeps anyway. The second gets rid of the Jacobian; the third, of softmax and
// cross-entropy, gets rid of grad_p.
//
// Matrices are row-major without gaps, on the device, aligned to 4 bytes, any sizes (0 too). grad_x
// may be grad_y, or what f' is computed from (softmax: grad_p or p, but not in `jacobian`); apart
// from that outputs overlap nothing. Every version gives the same bits on every run of one device.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "common/gpu.h"
#include "common/program.h"
#include "common/rounding.h"
#include "stage1_vector/04_activations/detail/vectors.h"
#include "stage1_vector/04_activations/reference.h"
#include "stage2_matrix/02_gemv/detail/plan.h"
#include "stage2_matrix/02_gemv/detail/sums.h"
#include "stage2_matrix/02_gemv/gemv.h"
#include "stage3_ml_ops/01_matrix_activations/detail/grid.h"
#include "stage3_ml_ops/01_matrix_activations/matrix_activations.h"
#include "stage3_ml_ops/02_softmax/detail/row.h"
#include "stage3_ml_ops/02_softmax/softmax.h"
#include "stage3_ml_ops/03_losses/detail/gradient.h"
#include "stage3_ml_ops/03_losses/losses.h"
#include "stage3_ml_ops/03_losses/reference.h"
#include "stage5_training/01_dense_backward/dense_backward.h"

namespace activation_backward {

using activations::chain_rule;
using activations::kTiny;
using dense_backward::Workspace;

// ---- The slope, computed from the output ------------------------------------------------------
// OfOutput<F> is F with derivative(y) = f'(x) where y = f(x), so that the kernels, references and
// bounds of step 1.4 do as they are. What y has lost in its own rounding the slope can't know: it
// is off by a few u, not by a few u of itself. Both GELUs fall before they rise, so that two x have
// the same y: there is no OfOutput of them.

template <class Activation>
struct OfOutput;

template <class Activation>
inline constexpr bool kHasOfOutput = !std::is_same_v<Activation, activations::GeluErf> &&
                                     !std::is_same_v<Activation, activations::GeluTanh>;

// y is positive where x is.
template <>
struct OfOutput<activations::Relu> : activations::Relu {};

// y (1 - y): a difference and a product.
template <>
struct OfOutput<activations::Sigmoid> : activations::Sigmoid {
  __host__ __device__ float derivative(float y) const { return y * (1.0f - y); }
  static double derivative_cpu(double y) { return y * (1 - y); }
  static double derivative_bound(double y) {
    return losses::gamma(2) * std::fabs(derivative_cpu(y)) + kTiny;
  }
};

// 1 - y^2 as a product, which keeps the digits of a small slope: two sums and a product.
template <>
struct OfOutput<activations::Tanh> : activations::Tanh {
  __host__ __device__ float derivative(float y) const { return (1.0f - y) * (1.0f + y); }
  static double derivative_cpu(double y) { return (1 - y) * (1 + y); }
  static double derivative_bound(double y) {
    return losses::gamma(3) * std::fabs(derivative_cpu(y)) + kTiny;
  }
};

// exp(y) = 1 + exp(x), so that sigmoid(x) = 1 - exp(-y): 6 u from expm1f (3 ulp, OpenCL's promise).
template <>
struct OfOutput<activations::Softplus> : activations::Softplus {
  // exercise: the slope, given y; a small one keeps its digits, too (about 1 line)
  __host__ __device__ float derivative(float y) const { return -expm1f(-y); }
  // end exercise
  static double derivative_cpu(double y) { return -std::expm1(-y); }
  static double derivative_bound(double y) {
    return losses::gamma(6) * std::fabs(derivative_cpu(y)) + kTiny;
  }
};

// ---- Reference and bound ----------------------------------------------------------------------

// grad_x and grad_bias in double, and what a float version may be off.
struct Expected {
  std::vector<double> grad_x, bound_x, grad_bias, bound_bias;
};

// `kept` is x, with the slope of F, or y, with that of OfOutput<F>. A column's sum inherits what
// its elements are off; a sum whose terms go through at most `roundings` additions adds
// rounding::worst_case, and beta times what was there before (unless beta is 0) two roundings more,
// as in gemv.h.
template <class Slope>
Expected backward_cpu(const std::vector<float>& grad_y, const std::vector<float>& kept, size_t cols,
                      double roundings, float beta, const std::vector<float>& before) {
  Expected want{activations::backward_cpu<Slope>(kept, grad_y), std::vector<double>(kept.size()),
                std::vector<double>(cols), std::vector<double>(cols)};
  std::vector<double> absolute(cols);
  for (size_t i = 0; i < kept.size(); ++i) {
    const size_t col = i % cols;
    want.bound_x[i] = activations::backward_bound<Slope>(static_cast<double>(kept[i]),
                                                         static_cast<double>(grad_y[i]));
    want.grad_bias[col] += want.grad_x[i];
    want.bound_bias[col] += want.bound_x[i];
    absolute[col] += std::fabs(want.grad_x[i]) + want.bound_x[i];
  }
  for (size_t col = 0; col < cols; ++col) {
    const double old = beta == 0 ? 0 : static_cast<double>(beta) * static_cast<double>(before[col]);
    want.grad_bias[col] += old;
    want.bound_bias[col] +=
        rounding::worst_case(roundings + 2, static_cast<double>(kept.size() / cols) + 3,
                             absolute[col] + std::fabs(old)) +
        kTiny;
  }
  return want;
}

// ---- Tuning -----------------------------------------------------------------------------------

inline constexpr unsigned kBlock = 256;         // threads per block, at most
inline constexpr unsigned kResidentBlocks = 4;  // of them that shall fit a multiprocessor
inline constexpr unsigned kMaxWidth = 32;       // threads beside each other in a block
inline constexpr unsigned kRowsInFlight = 4;    // of both matrices, per thread of `vectorized`
inline constexpr unsigned kRounds = 4;          // of so many rows per thread, or more
inline constexpr unsigned kSumWidth = 4;        // threads beside each other in the second pass

// ---- Two kernels ------------------------------------------------------------------------------

inline void check(const float* grad_bias, size_t rows, size_t cols, const Workspace& workspace) {
  if (grad_bias == nullptr && cols > 0)
    throw std::invalid_argument("activation_backward: grad_bias is null");
  if (rows > workspace.ones.size())
    throw std::invalid_argument("activation_backward: a batch of " + std::to_string(rows) +
                                " in a workspace for " + std::to_string(workspace.ones.size()));
}

// grad_x alone, for whom nobody wants the bias of: the kernel of step 1.4.
template <class Slope>
inline void launch_without_bias(float* grad_x, const float* grad_y, const float* kept, size_t rows,
                                size_t cols, hipStream_t stream = nullptr) {
  const size_t n = rows * cols;
  if (n == 0) return;
  const activations::Split split = activations::split_vectors(n, {grad_x, grad_y, kept});
  LAUNCH_ON(stream, (activations::backward_vectorized<Slope>), activations::vector_blocks(split),
            activations::kBlock, 0, grad_x, grad_y, kept, split);
}

// Then the sum of rows of step 5.1, which has grad_x come back: 16 bytes per element.
template <class Slope>
inline void launch_separate(float* grad_x, float* grad_bias, const float* grad_y, const float* kept,
                            size_t rows, size_t cols, float beta, Workspace& workspace,
                            hipStream_t stream = nullptr) {
  check(grad_bias, rows, cols, workspace);
  launch_without_bias<Slope>(grad_x, grad_y, kept, rows, cols, stream);
  dense_backward::launch_grad_bias({nullptr, grad_bias, nullptr}, grad_x, rows,
                                   {0, cols, nullptr, nullptr}, beta, workspace, stream,
                                   gemv::launch_split_columns);
}

// ---- One kernel, and a small one for the sums -------------------------------------------------

template <class Slope>
__device__ inline float chain_rule(float grad_y, float kept) {
  return grad_y * Slope{}.derivative(kept);
}

// grad_x = grad_y * f', and partials[s, c] = the sum of slice s of column c, or the bias's gradient
// where there is one slice only. All (rows, cols); Value divides a row and lies aligned in it.
// Fixes : separate has grad_x come back from memory to be added up.
// Idea  : a thread stays in its columns and adds up what it stores while that is in a register.
//         vectorized: float4s, kRows rows of them on their way before the first is used.
// Thread: (x, y) of block (b, s) owns the Value b * blockDim.x + x of the rows y, y + blockDim.y,
//         ... of slice s, which are `slice` neighbours. Blocks begin, and read, in order.
// Costs : 12 rows cols bytes; 1 barrier; a float of workspace per slice and column.
template <class Value, unsigned kRows, class Slope>
static __global__ void GPU_LAUNCH_BOUNDS(kBlock, kResidentBlocks)
    backward_with_bias(float* grad_x, const float* grad_y, const float* kept, size_t rows,
                       size_t slice, gemv::Product sums_of, float* partials) {
  __shared__ Value sums[kBlock];
  constexpr size_t kWidth = sizeof(Value) / sizeof(float);
  const size_t values = sums_of.cols / kWidth,
               value = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t begin = blockIdx.y * slice, end = min(begin + slice, rows), next = blockDim.y;
  Value sum = {};
  if (value < values) {
    const Value* from_grad = reinterpret_cast<const Value*>(grad_y) + value;
    const Value* from_kept = reinterpret_cast<const Value*>(kept) + value;
    Value* to = reinterpret_cast<Value*>(grad_x) + value;
    // exercise: rounds of up to kRows rows: load, then apply the chain rule, store and add (about
    // 15 lines)
    for (size_t row = begin + threadIdx.y; row < end; row += kRows * next) {
      Value held_grad[kRows] = {}, held_kept[kRows] = {};
      GPU_UNROLL
      for (unsigned k = 0; k < kRows; ++k)
        if (row + k * next < end) {
          held_grad[k] = from_grad[(row + k * next) * values];
          held_kept[k] = from_kept[(row + k * next) * values];
        }
      GPU_UNROLL
      for (unsigned k = 0; k < kRows; ++k)
        if (row + k * next < end) {
          const Value result = chain_rule<Slope>(held_grad[k], held_kept[k]);
          to[(row + k * next) * values] = result;
          gemv::scale_add(sum, result, 1.0f);
        }
    }
    // end exercise
  }
  sums[threadIdx.y * blockDim.x + threadIdx.x] = sum;
  __syncthreads();  // the sums of all the block's threads are in shared memory
  if (threadIdx.y == 0 && value < values) {
    for (unsigned y = 1; y < blockDim.y; ++y)
      gemv::scale_add(sum, sums[y * blockDim.x + threadIdx.x], 1.0f);
    const float* elements = reinterpret_cast<const float*>(&sum);
    for (size_t k = 0; k < kWidth; ++k)
      gemv::deliver(sums_of, partials, sums_of.cols, value * kWidth + k, elements[k]);
  }
}

// How a matrix is shared out whose rows are `values` Values.
struct Plan {
  dim3 blocks, threads;
  size_t slice;  // rows

  // Through how many additions an element goes: its thread's, its block's and the second pass's.
  double roundings() const {
    const double height = threads.y, slices = blocks.y, second_height = gemv::kBlock / kSumWidth;
    return std::ceil(static_cast<double>(slice) / height) + height +
           (slices > 1 ? slices / second_height + second_height + 2 : 0);
  }
};

// Blocks as wide as a row, or as an equal part of it, so that hardly a thread is idle, and so many
// that the device hands them out as others end; but no more slices than there is workspace for.
inline Plan plan(size_t rows, size_t values, size_t cols, unsigned rows_in_flight) {
  constexpr size_t kMaxGridY = 65535;
  const size_t tiles = gpu::ceil_div(values, size_t{kMaxWidth});
  const size_t width = gpu::ceil_div(values, tiles), height = kBlock / width;
  const size_t round = height * rows_in_flight,
               most = std::min(gemv::kMaxPartials / cols, kMaxGridY);
  const size_t rounds = gpu::ceil_div(gpu::ceil_div(rows, std::max(most, size_t{1})), round);
  const size_t slice = round * std::max(rounds, size_t{kRounds});
  const size_t slices = std::max(gpu::ceil_div(rows, slice), size_t{1});
  return {dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(slices)),
          dim3(static_cast<unsigned>(width), static_cast<unsigned>(height)), slice};
}

// The second pass adds the slices' sums, which the L2 cache still holds, in a fixed order: they are
// a matrix whose rows step 2.2 adds up, by blocks that need no further slices.
template <class Value, unsigned kRows, class Slope>
inline void launch_with_bias(float* grad_x, float* grad_bias, const float* grad_y,
                             const float* kept, size_t rows, size_t cols, float beta,
                             Workspace& workspace, hipStream_t stream) {
  check(grad_bias, rows, cols, workspace);
  if (cols == 0) return;
  const Plan shares = plan(rows, cols / (sizeof(Value) / sizeof(float)), cols, kRows);
  float* partials = workspace.partials.data();
  const gemv::Product sums{shares.blocks.y,       cols, 1,        partials, cols,
                           workspace.ones.data(), beta, grad_bias};
  LAUNCH_ON(stream, (backward_with_bias<Value, kRows, Slope>), shares.blocks, shares.threads, 0,
            grad_x, grad_y, kept, rows, shares.slice, sums, partials);
  if (shares.blocks.y > 1)
    gemv::launch_columns(sums, {partials}, {sizeof(Value) / sizeof(float), kSumWidth, 1}, stream);
}

template <class Slope>
inline void launch_fused(float* grad_x, float* grad_bias, const float* grad_y, const float* kept,
                         size_t rows, size_t cols, float beta, Workspace& workspace,
                         hipStream_t stream = nullptr) {
  launch_with_bias<float, 1, Slope>(grad_x, grad_bias, grad_y, kept, rows, cols, beta, workspace,
                                    stream);
}

// True where every row of all the arrays begins at a multiple of 16 bytes.
inline bool rows_are_aligned(size_t cols, std::initializer_list<const float*> arrays) {
  return cols % 4 == 0 && std::all_of(arrays.begin(), arrays.end(), gemv::is_float4_aligned);
}

template <class Slope>
inline void launch_vectorized(float* grad_x, float* grad_bias, const float* grad_y,
                              const float* kept, size_t rows, size_t cols, float beta,
                              Workspace& workspace, hipStream_t stream = nullptr) {
  const auto launch = rows_are_aligned(cols, {grad_x, grad_y, kept})
                          ? launch_with_bias<float4, kRowsInFlight, Slope>
                          : launch_with_bias<float, kRowsInFlight, Slope>;
  launch(grad_x, grad_bias, grad_y, kept, rows, cols, beta, workspace, stream);
}

// ---- What later steps call --------------------------------------------------------------------

// grad_x, and grad_bias unless it is null, plus beta times what is in it (0 does not read it).
// `kept` is x with the slope of F, or y with that of OfOutput<F>. The workspace is for batches of
// at least `rows`. Throws std::invalid_argument where it is not.
template <class Slope>
inline void backward(float* grad_x, float* grad_bias, const float* grad_y, const float* kept,
                     size_t rows, size_t cols, float beta, Workspace& workspace,
                     hipStream_t stream = nullptr) {
  if (grad_bias == nullptr)
    launch_without_bias<Slope>(grad_x, grad_y, kept, rows, cols, stream);
  else
    launch_vectorized<Slope>(grad_x, grad_bias, grad_y, kept, rows, cols, beta, workspace, stream);
}

// ---- The versions of the activations ----------------------------------------------------------

inline double roundings_separate(size_t rows, size_t cols) {
  const gemv::Product p{rows, cols, 1, nullptr, cols, nullptr, 0, nullptr};  // null is aligned
  gemv::Product unaligned = p;
  unaligned.a = reinterpret_cast<const float*>(sizeof(float));
  return std::max(gemv::depth_split_columns(p), gemv::depth_split_columns(unaligned));
}
inline double roundings_fused(size_t rows, size_t cols) {
  return plan(rows, cols, cols, 1).roundings();
}
inline double roundings_vectorized(size_t rows, size_t cols) {
  const double scalar = plan(rows, cols, cols, kRowsInFlight).roundings();
  if (cols % 4 != 0) return scalar;
  return std::max(scalar, plan(rows, cols / 4, cols, kRowsInFlight).roundings());
}

struct Launch {
  using Run = void (*)(float* grad_x, float* grad_bias, const float* grad_y, const float* kept,
                       size_t rows, size_t cols, float beta, Workspace& workspace,
                       hipStream_t stream);
  Run run;                                        // null: there is no such version of f
  double (*roundings)(size_t rows, size_t cols);  // at most, of a column's sum; cols > 0
  bool from_output;                               // `kept` is y, else x
};

template <class Activation>
constexpr Launch::Run run_from_output() {
  if constexpr (kHasOfOutput<Activation>)
    return launch_vectorized<OfOutput<Activation>>;
  else
    return nullptr;
}

// The same versions for every function: kVersions<Relu>, kVersions<Sigmoid>, ...
template <class Activation>
inline constexpr Version<Launch> kVersions[] = {
    {"separate",
     {launch_separate<Activation>, roundings_separate, false},
     "the slopes, then the sums of columns: grad_x comes back from memory"},
    {"fused",
     {launch_fused<Activation>, roundings_fused, false},
     "each thread adds up what it stores; a second pass adds the threads' sums"},
    {"vectorized",
     {launch_vectorized<Activation>, roundings_vectorized, false},
     "16 bytes per load, four rows on their way"},
    {"from_output",
     {run_from_output<Activation>(), roundings_vectorized, true},
     "f' from y: x need not be stored by the forward pass"},
};

// ---- Softmax ----------------------------------------------------------------------------------

// grad_x in double for rows of `cols`, and what a float result may be off whose sums' terms go
// through at most `roundings` operations: both terms of an element round with the sum, the
// difference and the product.
inline void softmax_backward_cpu(const std::vector<float>& grad_p, const std::vector<float>& p,
                                 size_t cols, double roundings, std::vector<double>& grad_x,
                                 std::vector<double>& bound) {
  grad_x.resize(p.size()), bound.resize(p.size());
  for (size_t begin = 0; begin < p.size(); begin += cols) {
    double sum = 0, absolute = 0;
    for (size_t i = begin; i < begin + cols; ++i) {
      const double product = static_cast<double>(p[i]) * static_cast<double>(grad_p[i]);
      sum += product, absolute += std::fabs(product);
    }
    for (size_t i = begin; i < begin + cols; ++i) {
      const double probability = static_cast<double>(p[i]), grad = static_cast<double>(grad_p[i]);
      grad_x[i] = probability * (grad - sum);
      bound[i] =
          losses::gamma(roundings + 3) * std::fabs(probability) * (std::fabs(grad) + absolute) +
          kTiny;
    }
  }
}

// grad_x[r,j] = sum over k of p[r,j] (1[j=k] - p[r,k]) grad_p[r,k]    all (rows, cols).
// Fixes : a CPU core takes the rows one after the other.
// Idea  : the chain rule as it is written: a row's gradient times its Jacobian, never stored.
// Thread: t owns the elements t, t + T, ... of flat memory.
// Costs : rows cols^2 multiplications; the row comes out of the caches.
static __global__ void softmax_backward_jacobian(float* grad_x, const float* grad_p, const float* p,
                                                 size_t rows, size_t cols) {
  const size_t n = rows * cols, threads = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads) {
    const size_t begin = i - i % cols;
    float sum = 0;
    for (size_t k = begin; k < begin + cols; ++k) {
      const float slope = p[i] * ((k == i ? 1.0f : 0.0f) - p[k]);
      sum += slope * grad_p[k];
    }
    grad_x[i] = sum;
  }
}

inline void launch_softmax_jacobian(float* grad_x, const float* grad_p, const float* p, size_t rows,
                                    size_t cols, hipStream_t stream = nullptr) {
  const size_t n = rows * cols;
  if (n > 0)
    LAUNCH_ON(stream, softmax_backward_jacobian, vector_add::full_grid(n), vector_add::kBlock, 0,
              grad_x, grad_p, p, rows, cols);
}

// The sum of `value` over the team, in every thread: parts of step 3.2 that all have the maximum 0
// merge into their plain sum.
template <class Team>
__device__ inline float team_sum(float value) {
  return Team::merge({0.0f, value}).sum;
}

// grad_x[r,j] = p[r,j] (grad_p[r,j] - sum over k of p[r,k] grad_p[r,k])    all (rows, cols).
// Fixes : jacobian computes the same sum for every element of a row.
// Idea  : the sum once, by the team that shares the row.
// Thread: t of the team owns the columns t, t + team, ... of the row.
// Costs : 2 reads of both inputs, of which the cache may serve one, and 1 write.
template <class Team>
static __global__ void __launch_bounds__(Team::kBlockThreads)
    softmax_backward_sum_once(float* grad_x, const float* grad_p, const float* p, size_t rows,
                              size_t cols) {
  for (size_t row = Team::first_row(); row < rows; row += Team::rows_in_grid()) {
    const size_t begin = row * cols, end = begin + cols;
    // exercise: this thread's share of the sum, the team's sum, the gradients (about 5 lines)
    float sum = 0;
    for (size_t i = begin + Team::rank(); i < end; i += Team::size()) sum += p[i] * grad_p[i];
    sum = team_sum<Team>(sum);
    for (size_t i = begin + Team::rank(); i < end; i += Team::size())
      grad_x[i] = p[i] * (grad_p[i] - sum);
    // end exercise
  }
}

inline constexpr size_t kLongRow = 2048;  // columns beyond which a block shares a row
using LongRowTeam = softmax::BlockTeam<256>;

template <class Team>
inline void launch_sum_once(float* grad_x, const float* grad_p, const float* p, size_t rows,
                            size_t cols, hipStream_t stream) {
  LAUNCH_ON(stream, (softmax_backward_sum_once<Team>),
            softmax::row_blocks(rows, Team::kBlockThreads / Team::host_size(), Team::kBlockThreads),
            Team::kBlockThreads, 0, grad_x, grad_p, p, rows, cols);
}

inline void launch_softmax_sum_once(float* grad_x, const float* grad_p, const float* p, size_t rows,
                                    size_t cols, hipStream_t stream = nullptr) {
  if (rows == 0 || cols == 0) return;
  const auto launch =
      cols > kLongRow ? launch_sum_once<LongRowTeam> : launch_sum_once<softmax::WaveTeam>;
  launch(grad_x, grad_p, p, rows, cols, stream);
}

__device__ inline float gradient(float p, float grad_p, float sum) { return p * (grad_p - sum); }
__device__ inline float4 gradient(float4 p, float4 grad_p, float sum) {
  return make_float4(gradient(p.x, grad_p.x, sum), gradient(p.y, grad_p.y, sum),
                     gradient(p.z, grad_p.z, sum), gradient(p.w, grad_p.w, sum));
}

// grad_x[r,j] = p[r,j] (grad_p[r,j] - sum over k of p[r,k] grad_p[r,k])    all (rows, cols);
//               cols / 4 <= kVectors * the team's threads.
// Fixes : sum_once reads both rows twice, 4 bytes at a time.
// Idea  : the team holds both rows in its registers, as step 3.2 does with one.
// Thread: t of the team owns the float4s t, t + team, ... of the row, and at most one single one.
// Costs : 1 read of both inputs and 1 write; 8 kVectors registers; 2 barriers per row, none in a
//         wave.
template <class Team, unsigned kVectors, unsigned kResident>
static __global__ void GPU_LAUNCH_BOUNDS(Team::kBlockThreads, kResident)
    softmax_backward_in_registers(float* grad_x, const float* grad_p, const float* p, size_t rows,
                                  size_t cols) {
  for (size_t r = Team::first_row(); r < rows; r += Team::rows_in_grid()) {
    const softmax::Row<true> of_p(grad_x + r * cols, p + r * cols, cols);
    const softmax::Row<true> of_grad(grad_x + r * cols, grad_p + r * cols, cols);
    const unsigned rank = Team::rank(), within = softmax::reach<Team, kVectors>(rank, of_p.vectors);
    float4 held_p[kVectors], held_grad[kVectors];
    GPU_UNROLL
    for (unsigned k = 0; k < kVectors; ++k) {
      const bool inside = k * Team::size() < within;
      held_p[k] = inside ? of_p.load(rank + k * Team::size()) : make_float4(0, 0, 0, 0);
      held_grad[k] = inside ? of_grad.load(rank + k * Team::size()) : make_float4(0, 0, 0, 0);
    }
    const bool has_single = of_p.has_single(rank);
    const size_t column = has_single ? of_p.column_of_single(rank) : 0;
    const float single_p = has_single ? of_p.x[column] : 0.0f;
    const float single_grad = has_single ? of_grad.x[column] : 0.0f;

    float sum = single_p * single_grad;
    GPU_UNROLL
    for (unsigned k = 0; k < kVectors; ++k) gemv::add_dot(sum, held_p[k], held_grad[k]);
    sum = team_sum<Team>(sum);
    GPU_UNROLL
    for (unsigned k = 0; k < kVectors; ++k)
      if (k * Team::size() < within)
        of_p.store(rank + k * Team::size(), gradient(held_p[k], held_grad[k], sum));
    if (has_single) of_p.y[column] = gradient(single_p, single_grad, sum);
  }
}

// Returns false, and launches nothing, where the team can't hold a row.
template <class Team, unsigned kVectors, unsigned kResident>
inline bool launch_team(float* grad_x, const float* grad_p, const float* p, size_t rows,
                        size_t cols, hipStream_t stream) {
  const unsigned threads = Team::host_size();
  if (cols / 4 > size_t{kVectors} * threads) return false;
  LAUNCH_ON(stream, (softmax_backward_in_registers<Team, kVectors, kResident>),
            softmax::row_blocks(rows, Team::kBlockThreads / threads, Team::kBlockThreads),
            Team::kBlockThreads, 0, grad_x, grad_p, p, rows, cols);
  return true;
}

// grad_x through P = softmax(X), given P: what later steps call. Rows that no team can hold, or
// that are not aligned alike in the three matrices, are left to sum_once.
inline void softmax_backward(float* grad_x, const float* grad_p, const float* p, size_t rows,
                             size_t cols, hipStream_t stream = nullptr) {
  using softmax::BlockTeam;
  using softmax::WaveTeam;
  if (rows == 0 || cols == 0) return;
  if (!matrix_activations::aligned_alike({grad_x, grad_p, p}) ||
      !(launch_team<WaveTeam, 1, 4>(grad_x, grad_p, p, rows, cols, stream) ||
        launch_team<WaveTeam, 2, 4>(grad_x, grad_p, p, rows, cols, stream) ||
        launch_team<WaveTeam, 4, 4>(grad_x, grad_p, p, rows, cols, stream) ||
        launch_team<WaveTeam, 8, 2>(grad_x, grad_p, p, rows, cols, stream) ||
        launch_team<BlockTeam<256>, 4, 4>(grad_x, grad_p, p, rows, cols, stream) ||
        launch_team<BlockTeam<512>, 4, 2>(grad_x, grad_p, p, rows, cols, stream) ||
        launch_team<BlockTeam<512>, 8, 1>(grad_x, grad_p, p, rows, cols, stream)))
    launch_softmax_sum_once(grad_x, grad_p, p, rows, cols, stream);
}

inline double roundings_softmax_jacobian(size_t cols) { return static_cast<double>(cols); }
inline double roundings_softmax_sum_once(size_t cols) {
  const unsigned team = cols > kLongRow ? LongRowTeam::host_size() : softmax::WaveTeam::host_size();
  return softmax::additions(cols, team);
}
// A thread adds at most 8 float4s and a single element, or what sum_once does.
inline double roundings_softmax_backward(size_t cols) {
  const double in_registers = std::fmin(4 * 8.0, static_cast<double>(cols)) + 1 + std::log2(512);
  return std::fmax(in_registers, roundings_softmax_sum_once(cols));
}

struct SoftmaxLaunch {
  void (*run)(float* grad_x, const float* grad_p, const float* p, size_t rows, size_t cols,
              hipStream_t stream);
  double (*roundings)(size_t cols);
  bool in_place;  // grad_x may be grad_p or p
};

inline constexpr Version<SoftmaxLaunch> kSoftmaxVersions[] = {
    {"softmax_jacobian",
     {launch_softmax_jacobian, roundings_softmax_jacobian, false},
     "the chain rule as it is written: cols^2 products per row"},
    {"softmax_sum_once",
     {launch_softmax_sum_once, roundings_softmax_sum_once, true},
     "one sum per row is all there is in the Jacobian"},
    {"softmax_in_registers",
     {softmax_backward, roundings_softmax_backward, true},
     "both rows are read once, 16 bytes at a time"},
};

// ---- Softmax and cross-entropy ----------------------------------------------------------------
// The loss of a row is -log p[label]. Its gradient by p is -1 / p[label] there and 0 elsewhere, and
// through softmax_backward, whose sum is -1, comes p - 1[label]: no quotient is left. All of it is
// divided by the number of rows that count.

// grad_p[r,c] = -1[c = label[r]] / (p[r,c] count)    p, grad_p (rows, classes).
// Fixes : -
// Idea  : the loss by itself does not know that a softmax came before it.
// Thread: t of a block owns the columns t, t + kBlock, ... of the rows blockIdx.x, ...
// Costs : 4 rows classes bytes, nearly all of them zeros; infinite where p has underflowed.
static __global__ void cross_entropy_grad_p(float* grad_p, const float* p, losses::Targets targets,
                                            losses::Count count) {
  for (size_t row = blockIdx.x; row < targets.rows; row += gridDim.x) {
    const int label = targets.label(row);
    for (size_t c = threadIdx.x; c < targets.classes; c += blockDim.x) {
      const size_t i = row * targets.classes + c;
      const bool chosen = label >= 0 && c == static_cast<size_t>(label);
      grad_p[i] = chosen ? -1.0f / (p[i] * count.value()) : 0.0f;
    }
  }
}

// All write the gradient by the logits of a mean over all rows, (rows, classes). P =
// softmax(logits) is stored already, but from_logits does not read it.

inline void launch_composed(float* grad, const float*, const float* p,
                            const losses::Targets& targets, const losses::Workspace& workspace,
                            hipStream_t stream = nullptr) {
  const losses::Count count = losses::count_rows(targets, workspace, stream);
  if (targets.rows == 0) return;
  LAUNCH_ON(stream, cross_entropy_grad_p, softmax::row_blocks(targets.rows, 1, losses::kBlock),
            losses::kBlock, 0, grad, p, targets, count);
  softmax_backward(grad, grad, p, targets.rows, targets.classes, stream);
}

// The kernel of step 3.3 for probabilities that are stored.
inline void launch_from_probabilities(float* grad, const float*, const float* p,
                                      const losses::Targets& targets,
                                      const losses::Workspace& workspace,
                                      hipStream_t stream = nullptr) {
  const losses::Count count = losses::count_rows(targets, workspace, stream);
  if (targets.rows > 0)
    losses::launch_gradient(grad, losses::StoredProbabilities{p}, losses::Gradient{targets, count},
                            stream);
}

// Step 3.3's best: softmax once more, in registers. Its loss is left in the workspace.
inline void launch_from_logits(float* grad, const float* logits, const float*,
                               const losses::Targets& targets, const losses::Workspace& workspace,
                               hipStream_t stream = nullptr) {
  losses::cross_entropy(workspace.partials, grad, logits, targets, workspace, stream);
}

struct LossLaunch {
  void (*run)(float* grad, const float* logits, const float* p, const losses::Targets& targets,
              const losses::Workspace& workspace, hipStream_t stream);
  bool from_logits;
};

inline constexpr Version<LossLaunch> kLossVersions[] = {
    {"loss_composed",
     {launch_composed, false},
     "the loss by p, then softmax: grad_p goes through memory"},
    {"loss_from_probabilities",
     {launch_from_probabilities, false},
     "(p - 1[label]) / count: what is left of both together"},
    {"loss_from_logits",
     {launch_from_logits, true},
     "step 3.3: p need not be stored by the forward pass"},
};

// A gradient in double, and what a float version may be off.
struct LossGradient {
  std::vector<double> grad, bound;
};

// From the logits, by the reference and the bounds of step 3.3. From p, which is (rows, classes) as
// it is stored: `composed` rounds three times on the way to grad_p, and then as softmax_backward
// does; the formula of `from_probabilities` rounds four times.
inline LossGradient cross_entropy_backward_cpu(const losses::HostRows& rows,
                                               const std::vector<float>& p, bool from_logits) {
  if (from_logits) {
    const losses::CrossEntropy want = losses::cross_entropy_cpu(rows);
    return {
        want.grad,
        losses::cross_entropy_bounds(rows, want, losses::roundings_best(rows.classes), false).grad};
  }
  const double roundings = 3 + roundings_softmax_backward(rows.classes) + 3;
  LossGradient result{std::vector<double>(p.size()), std::vector<double>(p.size())};
  for (size_t i = 0; i < p.size(); ++i) {
    const int label = rows.label(i / rows.classes);
    if (label < 0) continue;
    const double one_hot = i % rows.classes == static_cast<size_t>(label) ? 1 : 0;
    const double probability = static_cast<double>(p[i]);
    result.grad[i] = (probability - one_hot) / rows.count;
    result.bound[i] = losses::gamma(roundings) * (probability + one_hot) / rows.count + kTiny;
  }
  return result;
}

}  // namespace activation_backward
