// 7.2  layernorm: every row gets mean 0 and variance 1, then its columns a gain and a bias.
//
//   y[r,c] = (x[r,c] - mean[r]) rstd[r] gain[c] + bias[c]         x, y (rows, cols)
//     mean = sum over c of x[r,c] / cols                          gain, bias (cols)
//     rstd = 1 / sqrt(sum over c of (x[r,c] - mean)^2 / cols + eps)   mean, rstd (rows)
//
// (Ba, Kiros and Hinton: Layer normalization. arXiv:1607.06450, 2016.) As in softmax a row is read,
// reduced and needed again: the limit is one read and one write of 4 bytes per element, and the
// ladder ends where a row is read only once. What is new are the numbers: the variance is a
// difference of large ones if it is taken as mean(x^2) - mean(x)^2, so no version does that.
//
// Every version works on x - x[r,0], which leaves mean and variance what they are but for a shift.
// It is exact for elements that are near each other, and no element is further from the mean than
// sqrt(cols) standard deviations: a row far from 0 is as accurate as one around it, and a row of
// equal elements becomes 0 exactly, so that y is bias. Where variance + eps is 0 in float, which
// takes an eps of 0, rstd is 0 and not infinity: y is bias there too, and the row's elements get no
// gradient.
//
// On the way back, with n[r,c] = (x[r,c] - mean) rstd and g[r,c] = grad_y[r,c] gain[c],
//
//   grad_x[r,c]  = rstd (g[r,c] - mean over k of g[r,k] - n[r,c] mean over k of g[r,k] n[r,k])
//   grad_gain[c] = sum over r of grad_y[r,c] n[r,c]      grad_bias[c] = sum over r of grad_y[r,c]
//
// Matrices are row-major without gaps, everything on the device and aligned to 4 bytes; any rows (0
// too) and at least one column. Launchers queue on `stream`; they throw std::invalid_argument for 0
// columns, and for an eps that is negative or NaN. mean and rstd may be null: nobody wants them. A
// NaN or an infinity makes its row of y NaN. Every version gives the same bits on every run of one
// device.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "common/gpu.h"
#include "common/program.h"
#include "common/rounding.h"
#include "stage0_infra/04_device_matrix/device_matrix.h"
#include "stage1_vector/01_vector_add/vector_add.h"
#include "stage1_vector/03_dot/detail/block_sum.h"
#include "stage2_matrix/02_gemv/detail/plan.h"
#include "stage3_ml_ops/02_softmax/detail/row.h"
#include "stage3_ml_ops/02_softmax/reference.h"
#include "stage3_ml_ops/03_losses/reference.h"

namespace layernorm {

using device_matrix::DeviceBuffer;
using losses::gamma;
using softmax::kTiny;
using softmax::row_blocks;
using softmax::sum_of;

// ---- Reference and bound ----------------------------------------------------------------------

// Results in double, and what a float version may be off.
struct Forward {
  std::vector<double> y, mean, rstd;
  std::vector<double> bound_y, bound_mean, bound_rstd;
};

// Through how much a row's elements go on their way into its mean and its variance.
struct Roundings {
  double additions;    // of a thread to its sum, and from there to the team's
  double updates = 0;  // of a running mean, by Welford's method; 0: the sums are plain ones
};

// What the mean of D = x - x[r,0] and the mean of the squares of E = x - mean may be off, with the
// rounded D and E that a version has instead; `a` additions, u = 2^-24, n = cols.
struct Deviation {
  double mean, variance;
};

// Plain sums. D is rounded once. Its mean is off by gamma(a + 3) mean|D|: D, the additions, n and
// the quotient. An element of E is then off by its own part, at most u|D| + u|E| = p, and by what
// the mean is off, d, which is the same for all of the row: sum E = 0, so d counts in the sum of
// squares only as its square. The squares, the additions, n and the quotient round a + 3 times.
//
// Welford's method: an update m += (D - m) / k rounds by at most u max|D| (1 + 5 / k), and all that
// comes later shrinks that to its k-th part of the thread's elements: after k updates m is off by
// gamma(k / 2 + 6) max|D| = d at most. The squares grow by (D - m before) (D - m after), whose
// factors are off by h = d + 3 u max|D| each. With the differences before, B, sum of B^2 <= 2 sum
// of E^2 (without a thread's first, whose product is exactly 0), so that by Cauchy and Schwarz the
// variance v is off by 2 sqrt(2) sqrt(v) h + h^2, and by as much without the sqrt(2) where the
// threads' means are held against the row's.
inline Deviation deviation(Roundings roundings, double mean_d, double max_d, double mean_ed,
                           double mean_dd, double variance) {
  const double u = kFloatRoundoff, a = roundings.additions, k = roundings.updates;
  if (k == 0) {
    const double d = gamma(a + 3) * mean_d, p = u * std::sqrt(mean_dd) + u * std::sqrt(variance);
    const double squares = 2 * u * (mean_ed + variance) + (p + d) * (p + d);
    return {d, squares + gamma(a + 3) * (variance + squares) + kTiny};
  }
  const double of_thread = gamma(k / 2 + 6) * max_d, d = of_thread + gamma(a + 3) * max_d;
  const double h = of_thread + 3 * u * max_d, between = of_thread + d + 2 * u * max_d;
  const double squares =
      (2 * std::sqrt(2) * h + 2 * between) * std::sqrt(variance) + h * h + between * between;
  return {d, squares + gamma(k + a + 6) * (variance + squares) + kTiny};
}

// rstd = (v + eps)^(-1/2) follows the relative error of v + eps; the root and the quotient round
// once each. y's difference inherits what D and the mean are off, and y rounds four times more.
inline Forward forward_cpu(const std::vector<float>& x, const std::vector<float>& gain,
                           const std::vector<float>& bias, size_t cols, float eps,
                           Roundings roundings) {
  const size_t rows = x.size() / cols;
  const double u = kFloatRoundoff, n = static_cast<double>(cols);
  Forward want;
  for (size_t row = 0; row < rows; ++row) {
    const float* row_x = x.data() + row * cols;
    const double first = static_cast<double>(row_x[0]);
    double sum = 0, sum_d = 0, max_d = 0, sum_dd = 0;
    for (size_t c = 0; c < cols; ++c) {
      const double d = static_cast<double>(row_x[c]) - first;
      sum += d, sum_d += std::fabs(d), max_d = std::fmax(max_d, std::fabs(d)), sum_dd += d * d;
    }
    const double mean = sum / n;
    double sum_ee = 0, sum_ed = 0;
    for (size_t c = 0; c < cols; ++c) {
      const double d = static_cast<double>(row_x[c]) - first;
      sum_ee += (d - mean) * (d - mean), sum_ed += std::fabs((d - mean) * d);
    }
    const double variance = sum_ee / n, with_eps = variance + static_cast<double>(eps);
    const Deviation off = deviation(roundings, sum_d / n, max_d, sum_ed / n, sum_dd / n, variance);
    const double rstd = with_eps == 0 ? 0 : 1 / std::sqrt(with_eps);
    const double of_variance = with_eps == 0 ? 0 : off.variance / with_eps + u;
    const double of_rstd = of_variance < 1 ? (1 + gamma(2)) / std::sqrt(1 - of_variance) - 1
                                           : std::numeric_limits<double>::infinity();
    want.mean.push_back(first + mean), want.rstd.push_back(rstd);
    want.bound_mean.push_back(off.mean + u * (std::fabs(first + mean) + off.mean) + kTiny);
    want.bound_rstd.push_back(of_rstd * rstd);
    for (size_t c = 0; c < cols; ++c) {
      const double d = static_cast<double>(row_x[c]) - first, e = d - mean;
      const double scale = rstd * std::fabs(static_cast<double>(gain[c]));
      const double shift = static_cast<double>(bias[c]);
      const double of_e = u * std::fabs(d) + off.mean + u * std::fabs(e);
      const double largest = (std::fabs(e) + of_e) * scale * (1 + of_rstd);
      want.y.push_back(e * rstd * static_cast<double>(gain[c]) + shift);
      want.bound_y.push_back(largest - std::fabs(e) * scale + gamma(4) * largest +
                             u * std::fabs(shift) + kTiny);
    }
  }
  return want;
}

// The gradients of gain and bias in double, with the absolute values that their bounds are made of.
struct ColumnSums {
  std::vector<double> gain, bias, absolute_gain, absolute_bias;

  explicit ColumnSums(size_t cols = 0)
      : gain(cols), bias(cols), absolute_gain(cols), absolute_bias(cols) {}
  void add(size_t c, double grad, double n) {
    gain[c] += grad * n, absolute_gain[c] += std::fabs(grad * n);
    bias[c] += grad, absolute_bias[c] += std::fabs(grad);
  }
  // Of sums of `rows` terms that go through `additions` additions: a term of gain's has been
  // rounded three times before, as a difference and two products.
  double gain_bound(size_t c, size_t rows, double additions) const {
    return rounding::worst_case(additions + 3, static_cast<double>(rows) + 3, absolute_gain[c]) +
           kTiny;
  }
  double bias_bound(size_t c, size_t rows, double additions) const {
    return rounding::worst_case(additions, static_cast<double>(rows), absolute_bias[c]) + kTiny;
  }
};

// mean and rstd are those that the forward pass has left: they count as exact.
inline ColumnSums column_sums_cpu(const std::vector<float>& grad_y, const std::vector<float>& x,
                                  const std::vector<float>& mean, const std::vector<float>& rstd,
                                  size_t cols) {
  ColumnSums sums(cols);
  for (size_t row = 0; row < mean.size(); ++row) {
    const double m = static_cast<double>(mean[row]), r = static_cast<double>(rstd[row]);
    for (size_t c = 0; c < cols; ++c)
      sums.add(c, static_cast<double>(grad_y[row * cols + c]),
               (static_cast<double>(x[row * cols + c]) - m) * r);
  }
  return sums;
}

// grad_x in double, and what a float version may be off.
struct Expected {
  std::vector<double> value, bound;
};

// grad_residual may be empty. The term with the longest way goes through 12 roundings (n twice, g,
// their product, the number of columns and the quotient, n again three times, the difference, rstd,
// the residual) and as many additions as the row's sum takes.
inline Expected grad_x_cpu(const std::vector<float>& grad_y, const std::vector<float>& x,
                           const std::vector<float>& gain, const std::vector<float>& mean,
                           const std::vector<float>& rstd, const std::vector<float>& grad_residual,
                           double additions) {
  const size_t cols = gain.size();
  const double count = static_cast<double>(cols);
  Expected want;
  std::vector<double> g(cols), n(cols);
  for (size_t row = 0; row < mean.size(); ++row) {
    const double m = static_cast<double>(mean[row]), r = static_cast<double>(rstd[row]);
    double sum = 0, sum_n = 0, absolute = 0, absolute_n = 0;
    for (size_t c = 0; c < cols; ++c) {
      n[c] = (static_cast<double>(x[row * cols + c]) - m) * r;
      g[c] = static_cast<double>(grad_y[row * cols + c]) * static_cast<double>(gain[c]);
      sum += g[c], absolute += std::fabs(g[c]);
      sum_n += g[c] * n[c], absolute_n += std::fabs(g[c] * n[c]);
    }
    for (size_t c = 0; c < cols; ++c) {
      const double residual =
          grad_residual.empty() ? 0 : static_cast<double>(grad_residual[row * cols + c]);
      const double terms =
          r * (std::fabs(g[c]) + absolute / count + std::fabs(n[c]) * absolute_n / count);
      want.value.push_back(r * (g[c] - sum / count - n[c] * sum_n / count) + residual);
      want.bound.push_back(gamma(additions + 12) * (terms + std::fabs(residual)) + kTiny);
    }
  }
  return want;
}

// ---- Who shares a row -------------------------------------------------------------------------
// Every kernel is written for a team that owns a row: a thread, a wave or a block. A team's sum is
// in all of its threads. Two sums behind each other must have different slots, because a thread may
// still read the first one's shared memory when another already writes the second's.

inline constexpr unsigned kBlock = softmax::kBlock;  // threads per block where nothing else is said

struct ThreadTeam {
  static constexpr unsigned kBlockThreads = kBlock;
  static unsigned host_size() { return 1; }
  __device__ static unsigned size() { return 1; }
  __device__ static unsigned rank() { return 0; }
  __device__ static size_t first_row() { return size_t{blockIdx.x} * kBlock + threadIdx.x; }
  __device__ static size_t rows_in_grid() { return size_t{gridDim.x} * kBlock; }
  template <unsigned kSlot>
  __device__ static float sum(float value) {
    return value;
  }
  __device__ static void sync() {}
};

struct WaveTeam : softmax::WaveTeam {
  template <unsigned kSlot>
  __device__ static float sum(float value) {
    return dot::wave_sum(value);
  }
  __device__ static void sync() { gpu::wave_sync(); }
};

template <unsigned kThreads>
struct BlockTeam : softmax::BlockTeam<kThreads> {
  template <unsigned kSlot>
  __device__ static float sum(float value) {
    __shared__ float sums[softmax::kMaxWaves];  // of each slot its own
    value = dot::wave_sum(value);
    if (gpu::lane_id() == 0) sums[gpu::wave_id()] = value;
    __syncthreads();  // every wave's sum is in `sums`, and nobody reads the other slot any more
    const int waves = static_cast<int>(kThreads) / gpu::wave_size();
    return dot::wave_sum(gpu::lane_id() < waves ? sums[gpu::lane_id()] : 0.0f);
  }
  __device__ static void sync() { __syncthreads(); }
};

// Blocks for `rows` that teams share out among them.
template <class Team>
inline unsigned team_blocks(size_t rows) {
  return row_blocks(rows, Team::kBlockThreads / Team::host_size(), Team::kBlockThreads);
}

// ---- What is normalised, and what is written --------------------------------------------------

// A pass over rows x cols elements. mean and rstd may be null.
struct Pass {
  float *y, *mean, *rstd;
  const float *gain, *bias;
  size_t rows, cols;
  float eps;

  __device__ float count() const { return static_cast<float>(cols); }
  // 1 / sqrt(variance + eps), or 0 for 0, which one thread of the team leaves with the mean for the
  // way back.
  template <class Team>
  __device__ float finish(size_t row, float row_mean, float variance) const {
    const float with_eps = variance + eps;
    const float row_rstd = with_eps == 0 ? 0.0f : 1.0f / sqrtf(with_eps);
    if (Team::rank() == 0) {
      if (mean != nullptr) mean[row] = row_mean;
      if (rstd != nullptr) rstd[row] = row_rstd;
    }
    return row_rstd;
  }
};

// Where x comes from. The kernels load(Value, i) number i of the matrix's Values, float or float4,
// keep what they have loaded, and where they need it again, reload it; else they load_once.

// A matrix as it is.
struct Plain {
  static constexpr bool kKeeps = false;
  const float* x;
  __device__ float first(size_t i) const { return x[i]; }
  template <class Value>
  __device__ void load(Value& to, size_t i) const {
    to = reinterpret_cast<const Value*>(x)[i];
  }
  template <class Value>
  __device__ void load_once(Value& to, size_t i) const {
    to = gpu::load_once(reinterpret_cast<const Value*>(x) + i);
  }
  template <class Value>
  __device__ void keep(const Value&, size_t) const {}
  template <class Value>
  __device__ void reload(Value& to, size_t i) const {
    load(to, i);
  }
};

__device__ inline float plus(float a, float b) { return a + b; }
__device__ inline float4 plus(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

// A sum of two, which is stored: the stream of a transformer that goes past the layer.
struct Residual {
  static constexpr bool kKeeps = true;
  float* sum;
  const float *x, *residual;
  __device__ float first(size_t i) const { return x[i] + residual[i]; }
  template <class Value>
  __device__ void load(Value& to, size_t i) const {
    to = plus(reinterpret_cast<const Value*>(x)[i], reinterpret_cast<const Value*>(residual)[i]);
  }
  template <class Value>
  __device__ void load_once(Value& to, size_t i) const {
    to = plus(gpu::load_once(reinterpret_cast<const Value*>(x) + i),
              gpu::load_once(reinterpret_cast<const Value*>(residual) + i));
  }
  template <class Value>
  __device__ void keep(const Value& value, size_t i) const {
    reinterpret_cast<Value*>(sum)[i] = value;
  }
  template <class Value>
  __device__ void reload(Value& to, size_t i) const {
    to = reinterpret_cast<const Value*>(sum)[i];
  }
};

// The row's first element, which all others are held against. Where `sum` is x or the residual, it
// must be read by all before one overwrites it.
template <class Team, class Input>
__device__ inline float first_of_row(const Input& input, size_t i) {
  const float first = input.first(i);
  if constexpr (Input::kKeeps) Team::sync();  // every thread has the row's first element
  return first;
}

// ---- Two passes for the mean and the variance -------------------------------------------------

// Y = (X - mean) rstd gain + bias    X, Y (rows, cols), any sizes.
// Fixes : thread_per_row: a CPU core takes the rows one after the other. two_pass: the lanes of
//         thread_per_row read addresses a whole row apart.
// Idea  : the formulas as they are: mean, then variance, then y. Rows are independent: a thread
//         has one to itself (thread_per_row), or a block shares it (two_pass).
// Thread: t of the team owns the columns t, t + team, ... of the row.
// Costs : 3 reads and 1 write; in a block 2 barriers per row.
template <class Team, class Input>
static __global__ void layernorm_two_pass(Pass pass, Input input) {
  const size_t cols = pass.cols;
  for (size_t row = Team::first_row(); row < pass.rows; row += Team::rows_in_grid()) {
    const size_t begin = row * cols;
    const float first = first_of_row<Team>(input, begin);
    // exercise: the mean of x - first, then the mean of the squares of what differs from it (about
    // 13 lines)
    float sum = 0, squares = 0, x;
    for (size_t c = Team::rank(); c < cols; c += Team::size()) {
      input.load(x, begin + c), input.keep(x, begin + c);
      sum += x - first;
    }
    const float mean = Team::template sum<0>(sum) / pass.count();
    for (size_t c = Team::rank(); c < cols; c += Team::size()) {
      input.reload(x, begin + c);
      const float e = x - first - mean;
      squares += e * e;
    }
    const float variance = Team::template sum<1>(squares) / pass.count();
    // end exercise
    const float rstd = pass.template finish<Team>(row, first + mean, variance);
    for (size_t c = Team::rank(); c < cols; c += Team::size()) {
      input.reload(x, begin + c);
      pass.y[begin + c] = (x - first - mean) * rstd * pass.gain[c] + pass.bias[c];
    }
  }
}

// ---- Welford's method -------------------------------------------------------------------------

// What is known of a part of a row: how many elements, their mean, and the sum of the squares of
// their differences from it. The parts of all threads are together
//
//   mean = sum of count mean / n      squares = sum of (squares + count (mean of part - mean)^2)
//
// (Chan, Golub and LeVeque: Algorithms for computing the sample variance. The American Statistician
// 37, 1983, for two parts at a time; here all come together at once.)
struct Moments {
  float count, mean, squares;
};

// Welford's update (Note on a method for calculating corrected sums of squares and products.
// Technometrics 4, 1962): no difference of large numbers, and the mean is known at any time.
__device__ inline void add(Moments& part, float x) {
  // exercise: count, mean and squares with x among them (about 4 lines)
  part.count += 1.0f;
  const float before = x - part.mean;
  part.mean += before / part.count;
  part.squares += before * (x - part.mean);
  // end exercise
}

// The mean and the variance of a row of n elements, in every thread of the team.
template <class Team>
__device__ inline Moments merge(Moments part, float n) {
  const float mean = Team::template sum<0>(part.count * part.mean) / n;
  const float apart = part.mean - mean;
  const float squares = Team::template sum<1>(part.squares + part.count * (apart * apart));
  return {n, mean, squares};
}

// Y = (X - mean) rstd gain + bias    X, Y (rows, cols), any sizes.
// Fixes : welford: two_pass reads the row once for the mean and once more for the variance.
//         wave_per_row: in a short row the threads of a block have little to do but to wait.
// Idea  : mean and variance grow together, element by element, in one pass; the parts are merged.
// Thread: t of the team owns the columns t, t + team, ... of the row.
// Costs : 2 reads and 1 write; a quotient per element; in a block 2 barriers per row, in a wave
//         none.
template <class Team, class Input>
static __global__ void layernorm_welford(Pass pass, Input input) {
  const size_t cols = pass.cols;
  for (size_t row = Team::first_row(); row < pass.rows; row += Team::rows_in_grid()) {
    const size_t begin = row * cols;
    const float first = first_of_row<Team>(input, begin);
    Moments part = {0, 0, 0};
    float x;
    for (size_t c = Team::rank(); c < cols; c += Team::size()) {
      input.load(x, begin + c), input.keep(x, begin + c);
      add(part, x - first);
    }
    const Moments whole = merge<Team>(part, pass.count());
    const float rstd =
        pass.template finish<Team>(row, first + whole.mean, whole.squares / whole.count);
    for (size_t c = Team::rank(); c < cols; c += Team::size()) {
      input.reload(x, begin + c);
      pass.y[begin + c] = (x - first - whole.mean) * rstd * pass.gain[c] + pass.bias[c];
    }
  }
}

template <class Team, class Input>
inline void launch_two_pass(const Pass& pass, Input input, hipStream_t stream) {
  LAUNCH_ON(stream, (layernorm_two_pass<Team, Input>), team_blocks<Team>(pass.rows),
            Team::kBlockThreads, 0, pass, input);
}
template <class Team, class Input>
inline void launch_welford(const Pass& pass, Input input, hipStream_t stream) {
  LAUNCH_ON(stream, (layernorm_welford<Team, Input>), team_blocks<Team>(pass.rows),
            Team::kBlockThreads, 0, pass, input);
}

// ---- Row in registers -------------------------------------------------------------------------
// A Value is a float4 where every row of every array begins at a multiple of 16 bytes, else a
// float.

template <class Value>
inline constexpr unsigned kWidth = sizeof(Value) / sizeof(float);

__device__ inline float sum_of(float x) { return x; }
__device__ inline float sum_of_squares(float x) { return x * x; }
__device__ inline float sum_of_squares(float4 x) {
  return (x.x * x.x + x.y * x.y) + (x.z * x.z + x.w * x.w);
}
__device__ inline float minus(float a, float b) { return a - b; }
__device__ inline float4 minus(float4 a, float b) {
  return make_float4(a.x - b, a.y - b, a.z - b, a.w - b);
}
__device__ inline float normalized(float e, float rstd, float gain, float bias) {
  return e * rstd * gain + bias;
}
__device__ inline float4 normalized(float4 e, float rstd, float4 gain, float4 bias) {
  return make_float4(normalized(e.x, rstd, gain.x, bias.x), normalized(e.y, rstd, gain.y, bias.y),
                     normalized(e.z, rstd, gain.z, bias.z), normalized(e.w, rstd, gain.w, bias.w));
}

// Of gain or bias the Values that a thread has from number `at` on.
template <class Team, class Value, unsigned kCount>
__device__ inline void load_columns(Value (&to)[kCount], const float* vector, unsigned at,
                                    unsigned values) {
  GPU_UNROLL
  for (unsigned k = 0; k < kCount; ++k) {
    const unsigned v = Team::rank() + (at + k) * Team::size();
    if (v < values) to[k] = reinterpret_cast<const Value*>(vector)[v];
  }
}

// Y = (X - mean) rstd gain + bias    X, Y (rows, cols), any rows; a row of at most kValues Values
//                                    for each thread of the team.
// Fixes : wave_per_row reads the row twice, 4 bytes at a time, and divides for every element.
// Idea  : the team holds the row in its registers: one read, all loads on their way at the same
//         time. Then the two passes of two_pass cost no memory, and are the more accurate ones.
// Thread: t of the team owns the Values t, t + team, ... of the row.
// Costs : 1 read and 1 write; kValues Values of registers; 2 barriers per row, none in a wave.
//         gain and bias come from the cache for every row: kTogether Values at a time, or, where
//         they are that few, all of them while the row is on its way.
template <class Team, class Value, unsigned kValues, unsigned kResident, class Input>
static __global__ void GPU_LAUNCH_BOUNDS(Team::kBlockThreads, kResident)
    layernorm_row_cached(Pass pass, Input input) {
  constexpr unsigned kTogether = kValues > 16 ? 1 : kValues < 4 ? kValues : 4;
  constexpr bool kAtOnce = kValues * sizeof(Value) < 4 * sizeof(float4);
  const unsigned rank = Team::rank(), values = static_cast<unsigned>(pass.cols / kWidth<Value>);
  for (size_t row = Team::first_row(); row < pass.rows; row += Team::rows_in_grid()) {
    const size_t begin = row * values + rank;
    Value held[kValues] = {}, gain[kTogether] = {}, bias[kTogether] = {};
    GPU_UNROLL
    for (unsigned k = 0; k < kValues; ++k)
      if (rank + k * Team::size() < values) input.load_once(held[k], begin + k * Team::size());
    const float first = first_of_row<Team>(input, row * pass.cols);
    if constexpr (kAtOnce) {
      load_columns<Team>(gain, pass.gain, 0, values);
      load_columns<Team>(bias, pass.bias, 0, values);
    }

    // exercise: keep what was loaded; mean and variance as in two_pass, from `held` (about 17
    // lines)
    float sum = 0, squares = 0;
    GPU_UNROLL
    for (unsigned k = 0; k < kValues; ++k)
      if (rank + k * Team::size() < values) {
        input.keep(held[k], begin + k * Team::size());
        held[k] = minus(held[k], first);
        sum += sum_of(held[k]);
      }
    const float mean = Team::template sum<0>(sum) / pass.count();
    GPU_UNROLL
    for (unsigned k = 0; k < kValues; ++k)
      if (rank + k * Team::size() < values) {
        held[k] = minus(held[k], mean);
        squares += sum_of_squares(held[k]);
      }
    const float variance = Team::template sum<1>(squares) / pass.count();
    // end exercise
    const float rstd = pass.template finish<Team>(row, first + mean, variance);

    Value* y = reinterpret_cast<Value*>(pass.y) + begin;
    GPU_UNROLL
    for (unsigned at = 0; at < kValues; at += kTogether) {
      if constexpr (!kAtOnce) {
        load_columns<Team>(gain, pass.gain, at, values);
        load_columns<Team>(bias, pass.bias, at, values);
      }
      GPU_UNROLL
      for (unsigned k = 0; k < kTogether; ++k)
        if (at + k < kValues && rank + (at + k) * Team::size() < values)
          y[(at + k) * Team::size()] = normalized(held[at + k], rstd, gain[k], bias[k]);
    }
  }
}

// Returns false, and launches nothing, where the team can't hold a row.
template <class Team, class Value, unsigned kValues, unsigned kResident, class Input>
inline bool launch_team(const Pass& pass, Input input, hipStream_t stream) {
  if (pass.cols / kWidth < Value >> size_t{kValues} * Team::host_size()) return false;
  LAUNCH_ON(stream, (layernorm_row_cached<Team, Value, kValues, kResident, Input>),
            team_blocks<Team>(pass.rows), Team::kBlockThreads, 0, pass, input);
  return true;
}

// The teams, the smallest first: Values per thread, and blocks that shall fit a multiprocessor, of
// together at most 1024 threads, which is all that some have.
template <class Input>
inline bool launch_float4(const Pass& pass, Input input, hipStream_t stream) {
  return launch_team<WaveTeam, float4, 1, 4>(pass, input, stream) ||
         launch_team<WaveTeam, float4, 2, 4>(pass, input, stream) ||
         launch_team<WaveTeam, float4, 3, 4>(pass, input, stream) ||
         launch_team<WaveTeam, float4, 4, 4>(pass, input, stream) ||
         launch_team<BlockTeam<64>, float4, 4, 16>(pass, input, stream) ||
         launch_team<BlockTeam<128>, float4, 4, 8>(pass, input, stream) ||
         launch_team<BlockTeam<256>, float4, 4, 4>(pass, input, stream) ||
         launch_team<BlockTeam<512>, float4, 4, 2>(pass, input, stream) ||
         launch_team<BlockTeam<512>, float4, 8, 1>(pass, input, stream) ||
         launch_team<BlockTeam<512>, float4, 25, 1>(pass, input, stream);
}
template <class Input>
inline bool launch_floats(const Pass& pass, Input input, hipStream_t stream) {
  return launch_team<WaveTeam, float, 4, 4>(pass, input, stream) ||
         launch_team<WaveTeam, float, 16, 3>(pass, input, stream) ||
         launch_team<BlockTeam<128>, float, 16, 8>(pass, input, stream) ||
         launch_team<BlockTeam<512>, float, 16, 2>(pass, input, stream) ||
         launch_team<BlockTeam<512>, float, 64, 1>(pass, input, stream);
}

// Rows that no team can hold are left to Welford's method.
template <class Input>
inline void launch_row_cached(const Pass& pass, Input input, bool aligned, hipStream_t stream) {
  const auto launch = aligned ? launch_float4<Input> : launch_floats<Input>;
  if (!launch(pass, input, stream)) launch_welford<BlockTeam<kBlock>>(pass, input, stream);
}

// ---- What later steps call --------------------------------------------------------------------

// True where every row of all the matrices begins at a multiple of 16 bytes.
inline bool rows_are_aligned(size_t cols, std::initializer_list<const float*> arrays) {
  return cols % 4 == 0 && std::all_of(arrays.begin(), arrays.end(), gemv::is_float4_aligned);
}

inline void check(size_t cols, float eps) {
  if (cols == 0) throw std::invalid_argument("layernorm needs at least one column");
  if (!(eps >= 0))
    throw std::invalid_argument("layernorm: eps is " + std::to_string(eps) +
                                ", and must be at least 0");
}

// A row that is read by one thread keeps the CPU backend's vector units busy without a barrier.
template <class Input>
inline void launch_best(const Pass& pass, Input input, bool aligned, hipStream_t stream) {
#if defined(GPU_BACKEND_CPU)
  static_cast<void>(aligned);
  launch_two_pass<ThreadTeam>(pass, input, stream);
#else
  launch_row_cached(pass, input, aligned, stream);
#endif
}

// y, and unless they are null mean and rstd (rows). y may be x.
inline void forward(float* y, float* mean, float* rstd, const float* x, const float* gain,
                    const float* bias, size_t rows, size_t cols, float eps,
                    hipStream_t stream = nullptr) {
  check(cols, eps);
  if (rows == 0) return;
  launch_best({y, mean, rstd, gain, bias, rows, cols, eps}, Plain{x},
              rows_are_aligned(cols, {y, x, gain, bias}), stream);
}

// sum = x + residual and y, mean, rstd of it, in one pass: 16 bytes per element, where a sum of its
// own and `forward` take 20. sum may be x or residual, and so may y, but not both be the same.
inline void forward_residual(float* sum, float* y, float* mean, float* rstd, const float* x,
                             const float* residual, const float* gain, const float* bias,
                             size_t rows, size_t cols, float eps, hipStream_t stream = nullptr) {
  check(cols, eps);
  if (rows == 0) return;
  launch_best({y, mean, rstd, gain, bias, rows, cols, eps}, Residual{sum, x, residual},
              rows_are_aligned(cols, {sum, y, x, residual, gain, bias}), stream);
}

// ---- The versions of the forward pass ---------------------------------------------------------

template <class Team>
void run_two_pass(const Pass& pass, const float* x, hipStream_t stream) {
  if (pass.rows > 0) launch_two_pass<Team>(pass, Plain{x}, stream);
}
template <class Team>
void run_welford(const Pass& pass, const float* x, hipStream_t stream) {
  if (pass.rows > 0) launch_welford<Team>(pass, Plain{x}, stream);
}
inline void run_row_cached(const Pass& pass, const float* x, hipStream_t stream) {
  if (pass.rows > 0)
    launch_row_cached(pass, Plain{x},
                      rows_are_aligned(pass.cols, {pass.y, x, pass.gain, pass.bias}), stream);
}

// A thread adds its elements one after the other, then the team adds the threads' sums: at most the
// 64 lanes of a wave, and as many waves.
template <class Team>
Roundings roundings_two_pass(size_t cols) {
  return {softmax::additions(cols, Team::host_size())};
}
template <class Team>
Roundings roundings_welford(size_t cols) {
  const double threads = Team::host_size();
  return {std::log2(threads), std::ceil(static_cast<double>(cols) / threads)};
}
// No thread has more than 32 floats, or what a row leaves to each of 512 threads; a team adds in at
// most 9 rounds, and a float4 in two. Adding zeros for idle threads rounds nothing.
inline Roundings roundings_row_cached(size_t cols) {
  constexpr size_t kLongest = size_t{512} * 64;
  if (cols > kLongest) return roundings_welford<BlockTeam<kBlock>>(cols);
  const double of_thread = std::fmax(32.0, static_cast<double>(gpu::ceil_div(cols, 512)));
  return {std::fmin(static_cast<double>(cols), of_thread + 9 + 2)};
}
// What forward() and forward_residual() do.
inline Roundings roundings_best(size_t cols) {
#if defined(GPU_BACKEND_CPU)
  return roundings_two_pass<ThreadTeam>(cols);
#else
  return roundings_row_cached(cols);
#endif
}

struct Launch {
  void (*run)(const Pass& pass, const float* x, hipStream_t stream);  // cols > 0; y may be x
  Roundings (*roundings)(size_t cols);
};

inline constexpr Version<Launch> kVersions[] = {
    {"thread_per_row",
     {run_two_pass<ThreadTeam>, roundings_two_pass<ThreadTeam>},
     "mean, variance, y: three reads, lanes a row apart"},
    {"two_pass",
     {run_two_pass<BlockTeam<kBlock>>, roundings_two_pass<BlockTeam<kBlock>>},
     "a block shares the row: neighbours read neighbours"},
    {"welford",
     {run_welford<BlockTeam<kBlock>>, roundings_welford<BlockTeam<kBlock>>},
     "mean and variance in one pass: two reads"},
    {"wave_per_row",
     {run_welford<WaveTeam>, roundings_welford<WaveTeam>},
     "shuffles instead of barriers"},
    {"row_cached", {run_row_cached, roundings_row_cached}, "the row stays in registers: one read"},
};

// ---- With a residual --------------------------------------------------------------------------

struct ResidualLaunch {
  void (*run)(float* sum, const Pass& pass, const float* x, const float* residual,
              hipStream_t stream);  // cols > 0
};

// The sum by step 1.1's kernel, which comes back from memory to be normalised.
inline void run_residual_separate(float* sum, const Pass& pass, const float* x,
                                  const float* residual, hipStream_t stream) {
  const size_t n = pass.rows * pass.cols;
  if (n == 0) return;
  vector_add::launch_vectorized_add(sum, x, residual, n, stream);
  run_row_cached(pass, sum, stream);
}
inline void run_residual_fused(float* sum, const Pass& pass, const float* x, const float* residual,
                               hipStream_t stream) {
  if (pass.rows > 0)
    launch_row_cached(pass, Residual{sum, x, residual},
                      rows_are_aligned(pass.cols, {sum, pass.y, x, residual, pass.gain, pass.bias}),
                      stream);
}

inline constexpr Version<ResidualLaunch> kResidualVersions[] = {
    {"residual_separate", {run_residual_separate}, "x + residual, then layernorm: 20 bytes"},
    {"residual_fused", {run_residual_fused}, "the sum is stored while it is in registers: 16"},
};

// ---- The way back: what it needs --------------------------------------------------------------

// grad_residual may be null; else it is added to grad_x. grad_x may be any of the matrices.
struct BackwardPass {
  float* grad_x;
  const float *grad_y, *x, *gain, *mean, *rstd, *grad_residual;
  size_t rows, cols;

  __device__ float count() const { return static_cast<float>(cols); }
};

inline constexpr size_t kMaxPartials = size_t{1} << 22;    // floats
inline constexpr size_t kMostBlocks = 8;                   // per multiprocessor, that leave sums
inline constexpr size_t kLeastRows = 2;                    // per team of the fused version
inline constexpr unsigned kSumWidth = 8, kSumHeight = 32;  // threads of a block of the second pass

// How many blocks may leave sums of `cols` columns, twice, for the second pass.
inline size_t most_parts(size_t rows, size_t cols) {
  const size_t resident = size_t{gpu::multiprocessors()} * kMostBlocks;
  const size_t most = std::min({rows, resident, kMaxPartials / (2 * std::max(cols, size_t{1}))});
  return std::max(most, size_t{1});
}

// For matrices of at most so many rows and columns. With a smaller one fewer blocks would have to
// do. No two streams use it at the same time.
struct Workspace {
  Workspace(size_t max_rows, size_t max_cols)
      : partials(most_parts(max_rows, max_cols) * 2 * max_cols) {}
  // The parts that blocks of a launch may leave; throws where there is no room for a single one.
  size_t parts(size_t rows, size_t cols) const {
    const size_t room = cols == 0 ? 0 : partials.size() / (2 * cols);
    if (room == 0)
      throw std::invalid_argument("layernorm: " + std::to_string(cols) +
                                  " columns in a workspace for " +
                                  std::to_string(partials.size() / 2));
    return std::min(room, most_parts(rows, cols));
  }
  DeviceBuffer<float> partials;  // (parts, 2, cols): the sums of gain's gradient, then of bias's
};

// grad_gain[c] and grad_bias[c] = sum over p of partials[p, 0 and 1, c]    partials (parts, 2,
// cols) Fixes : a block can't know when the others have left their sums; the next launch can. Idea
// : few columns, many parts: threads beside each other share a column's parts, in an order
//         that is always the same.
// Thread: (x, y) adds the parts y, y + kSumHeight, ... of column blockIdx.x * kSumWidth + x.
// Costs : 8 parts cols bytes, which the L2 cache still holds; 1 barrier.
static __global__ void layernorm_add_parts(float* grad_gain, float* grad_bias,
                                           const float* partials, size_t parts, size_t cols) {
  __shared__ float sums[kSumHeight][kSumWidth];
  const size_t c = size_t{blockIdx.x} * kSumWidth + threadIdx.x;
  float sum = 0;
  if (c < 2 * cols) {
    constexpr unsigned kLoads = 8;
    size_t p = threadIdx.y;
    for (; p + (kLoads - 1) * kSumHeight < parts; p += kLoads * kSumHeight) {
      float held[kLoads];
      GPU_UNROLL
      for (unsigned k = 0; k < kLoads; ++k) held[k] = partials[(p + k * kSumHeight) * 2 * cols + c];
      GPU_UNROLL
      for (unsigned k = 0; k < kLoads; ++k) sum += held[k];
    }
    for (; p < parts; p += kSumHeight) sum += partials[p * 2 * cols + c];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();  // the sums of all the block's threads are in shared memory
  if (threadIdx.y == 0 && c < 2 * cols) {
    for (unsigned y = 1; y < kSumHeight; ++y) sum += sums[y][threadIdx.x];
    if (c < cols)
      grad_gain[c] = sum;
    else
      grad_bias[c - cols] = sum;
  }
}

inline void launch_add_parts(float* grad_gain, float* grad_bias, const Workspace& workspace,
                             size_t parts, size_t cols, hipStream_t stream) {
  LAUNCH_ON(stream, layernorm_add_parts,
            static_cast<unsigned>(gpu::ceil_div(2 * cols, size_t{kSumWidth})),
            dim3(kSumWidth, kSumHeight), 0, grad_gain, grad_bias, workspace.partials.data(), parts,
            cols);
}
inline double roundings_add_parts(double parts) {
  return std::ceil(parts / kSumHeight) + kSumHeight;
}

// ---- The way back: two kernels ----------------------------------------------------------------

// grad_x = rstd (g - mean of g - n mean of g n) + grad_residual    all (rows, cols), any sizes.
// Fixes : a CPU core takes the rows one after the other.
// Idea  : the slope of a row's mean and of its rstd take two sums over the row.
// Thread: t of the team owns the columns t, t + team, ... of the row.
// Costs : 2 reads of both inputs, of which the cache may serve one, and 1 write.
template <class Team>
static __global__ void layernorm_grad_x(BackwardPass pass) {
  const size_t cols = pass.cols;
  for (size_t row = Team::first_row(); row < pass.rows; row += Team::rows_in_grid()) {
    const size_t begin = row * cols;
    const float mean = pass.mean[row], rstd = pass.rstd[row];
    // exercise: the two sums over the row, then the gradients (about 15 lines)
    float sum = 0, sum_n = 0;
    for (size_t c = Team::rank(); c < cols; c += Team::size()) {
      const float g = pass.grad_y[begin + c] * pass.gain[c];
      sum += g;
      sum_n += g * ((pass.x[begin + c] - mean) * rstd);
    }
    const float mean_g = Team::template sum<0>(sum) / pass.count();
    const float mean_gn = Team::template sum<1>(sum_n) / pass.count();
    for (size_t c = Team::rank(); c < cols; c += Team::size()) {
      const float g = pass.grad_y[begin + c] * pass.gain[c];
      const float n = (pass.x[begin + c] - mean) * rstd;
      const float grad = rstd * (g - mean_g - n * mean_gn);
      const bool alone = pass.grad_residual == nullptr;
      pass.grad_x[begin + c] = alone ? grad : grad + pass.grad_residual[begin + c];
    }
    // end exercise
  }
}

// partials[s, 0, c] = the sum of grad_y n, partials[s, 1, c] = of grad_y, over column c of slice s.
// Fixes : the sums of gain and bias run down the columns, grad_x along the rows.
// Idea  : a thread per column, which neighbours read together; slices of rows, so that there are
//         enough of them.
// Thread: t owns column blockIdx.x * blockDim.x + t of the `slice` rows from blockIdx.y * slice on.
// Costs : 8 rows cols bytes, which the kernel for grad_x reads once more.
static __global__ void layernorm_column_sums(float* partials, BackwardPass pass, size_t slice) {
  const size_t c = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t begin = blockIdx.y * slice, end = min(begin + slice, pass.rows);
  if (c >= pass.cols) return;
  float sum_gain = 0, sum_bias = 0;
  for (size_t row = begin; row < end; ++row) {
    const float grad = pass.grad_y[row * pass.cols + c];
    sum_gain += grad * ((pass.x[row * pass.cols + c] - pass.mean[row]) * pass.rstd[row]);
    sum_bias += grad;
  }
  partials[blockIdx.y * 2 * pass.cols + c] = sum_gain;
  partials[(blockIdx.y * 2 + 1) * pass.cols + c] = sum_bias;
}

inline constexpr unsigned kColumnBlock = 64;

// Slices of at least kSumHeight rows: each is a row of partials, twice.
inline size_t count_slices(size_t parts, size_t rows) {
  constexpr size_t kMaxGridY = 65535;
  return std::clamp(gpu::ceil_div(rows, size_t{kSumHeight}), size_t{1}, std::min(parts, kMaxGridY));
}

// The sums first: grad_x may take the place of what they are made of.
template <class Team>
inline void launch_backward_separate(float* grad_gain, float* grad_bias, const BackwardPass& pass,
                                     Workspace& workspace, hipStream_t stream) {
  const size_t slices = count_slices(workspace.parts(pass.rows, pass.cols), pass.rows);
  const size_t slice = gpu::ceil_div(pass.rows, slices);
  const dim3 grid(static_cast<unsigned>(gpu::ceil_div(pass.cols, size_t{kColumnBlock})),
                  static_cast<unsigned>(slices));
  LAUNCH_ON(stream, layernorm_column_sums, grid, kColumnBlock, 0, workspace.partials.data(), pass,
            slice);
  launch_add_parts(grad_gain, grad_bias, workspace, slices, pass.cols, stream);
  if (pass.rows > 0)
    LAUNCH_ON(stream, layernorm_grad_x<Team>, team_blocks<Team>(pass.rows), Team::kBlockThreads, 0,
              pass);
}

// ---- The way back: one kernel, and a small one for the sums -----------------------------------

__device__ inline float times(float a, float b) { return a * b; }
__device__ inline float4 times(float4 a, float4 b) {
  return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}
__device__ inline float normal(float x, float mean, float rstd) { return (x - mean) * rstd; }
__device__ inline float4 normal(float4 x, float mean, float rstd) {
  return make_float4(normal(x.x, mean, rstd), normal(x.y, mean, rstd), normal(x.z, mean, rstd),
                     normal(x.w, mean, rstd));
}
__device__ inline float gradient(float g, float n, float rstd, float mean_g, float mean_gn) {
  return rstd * (g - mean_g - n * mean_gn);
}
__device__ inline float4 gradient(float4 g, float4 n, float rstd, float mean_g, float mean_gn) {
  return make_float4(
      gradient(g.x, n.x, rstd, mean_g, mean_gn), gradient(g.y, n.y, rstd, mean_g, mean_gn),
      gradient(g.z, n.z, rstd, mean_g, mean_gn), gradient(g.w, n.w, rstd, mean_g, mean_gn));
}

// The sums of the block's teams, in the order of the teams, to partials (2, values): a block that
// is one team just stores them, waves add theirs up in shared memory.
template <class Team, class Value, unsigned kValues>
__device__ inline void leave_sums(Value* partials, const Value (&sum_gain)[kValues],
                                  const Value (&sum_bias)[kValues], unsigned values) {
  const unsigned rank = Team::rank();
  if constexpr (std::is_same_v<Team, WaveTeam>) {
    __shared__ Value sums[2][kValues * gpu::kMaxWaveSize];
    const int waves = static_cast<int>(Team::kBlockThreads) / gpu::wave_size();
    for (int wave = 0; wave < waves; ++wave) {
      if (wave == gpu::wave_id()) {
        GPU_UNROLL
        for (unsigned k = 0; k < kValues; ++k) {
          const unsigned i = rank + k * Team::size();
          sums[0][i] = wave == 0 ? sum_gain[k] : plus(sums[0][i], sum_gain[k]);
          sums[1][i] = wave == 0 ? sum_bias[k] : plus(sums[1][i], sum_bias[k]);
        }
      }
      __syncthreads();  // the first wave + 1 waves' sums are in shared memory
    }
    for (unsigned v = threadIdx.x; v < values; v += Team::kBlockThreads) {
      partials[v] = sums[0][v];
      partials[values + v] = sums[1][v];
    }
  } else {
    GPU_UNROLL
    for (unsigned k = 0; k < kValues; ++k) {
      const unsigned i = rank + k * Team::size();
      if (i < values) partials[i] = sum_gain[k], partials[values + i] = sum_bias[k];
    }
  }
}

// grad_x = rstd (g - mean of g - n mean of g n) + grad_residual, and partials[b] = block b's sums
// of grad_y n and of grad_y    all (rows, cols); a row of at most kValues Values for each thread.
// Fixes : separate reads grad_y and x twice for grad_x, and a third time for the columns' sums.
// Idea  : the team holds both rows in registers. It walks down many rows and stays in its columns,
//         so that their sums stay in registers too: one store at the end.
// Thread: t of the team owns the Values t, t + team, ... of the rows team, team + teams, ...
// Costs : 12 rows cols bytes, 16 with a residual; 5 kValues Values of registers; 2 barriers per
//         row, none in a wave.
template <class Team, class Value, unsigned kValues, unsigned kResident>
static __global__ void GPU_LAUNCH_BOUNDS(Team::kBlockThreads, kResident)
    layernorm_backward_fused(float* partials, BackwardPass pass) {
  const unsigned rank = Team::rank(), values = static_cast<unsigned>(pass.cols / kWidth<Value>);
  Value gain[kValues] = {}, sum_gain[kValues] = {}, sum_bias[kValues] = {};
  GPU_UNROLL
  for (unsigned k = 0; k < kValues; ++k)
    if (rank + k * Team::size() < values)
      gain[k] = reinterpret_cast<const Value*>(pass.gain)[rank + k * Team::size()];

  for (size_t row = Team::first_row(); row < pass.rows; row += Team::rows_in_grid()) {
    const size_t begin = row * values + rank;
    const Value* grad_y = reinterpret_cast<const Value*>(pass.grad_y) + begin;
    const Value* x = reinterpret_cast<const Value*>(pass.x) + begin;
    Value g[kValues] = {}, n[kValues] = {};
    GPU_UNROLL
    for (unsigned k = 0; k < kValues; ++k)
      if (rank + k * Team::size() < values) {
        g[k] = gpu::load_once(grad_y + k * Team::size());
        n[k] = gpu::load_once(x + k * Team::size());
      }
    const float mean = pass.mean[row], rstd = pass.rstd[row];

    // exercise: n, the sums of the columns, g, and the two sums of the row (about 10 lines)
    float sum = 0, sum_n = 0;
    GPU_UNROLL
    for (unsigned k = 0; k < kValues; ++k)
      if (rank + k * Team::size() < values) {
        n[k] = normal(n[k], mean, rstd);
        sum_gain[k] = plus(sum_gain[k], times(g[k], n[k]));
        sum_bias[k] = plus(sum_bias[k], g[k]);
        g[k] = times(g[k], gain[k]);
        sum += sum_of(g[k]);
        sum_n += sum_of(times(g[k], n[k]));
      }
    // end exercise
    const float mean_g = Team::template sum<0>(sum) / pass.count();
    const float mean_gn = Team::template sum<1>(sum_n) / pass.count();

    const Value* residual = reinterpret_cast<const Value*>(pass.grad_residual);
    Value* grad_x = reinterpret_cast<Value*>(pass.grad_x) + begin;
    GPU_UNROLL
    for (unsigned k = 0; k < kValues; ++k)
      if (rank + k * Team::size() < values) {
        Value grad = gradient(g[k], n[k], rstd, mean_g, mean_gn);
        if (pass.grad_residual != nullptr) grad = plus(grad, residual[begin + k * Team::size()]);
        grad_x[k * Team::size()] = grad;
      }
  }
  leave_sums<Team>(reinterpret_cast<Value*>(partials + size_t{blockIdx.x} * 2 * pass.cols),
                   sum_gain, sum_bias, values);
}

// Returns false, and launches nothing, where the team can't hold a row.
template <class Team, class Value, unsigned kValues, unsigned kResident>
inline bool launch_backward_team(float* grad_gain, float* grad_bias, const BackwardPass& pass,
                                 Workspace& workspace, hipStream_t stream) {
  if (pass.cols / kWidth < Value >> size_t{kValues} * Team::host_size()) return false;
  const size_t teams = Team::kBlockThreads / Team::host_size();
  const size_t resident = size_t{gpu::multiprocessors()} * kResident;
  const size_t blocks = std::min({gpu::ceil_div(pass.rows, teams * kLeastRows), resident,
                                  workspace.parts(pass.rows, pass.cols)});
  if (blocks > 0)
    LAUNCH_ON(stream, (layernorm_backward_fused<Team, Value, kValues, kResident>),
              static_cast<unsigned>(blocks), Team::kBlockThreads, 0, workspace.partials.data(),
              pass);
  launch_add_parts(grad_gain, grad_bias, workspace, blocks, pass.cols, stream);
  return true;
}

// Rows that no team can hold are left to separate, with a block for each row.
inline void launch_backward_fused(float* grad_gain, float* grad_bias, const BackwardPass& pass,
                                  Workspace& workspace, hipStream_t stream) {
  const auto launch = [&](auto run) { return run(grad_gain, grad_bias, pass, workspace, stream); };
  const bool aligned = rows_are_aligned(
      pass.cols, {pass.grad_x, pass.grad_y, pass.x, pass.gain, pass.grad_residual});
  const bool held = aligned ? launch(launch_backward_team<WaveTeam, float4, 1, 4>) ||
                                  launch(launch_backward_team<WaveTeam, float4, 2, 3>) ||
                                  launch(launch_backward_team<WaveTeam, float4, 3, 2>) ||
                                  launch(launch_backward_team<WaveTeam, float4, 4, 2>) ||
                                  launch(launch_backward_team<WaveTeam, float4, 8, 1>) ||
                                  launch(launch_backward_team<BlockTeam<128>, float4, 4, 4>) ||
                                  launch(launch_backward_team<BlockTeam<256>, float4, 4, 2>) ||
                                  launch(launch_backward_team<BlockTeam<512>, float4, 4, 1>)
                            : launch(launch_backward_team<WaveTeam, float, 4, 4>) ||
                                  launch(launch_backward_team<WaveTeam, float, 16, 2>) ||
                                  launch(launch_backward_team<BlockTeam<256>, float, 16, 2>);
  if (!held)
    launch_backward_separate<BlockTeam<kBlock>>(grad_gain, grad_bias, pass, workspace, stream);
}

// ---- What later steps call --------------------------------------------------------------------

// grad_x, grad_gain and grad_bias, which are overwritten, from the mean and rstd that the forward
// pass has left. grad_residual may be null, else it is added to grad_x: the gradient that goes past
// the layer. grad_x may be any of the matrices. Throws std::invalid_argument where the workspace is
// for fewer columns.
inline void backward(float* grad_x, float* grad_gain, float* grad_bias, const float* grad_y,
                     const float* x, const float* gain, const float* mean, const float* rstd,
                     const float* grad_residual, size_t rows, size_t cols, Workspace& workspace,
                     hipStream_t stream = nullptr) {
  check(cols, 0);
  const BackwardPass pass{grad_x, grad_y, x, gain, mean, rstd, grad_residual, rows, cols};
#if defined(GPU_BACKEND_CPU)
  launch_backward_separate<ThreadTeam>(grad_gain, grad_bias, pass, workspace, stream);
#else
  launch_backward_fused(grad_gain, grad_bias, pass, workspace, stream);
#endif
}

struct BackwardLaunch {
  void (*run)(float* grad_gain, float* grad_bias, const BackwardPass& pass, Workspace& workspace,
              hipStream_t stream);                       // cols > 0
  double (*row_additions)(size_t cols);                  // through which a term of a row's sum goes
  double (*column_additions)(size_t rows, size_t cols);  // of a column's sum, at most
};

template <class Team>
double row_additions_separate(size_t cols) {
  return roundings_two_pass<Team>(cols).additions;
}
inline double column_additions_separate(size_t rows, size_t cols) {
  const double slices = static_cast<double>(count_slices(most_parts(rows, cols), rows));
  return std::ceil(static_cast<double>(rows) / slices) + roundings_add_parts(slices);
}
inline double row_additions_fused(size_t cols) {
  return std::fmax(roundings_row_cached(cols).additions,
                   row_additions_separate<BlockTeam<kBlock>>(cols));
}
// A team takes kLeastRows rows, or its share where all parts are taken; then come a block's waves
// and the parts. What separate does comes in where no team can hold a row.
inline double column_additions_fused(size_t rows, size_t cols) {
  const size_t most = most_parts(rows, cols),
               teams = std::min(most, size_t{gpu::multiprocessors()});
  const double of_team = static_cast<double>(std::max(gpu::ceil_div(rows, teams), kLeastRows));
  return std::fmax(of_team + 8 + roundings_add_parts(static_cast<double>(most)),
                   column_additions_separate(rows, cols));
}

inline constexpr Version<BackwardLaunch> kBackwardVersions[] = {
    {"backward_separate",
     {launch_backward_separate<WaveTeam>, row_additions_separate<WaveTeam>,
      column_additions_separate},
     "along the rows for grad_x, down the columns for gain and bias"},
    {"backward_fused",
     {launch_backward_fused, row_additions_fused, column_additions_fused},
     "both rows in registers, and the columns' sums too: one pass"},
};

}  // namespace layernorm
