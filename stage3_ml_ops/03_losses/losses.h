// 3.3  Losses: one number that says how wrong a batch is, and its gradient.
//
//   squared error    mean of (p - t)^2 over n elements           gradient  2 (p - t) / n
//   cross-entropy    mean of -log softmax(x)[label] over rows    gradient  (softmax(x) - 1[label])
//                    of logits X (rows, classes)                           / counted rows
//
// Both are means over the batch, so both end in a sum, which is taken in a fixed order: the same
// bits on every run. The number stays on the device: no launcher waits for the host. The ladders
// are about how often the large arrays travel: at the end each is read once and written once.
//
// Matrices are row-major without gaps, floats and labels aligned to 4 bytes, any sizes. A mean over
// nothing (no elements, no rows, or none that counts) is 0 / 0 = NaN; its gradient is 0.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/gpu.h"
#include "common/program.h"
#include "stage0_infra/04_device_matrix/device_matrix.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage1_vector/03_dot/detail/block_sum.h"
#include "stage3_ml_ops/02_softmax/detail/launch_best.h"
#include "stage3_ml_ops/02_softmax/softmax.h"

namespace losses {

using device_matrix::DeviceBuffer;
using dot::kBlock;
using softmax::kTiny;
using softmax::MaxSum;
using softmax::Roundings;
using vector_add::Split;
using vector_add::split_vectors;

// ---- Tuning and workspace ---------------------------------------------------------------------

inline constexpr unsigned kMaxBlocks = 16384;  // largest grid of a squared error
inline constexpr size_t kVectors = 4;  // float4s of p and as many of t on their way per thread
inline constexpr size_t kElements = 4 * kVectors;  // per thread where they come one at a time
inline constexpr int kLoads = 8;                   // values on their way per thread of a mean
// The values that one block adds to a mean; more of them are added by several blocks first.
inline constexpr size_t kOneBlock = 8192;

// Device memory for what the kernels leave behind. No other stream uses it at the same time.
struct Workspace {
  size_t rows;        // the largest batch of a cross-entropy
  float* row_losses;  // (rows) the loss of each row; 0 where it is ignored, NaN for a bad label
  MaxSum* wholes;     // (rows) of the version that needs them: a row's maximum and its sum
  float* partials;    // (2 kMaxBlocks) one sum per block, and sums of those
  unsigned* counted;  // (1) how many rows are not ignored
  unsigned long long* bad_label;  // (1) see "Labels"; kNoBadLabel before the first launch
};

// ---- A mean in a fixed order ------------------------------------------------------------------

// What a sum is divided by: n, or a number that an earlier kernel has left on the device.
struct Count {
  size_t n;
  const unsigned* counted = nullptr;
  __device__ float value() const { return static_cast<float>(counted != nullptr ? *counted : n); }
};

// The sum of values[first], values[first + step], ..., kLoads of them on their way at a time.
__device__ inline float strided_sum(const float* values, size_t n, size_t first, size_t step) {
  float sum = 0;
  size_t i = first;
  for (; i + (kLoads - 1) * step < n; i += kLoads * step) {
    float held[kLoads];
    for (int k = 0; k < kLoads; ++k) held[k] = values[i + static_cast<size_t>(k) * step];
    for (int k = 0; k < kLoads; ++k) sum += held[k];
  }
  for (; i < n; i += step) sum += values[i];
  return sum;
}

// partials[b] = the sum of block b's share of values    values (n), partials (gridDim.x).
// Fixes : one block alone takes long for many values.
// Idea  : grid and tree follow from n alone, so that the order is always the same.
// Thread: t sums the values t, t + T, ...; thread 0 of a block stores the block's sum.
// Costs : 4 n bytes of global memory; log2(kBlock) + 1 barriers.
static __global__ void sum_in_order(float* partials, const float* values, size_t n) {
  const size_t thread = size_t{blockIdx.x} * kBlock + threadIdx.x;
  const float sum = dot::block_sum_tree(strided_sum(values, n, thread, size_t{gridDim.x} * kBlock));
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

// *mean = (sum of values) / count    values (n), one block.
// Fixes : the blocks' sums are still many numbers.
// Idea  : the same tree once more; the division where the sum is.
// Thread: t sums the values t, t + kBlock, ...; thread 0 stores the mean.
// Costs : 4 n bytes of global memory; log2(kBlock) + 1 barriers.
static __global__ void mean_in_order(float* mean, const float* values, size_t n, Count count) {
  const float sum = dot::block_sum_tree(strided_sum(values, n, threadIdx.x, kBlock));
  if (threadIdx.x == 0) *mean = sum / count.value();
}

inline unsigned mean_blocks(size_t n) {
  const size_t blocks = gpu::ceil_div(n, size_t{kBlock} * kLoads);
  return n <= kOneBlock ? 1 : static_cast<unsigned>(std::min(blocks, size_t{kMaxBlocks}));
}

inline void launch_mean(float* mean, const float* values, size_t n, Count count, float* partials,
                        hipStream_t stream) {
  const unsigned blocks = mean_blocks(n);
  if (blocks > 1) {
    LAUNCH_ON(stream, sum_in_order, blocks, kBlock, 0, partials, values, n);
    values = partials, n = blocks;
  }
  LAUNCH_ON(stream, mean_in_order, 1, kBlock, 0, mean, values, n, count);
}

// Through how many roundings does a value go on its way into the mean? One per addition to its
// thread's sum and in the tree, twice where several blocks add; the count's and the quotient's.
inline double mean_roundings(size_t n) {
  const double blocks = mean_blocks(n), tree = std::log2(kBlock);
  const double first = std::ceil(static_cast<double>(n) / (blocks * kBlock)) + tree;
  const double second = blocks > 1 ? std::ceil(blocks / kBlock) + tree : 0;
  return first + second + 2;
}

// gamma(k) = k u / (1 - k u): what k roundings may do to a product, or to a sum of terms of one
// sign (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., lemma 3.1, section 4.2).
inline double gamma(double roundings) {
  const double ku = roundings * kFloatRoundoff;
  return ku / (1 - ku);
}

// ---- Squared error ----------------------------------------------------------------------------

// The reference in double: the mean of (p - t)^2, and 2 (p - t) / n.
inline double squared_error_cpu(const std::vector<float>& p, const std::vector<float>& t) {
  double total = 0;
  constexpr size_t kPiece = 4096;  // partial sums keep the reference's own error small
  for (size_t begin = 0; begin < p.size(); begin += kPiece) {
    double piece = 0;
    for (size_t i = begin; i < std::min(begin + kPiece, p.size()); ++i)
      piece += std::pow(static_cast<double>(p[i]) - static_cast<double>(t[i]), 2);
    total += piece;
  }
  return total / static_cast<double>(p.size());
}
inline std::vector<double> squared_error_gradient_cpu(const std::vector<float>& p,
                                                      const std::vector<float>& t, size_t n) {
  std::vector<double> grad(p.size());
  for (size_t i = 0; i < grad.size(); ++i)
    grad[i] = 2 * (static_cast<double>(p[i]) - static_cast<double>(t[i])) / static_cast<double>(n);
  return grad;
}

// The difference, the scale (n's conversion and the quotient) and the product round once each.
inline double squared_error_gradient_bound(double grad) {
  return gamma(4) * std::fabs(grad) + kTiny;
}

// Blocks for so many threads. It follows from n alone, and with it the order of all additions.
inline unsigned squared_error_blocks(size_t threads) {
  return static_cast<unsigned>(
      std::clamp(gpu::ceil_div(threads, kBlock), size_t{1}, size_t{kMaxBlocks}));
}
inline unsigned scalar_blocks(size_t n) {
  return squared_error_blocks(gpu::ceil_div(n, kElements));
}

inline float gradient_scale(size_t n) { return 2.0f / static_cast<float>(n); }

// partials[b] = sum of (p[i] - t[i])^2 over block b's share    p, t (n), partials (gridDim.x).
// Fixes : a CPU core takes the elements one after the other.
// Idea  : the reduction of 1.3 with another product; the grid follows from n alone.
// Thread: thread k of T sums over i = k, k + T, ...; thread 0 of a block stores the block's sum.
// Costs : 8 n bytes of global memory; log2(kBlock) + 1 barriers.
static __global__ void squared_error_sum(float* partials, const float* p, const float* t,
                                         size_t n) {
  const size_t threads = size_t{gridDim.x} * kBlock;
  float sum = 0;
  for (size_t i = size_t{blockIdx.x} * kBlock + threadIdx.x; i < n; i += threads) {
    const float difference = p[i] - t[i];
    sum += difference * difference;
  }
  sum = dot::block_sum_tree(sum);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

// grad[i] = scale (p[i] - t[i])    grad, p, t (n).
// Fixes : training needs the slope, not the loss.
// Idea  : one element per thread, as in 1.1.
// Thread: thread k of T owns grad[k], grad[k + T], ...
// Costs : 12 n bytes of global memory.
static __global__ void squared_error_gradient(float* grad, const float* p, const float* t, size_t n,
                                              float scale) {
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads)
    grad[i] = scale * (p[i] - t[i]);
}

// *loss = the mean alone, for a batch that is not trained on.
inline void launch_squared_error_loss(float* loss, const float* p, const float* t, size_t n,
                                      const Workspace& workspace, hipStream_t stream = nullptr) {
  const unsigned blocks = scalar_blocks(n);
  LAUNCH_ON(stream, squared_error_sum, blocks, kBlock, 0, workspace.partials, p, t, n);
  launch_mean(loss, workspace.partials, blocks, {n}, workspace.partials + kMaxBlocks, stream);
}

inline void launch_squared_error_separate(float* loss, float* grad, const float* p, const float* t,
                                          size_t n, const Workspace& workspace,
                                          hipStream_t stream = nullptr) {
  launch_squared_error_loss(loss, p, t, n, workspace, stream);
  if (n > 0)
    LAUNCH_ON(stream, squared_error_gradient, vector_add::full_grid(n), kBlock, 0, grad, p, t, n,
              gradient_scale(n));
}

// Adds (p - t)^2 to sum and returns the gradient's element.
__device__ inline float squared_error(float p, float t, float scale, float& sum) {
  // exercise: both from one difference (about 3 lines)
  const float difference = p - t;
  sum += difference * difference;
  return scale * difference;
  // end exercise
}

// grad[i] = scale (p[i] - t[i]), partials[b] = block b's sum of (p[i] - t[i])^2
// grad, p, t (n), partials (gridDim.x). grad may be p or t.
// Fixes : the gradient reads p and t a second time.
// Idea  : loss and gradient need the same difference: one pass computes both.
// Thread: thread k of T owns the elements k, k + T, ...; thread 0 of a block stores its sum.
// Costs : 12 n bytes of global memory; log2(kBlock) + 1 barriers.
static __global__ void squared_error_fused(float* partials, float* grad, const float* p,
                                           const float* t, size_t n, float scale) {
  const size_t threads = size_t{gridDim.x} * kBlock;
  float sum = 0;
  for (size_t i = size_t{blockIdx.x} * kBlock + threadIdx.x; i < n; i += threads)
    grad[i] = squared_error(p[i], t[i], scale, sum);
  sum = dot::block_sum_tree(sum);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

inline void launch_squared_error_fused(float* loss, float* grad, const float* p, const float* t,
                                       size_t n, const Workspace& workspace,
                                       hipStream_t stream = nullptr) {
  const unsigned blocks = scalar_blocks(n);
  LAUNCH_ON(stream, squared_error_fused, blocks, kBlock, 0, workspace.partials, grad, p, t, n,
            gradient_scale(n));
  launch_mean(loss, workspace.partials, blocks, {n}, workspace.partials + kMaxBlocks, stream);
}

__device__ inline float4 squared_error(float4 p, float4 t, float scale, float4& sum) {
  return make_float4(squared_error(p.x, t.x, scale, sum.x), squared_error(p.y, t.y, scale, sum.y),
                     squared_error(p.z, t.z, scale, sum.z), squared_error(p.w, t.w, scale, sum.w));
}

// grad[i] = scale (p[i] - t[i]), partials[b] = block b's sum of (p[i] - t[i])^2
// grad, p, t (n), any alignment, partials (gridDim.x). grad may be p or t.
// Fixes : fused asks for 4 bytes at a time, from addresses all over the arrays.
// Idea  : a block takes tiles of kBlock * kVectors float4s; all of a tile is on its way at once.
// Thread: t owns the float4s t, t + kBlock, ... of each tile; of head and tail t, t + T, ...
// Costs : 12 n bytes of global memory; log2(kBlock) + 1 barriers; 32 kVectors bytes on their way.
static __global__ void squared_error_vectorized(float* partials, float* grad, const float* p,
                                                const float* t, Split split, float scale) {
  constexpr size_t kTile = size_t{kBlock} * kVectors;
  const float4* p4 = reinterpret_cast<const float4*>(p + split.head);
  const float4* t4 = reinterpret_cast<const float4*>(t + split.head);
  float4* grad4 = reinterpret_cast<float4*>(grad + split.head);
  float4 sum = make_float4(0, 0, 0, 0);
  for (size_t tile = blockIdx.x * kTile; tile < split.vectors; tile += gridDim.x * kTile) {
    size_t v = tile + threadIdx.x;
    if (tile + kTile <= split.vectors) {
      float4 held_p[kVectors], held_t[kVectors];
      for (size_t k = 0; k < kVectors; ++k) {
        held_p[k] = p4[v + k * kBlock];
        held_t[k] = t4[v + k * kBlock];
      }
      for (size_t k = 0; k < kVectors; ++k)
        grad4[v + k * kBlock] = squared_error(held_p[k], held_t[k], scale, sum);
    } else {  // the last tile
      for (; v < split.vectors; v += kBlock) grad4[v] = squared_error(p4[v], t4[v], scale, sum);
    }
  }
  const size_t threads = size_t{gridDim.x} * kBlock;
  for (size_t s = size_t{blockIdx.x} * kBlock + threadIdx.x; s < split.head + split.tail;
       s += threads) {
    const size_t i = s < split.head ? s : s + 4 * split.vectors;
    grad[i] = squared_error(p[i], t[i], scale, sum.x);
  }
  const float total = dot::block_sum_tree((sum.x + sum.y) + (sum.z + sum.w));
  if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

inline unsigned vector_blocks(const Split& split) {
  return squared_error_blocks(
      std::max(gpu::ceil_div(split.vectors, kVectors), split.head + split.tail));
}

inline void launch_squared_error_vectorized(float* loss, float* grad, const float* p,
                                            const float* t, size_t n, const Workspace& workspace,
                                            hipStream_t stream = nullptr) {
  const Split split = split_vectors(n, {grad, p, t});
  const unsigned blocks = vector_blocks(split);
  LAUNCH_ON(stream, squared_error_vectorized, blocks, kBlock, 0, workspace.partials, grad, p, t,
            split, gradient_scale(n));
  launch_mean(loss, workspace.partials, blocks, {n}, workspace.partials + kMaxBlocks, stream);
}

// What the mean may be off: the difference counts twice in its square, which rounds once more.
inline double squared_error_bound(double want, double additions_of_thread, unsigned blocks) {
  return gamma(3 + additions_of_thread + std::log2(kBlock) + mean_roundings(blocks)) * want + kTiny;
}
inline double squared_error_scalar_bound(double want, const Split& split) {
  const size_t n = split.head + 4 * split.vectors + split.tail;
  const unsigned blocks = scalar_blocks(n);
  return squared_error_bound(want, static_cast<double>(gpu::ceil_div(n, size_t{blocks} * kBlock)),
                             blocks);
}
inline double squared_error_vectorized_bound(double want, const Split& split) {
  const unsigned blocks = vector_blocks(split);
  const size_t threads = size_t{blocks} * kBlock, singles = split.head + split.tail;
  const size_t tiles = gpu::ceil_div(split.vectors, threads * kVectors);
  return squared_error_bound(
      want, static_cast<double>(kVectors * tiles + gpu::ceil_div(singles, threads) + 2), blocks);
}

struct SquaredErrorLaunch {
  // *loss = the mean, grad (n) = its gradient, which may be p or t (not in `separate`).
  void (*run)(float* loss, float* grad, const float* p, const float* t, size_t n,
              const Workspace& workspace, hipStream_t stream);
  double (*bound)(double loss, const Split& split);  // of *loss; split of grad, p and t
};

inline constexpr Version<SquaredErrorLaunch> kSquaredErrorVersions[] = {
    {"mse_separate",
     {launch_squared_error_separate, squared_error_scalar_bound},
     "the loss in one pass, its gradient in another"},
    {"mse_fused",
     {launch_squared_error_fused, squared_error_scalar_bound},
     "one pass for both: they need the same difference"},
    {"mse_vectorized",
     {launch_squared_error_vectorized, squared_error_vectorized_bound},
     "16 bytes per load, a tile of them on its way"},
};

// ---- Labels -----------------------------------------------------------------------------------
// A label is data, and data can be wrong. A kernel can't throw: it reads nothing at a label outside
// [0, classes), makes that row's loss NaN and its gradient 0, and leaves the smallest such row in a
// word that the host looks at when it reads the loss, so that no training step waits for it.

inline constexpr long long kIgnoreNothing = std::numeric_limits<long long>::min();  // no int
inline constexpr unsigned long long kNoBadLabel = ~0ull;  // every byte 0xFF

inline constexpr int kIgnored = -1, kBadLabel = -2;  // in place of a class

// What each of `rows` rows should be.
struct Targets {
  const int* labels;  // (rows) on the device, each in [0, classes) or ignore_index
  size_t rows, classes;
  long long ignore_index = kIgnoreNothing;  // such rows get gradient 0 and are not counted

  bool ignores() const { return ignore_index != kIgnoreNothing; }
  // The row's class, or kIgnored, or kBadLabel.
  __device__ int label(size_t row) const {
    const int label = labels[row];
    if (label == ignore_index) return kIgnored;
    return label >= 0 && static_cast<size_t>(label) < classes ? label : kBadLabel;
  }
};

// *counted += how many labels are not ignored    labels (rows).
// Fixes : every gradient is divided by the number of rows that count: it must be known before.
// Idea  : integers add up alike in every order, so that atomics may add them.
// Thread: t counts the rows t, t + T, ...
// Costs : 4 rows bytes of global memory; an atomic per thread.
static __global__ void count_labels(unsigned* counted, Targets targets) {
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  unsigned count = 0;
  for (size_t row = size_t{blockIdx.x} * blockDim.x + threadIdx.x; row < targets.rows;
       row += threads)
    if (targets.label(row) != kIgnored) ++count;
  if (count > 0) atomicAdd(counted, count);
}

// Throws where the sizes are wrong. Counts the rows where some may be ignored; else rows is known.
inline Count count_rows(const Targets& targets, const Workspace& workspace, hipStream_t stream) {
  if (targets.rows > 0 && targets.classes == 0)
    throw std::invalid_argument("cross-entropy needs at least one class");
  if (targets.rows > workspace.rows)
    throw std::invalid_argument("a batch of " + std::to_string(targets.rows) +
                                " rows for a workspace of " + std::to_string(workspace.rows));
  if (targets.rows > std::numeric_limits<unsigned>::max())
    throw std::invalid_argument("cross-entropy takes fewer than 2^32 rows");
  if (!targets.ignores() || targets.rows == 0) return {targets.rows};
  HIP_CHECK(hipMemsetAsync(workspace.counted, 0, sizeof(unsigned), stream));
  LAUNCH_ON(stream, count_labels, vector_add::grid_stride_blocks(targets.rows), kBlock, 0,
            workspace.counted, targets);
  return {targets.rows, workspace.counted};
}

// Leaves the loss of one row, and its label where that is bad: one thread per row calls it.
__device__ inline void leave_row_loss(const Workspace& workspace, const Targets& targets,
                                      size_t row, int label, float loss) {
  workspace.row_losses[row] = label >= 0 ? loss : label == kIgnored ? 0.0f : NAN;
  if (label == kBadLabel)  // the row in the upper half: the smallest word is the first row's
    atomicMin(workspace.bad_label, static_cast<unsigned long long>(row) << 32 |
                                       static_cast<unsigned>(targets.labels[row]));
}

// Throws std::out_of_range for what leave_row_loss has left: "row 17: label 12 is not in [0, 10)".
inline void check_labels(unsigned long long bad_label, size_t classes) {
  if (bad_label == kNoBadLabel) return;
  throw std::out_of_range("row " + std::to_string(bad_label >> 32) + ": label " +
                          std::to_string(static_cast<int>(static_cast<unsigned>(bad_label))) +
                          " is not in [0, " + std::to_string(classes) + ")");
}

// Owns a Workspace for batches of up to `rows` rows.
class Buffers {
 public:
  explicit Buffers(size_t rows)
      : row_losses_(rows), partials_(2 * kMaxBlocks), wholes_(rows), counted_(1), bad_label_(1) {
    bad_label_.poison();
  }
  Workspace workspace() {
    return {row_losses_.size(), row_losses_.data(), wholes_.data(),
            partials_.data(),   counted_.data(),    bad_label_.data()};
  }
  // The loss of each row of the last batch. Waits for the default stream.
  std::vector<float> row_losses() const { return row_losses_.to_host(); }
  // Call it where the loss is read. Waits for the default stream; throws std::out_of_range for the
  // first bad label of any batch since the last call.
  void check_labels(size_t classes) {
    const unsigned long long bad_label = bad_label_.to_host()[0];
    bad_label_.poison();
    losses::check_labels(bad_label, classes);
  }

 private:
  DeviceBuffer<float> row_losses_, partials_;
  DeviceBuffer<MaxSum> wholes_;
  DeviceBuffer<unsigned> counted_;
  DeviceBuffer<unsigned long long> bad_label_;
};

// ---- Cross-entropy: reference and bounds ------------------------------------------------------

// Rows on the host. `count` is what the mean divides by: of a sample, that of the whole batch.
struct HostRows {
  size_t classes = 0;
  std::vector<float> logits;  // (labels.size(), classes)
  std::vector<int> labels;
  double count = 0;
  long long ignore_index = kIgnoreNothing;

  // The row's class, or kIgnored, or kBadLabel.
  int label(size_t row) const {
    if (labels[row] == ignore_index) return kIgnored;
    return labels[row] >= 0 && static_cast<size_t>(labels[row]) < classes ? labels[row] : kBadLabel;
  }
};

struct CrossEntropy {
  std::vector<double> row_losses, grad;
};

// Each row's loss and gradient in double. The gradient of a row whose label is ignored or bad is 0,
// its loss 0 or NaN.
inline CrossEntropy cross_entropy_cpu(const HostRows& rows) {
  CrossEntropy result;
  result.grad = softmax::softmax_cpu(rows.logits, rows.classes);
  for (size_t row = 0; row < rows.labels.size(); ++row) {
    const float* x = rows.logits.data() + row * rows.classes;
    double* grad = result.grad.data() + row * rows.classes;
    const int label = rows.label(row);
    if (label < 0) {
      std::fill(grad, grad + rows.classes, 0.0);
      result.row_losses.push_back(label == kIgnored ? 0 : std::numeric_limits<double>::quiet_NaN());
      continue;
    }
    double max = -std::numeric_limits<double>::infinity(), sum = 0;
    for (size_t c = 0; c < rows.classes; ++c) max = std::fmax(max, static_cast<double>(x[c]));
    for (size_t c = 0; c < rows.classes; ++c) sum += std::exp(static_cast<double>(x[c]) - max);
    result.row_losses.push_back(std::log(sum) + (max - static_cast<double>(x[label])));
    grad[label] -= 1;
    for (size_t c = 0; c < rows.classes; ++c) grad[c] /= rows.count;
  }
  return result;
}

// What the float results may be off, to first order in u. softmax::bounds derives the probability's
// bound; subtracting 1, the count's conversion, its reciprocal and the product round once each.
// A row's loss is log(sum) + (max - x[label]), with both terms at least 0. The sum's relative error
// is its logarithm's absolute one, and part of the largest probability's; 4 u from logf (2 ulp), 1
// u from the difference and 1 u from the last sum, each of a number that is no larger than the
// loss. From a probability the loss is -log(p), and p's own relative error is the logarithm's.
inline CrossEntropy cross_entropy_bounds(const HostRows& rows, const CrossEntropy& want,
                                         Roundings roundings, bool from_probabilities) {
  const size_t classes = rows.classes;
  const std::vector<double> p = softmax::softmax_cpu(rows.logits, classes);
  const std::vector<double> of_p = softmax::bounds(rows.logits, p, classes, roundings);
  CrossEntropy bounds{{}, std::vector<double>(p.size())};  // 0 where no row counts
  for (size_t row = 0; row < rows.labels.size(); ++row) {
    const int label = rows.label(row);
    if (label < 0) {
      bounds.row_losses.push_back(0);
      continue;
    }
    const size_t begin = row * classes;
    size_t largest = begin;
    for (size_t i = begin; i < begin + classes; ++i) {
      const double grad = std::fabs(want.grad[i]);
      bounds.grad[i] = of_p[i] / rows.count + gamma(4) * grad + (grad == 0 ? 0 : kTiny);
      if (p[i] > p[largest]) largest = i;
    }
    const size_t logarithm_of = from_probabilities ? begin + static_cast<size_t>(label) : largest;
    bounds.row_losses.push_back(of_p[logarithm_of] / p[logarithm_of] +
                                6 * kFloatRoundoff * want.row_losses[row] + kTiny);
  }
  return bounds;
}

// What the mean of row_losses, all of them at least nearly 0, may be off.
inline double mean_bound(const std::vector<float>& row_losses, double count) {
  double sum = 0;
  for (const float loss : row_losses) sum += std::fabs(static_cast<double>(loss));
  return gamma(mean_roundings(row_losses.size())) * sum / count + kTiny;
}

// ---- Cross-entropy: what is stored ------------------------------------------------------------

// Outputs for the kernels of softmax.h: what becomes of a row's probabilities.
struct Gradient {
  Targets targets;
  Count count;

  struct Row {
    int label;
    float weight;  // 1 / count, or 0: this row has no gradient
    template <class Index>
    __device__ float operator()(Index column, float probability) const {
      // exercise: the gradient of one logit; 0 times a NaN would not be 0 (about 2 lines)
      const float one_hot = column == static_cast<Index>(label) ? 1.0f : 0.0f;
      return weight == 0 ? 0.0f : weight * (probability - one_hot);
      // end exercise
    }
  };
  __device__ Row row(size_t r) const {
    const int label = targets.label(r);
    return {label, label >= 0 ? 1.0f / count.value() : 0.0f};
  }
};

struct LossAndGradient {
  Gradient gradient;
  const float* logits;
  Workspace workspace;

  struct Row : Gradient::Row {
    const LossAndGradient* output;
    size_t row;
    float logit;  // of the label
    // log(sum of exp(x)) - x[label] with x relative to the row's maximum: neither term is negative,
    // and nothing overflows.
    __device__ void finish(MaxSum whole) const {
      leave_row_loss(output->workspace, output->gradient.targets, row, this->label,
                     logf(whole.sum) + (whole.max - logit));
    }
  };
  // Reads the label's logit here, before any gradient is stored: grad may be logits.
  __device__ Row row(size_t r) const {
    const Gradient::Row gradient_row = gradient.row(r);
    const int label = gradient_row.label;
    const float logit =
        label < 0 ? 0.0f : logits[r * gradient.targets.classes + static_cast<size_t>(label)];
    return {gradient_row, this, r, logit};
  }
};

// ---- Cross-entropy from probabilities ---------------------------------------------------------

// row_losses[r] = -log(p[r, label[r]])    p (rows, classes); +infinity where p is 0.
// Fixes : a CPU core takes the rows one after the other.
// Idea  : of each row only one probability counts.
// Thread: t owns the rows t, t + T, ...
// Costs : 4 bytes of a row, but the memory sends 32; a p below 1e-38 has lost its digits, and 0
//         has no logarithm: logits say more.
static __global__ void cross_entropy_of_probabilities(Workspace workspace, const float* p,
                                                      Targets targets) {
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t row = size_t{blockIdx.x} * blockDim.x + threadIdx.x; row < targets.rows;
       row += threads) {
    const int label = targets.label(row);
    // 0 - x rather than -x: a difference of NaN is NVIDIA's own NaN, but its negative would look
    // like memory that nobody has written.
    const float loss =
        label < 0 ? 0.0f : 0.0f - logf(p[row * targets.classes + static_cast<size_t>(label)]);
    leave_row_loss(workspace, targets, row, label, loss);
  }
}

// Where the gradient's probabilities come from: they are stored already.
struct StoredProbabilities {
  const float* p;
  struct Row {
    const float* p;
    __device__ float operator()(size_t column) const { return p[column]; }
  };
  __device__ Row row(size_t r, size_t classes) const { return {p + r * classes}; }
};

// grad[r,c] = (probability[r,c] - 1[c == label[r]]) / count    grad (rows, classes).
// Fixes : training needs the slope, not the loss.
// Idea  : the slope of log-softmax is the probability, less 1 at the label.
// Thread: t of a block owns the columns t, t + kBlock, ... of the rows blockIdx.x, ...
// Costs : 8 rows classes bytes of global memory.
template <class Source>
static __global__ void cross_entropy_gradient(float* grad, Source source, Gradient output) {
  const size_t classes = output.targets.classes;
  for (size_t row = blockIdx.x; row < output.targets.rows; row += gridDim.x) {
    const auto probabilities = source.row(row, classes);
    const Gradient::Row output_row = output.row(row);
    for (size_t c = threadIdx.x; c < classes; c += kBlock)
      grad[row * classes + c] = output_row(c, probabilities(c));
  }
}

template <class Source>
inline void launch_gradient(float* grad, Source source, const Gradient& output,
                            hipStream_t stream) {
  LAUNCH_ON(stream, (cross_entropy_gradient<Source>),
            softmax::row_blocks(output.targets.rows, 1, kBlock), kBlock, 0, grad, source, output);
}

// *loss = the mean from probabilities p (rows, classes), and nothing else.
inline void launch_loss_of_probabilities(float* loss, const float* p, const Targets& targets,
                                         const Workspace& workspace, hipStream_t stream = nullptr) {
  const Count count = count_rows(targets, workspace, stream);
  if (targets.rows > 0)
    LAUNCH_ON(stream, cross_entropy_of_probabilities, vector_add::full_grid(targets.rows), kBlock,
              0, workspace, p, targets);
  launch_mean(loss, workspace.row_losses, targets.rows, count, workspace.partials, stream);
}

inline void launch_from_probabilities(float* loss, float* grad, const float* logits,
                                      const Targets& targets, const Workspace& workspace,
                                      hipStream_t stream = nullptr) {
  softmax::best(grad, logits, targets.rows, targets.classes, stream);
  launch_loss_of_probabilities(loss, grad, targets, workspace, stream);
  if (targets.rows == 0) return;
  const Count count{targets.rows, targets.ignores() ? workspace.counted : nullptr};
  launch_gradient(grad, StoredProbabilities{grad}, Gradient{targets, count}, stream);
}

// ---- Cross-entropy from logits ----------------------------------------------------------------

// row_losses[r] = log(sum of exp(x[r])) - x[r, label[r]], wholes[r] = the row's maximum and sum
// x (rows, classes).
// Fixes : the probabilities are written only to be read again, and lose the small ones.
// Idea  : the logarithm of softmax needs no probability: maximum and sum of the row, in one pass.
// Thread: t of a block owns the columns t, t + kBlock, ... of the rows blockIdx.x, ...
// Costs : 4 rows classes bytes of global memory; 2 barriers per row.
static __global__ void cross_entropy_of_logits(const float* x, LossAndGradient output) {
  const size_t rows = output.gradient.targets.rows, classes = output.gradient.targets.classes;
  for (size_t r = blockIdx.x; r < rows; r += gridDim.x) {
    const LossAndGradient::Row output_row = output.row(r);
    MaxSum part = softmax::nothing();
    // exercise: merge this thread's columns into part, one at a time (about 2 lines)
    for (size_t c = threadIdx.x; c < classes; c += kBlock)
      part = softmax::merge(part, {x[r * classes + c], 1.0f});
    // end exercise
    const MaxSum whole = softmax::block_merge(part);
    if (threadIdx.x == 0) {
      output_row.finish(whole);
      output.workspace.wholes[r] = whole;
    }
  }
}

// Where the gradient's probabilities come from: the logits are read again.
struct Logits {
  const float* x;
  const MaxSum* wholes;
  struct Row {
    const float* x;
    float max, scale;
    __device__ float operator()(size_t column) const {
      return scale * softmax::exponential(x[column] - max);
    }
  };
  __device__ Row row(size_t r, size_t classes) const {
    return {x + r * classes, wholes[r].max, 1.0f / wholes[r].sum};
  }
};

// *loss = the mean alone, for a batch that is not trained on.
inline Count launch_loss_of_logits(float* loss, const float* logits, const Targets& targets,
                                   const Workspace& workspace, hipStream_t stream = nullptr) {
  const Count count = count_rows(targets, workspace, stream);
  if (targets.rows > 0)
    LAUNCH_ON(stream, cross_entropy_of_logits, softmax::row_blocks(targets.rows, 1, kBlock), kBlock,
              0, logits, (LossAndGradient{{targets, count}, logits, workspace}));
  launch_mean(loss, workspace.row_losses, targets.rows, count, workspace.partials, stream);
  return count;
}

inline void launch_from_logits(float* loss, float* grad, const float* logits,
                               const Targets& targets, const Workspace& workspace,
                               hipStream_t stream = nullptr) {
  const Count count = launch_loss_of_logits(loss, logits, targets, workspace, stream);
  if (targets.rows > 0)
    launch_gradient(grad, Logits{logits, workspace.wholes}, Gradient{targets, count}, stream);
}

// ---- Loss and gradient in one kernel ----------------------------------------------------------
// The softmax kernels of 3.2, which hand every probability to LossAndGradient instead of storing
// it: the logits are read once (online: twice, the second time from the cache where they are still
// there), the gradient is written once, and the row's thread 0 leaves its loss.

template <class LaunchRows>
inline void launch_fused(float* loss, const float* logits, const Targets& targets,
                         const Workspace& workspace, hipStream_t stream, LaunchRows launch_rows) {
  const Count count = count_rows(targets, workspace, stream);
  if (targets.rows > 0) launch_rows(LossAndGradient{{targets, count}, logits, workspace});
  launch_mean(loss, workspace.row_losses, targets.rows, count, workspace.partials, stream);
}

inline void launch_fused_online(float* loss, float* grad, const float* logits,
                                const Targets& targets, const Workspace& workspace,
                                hipStream_t stream = nullptr) {
  launch_fused(loss, logits, targets, workspace, stream, [&](const LossAndGradient& output) {
    softmax::launch_online(grad, logits, targets.rows, targets.classes, output, stream);
  });
}

inline void launch_fused_registers(float* loss, float* grad, const float* logits,
                                   const Targets& targets, const Workspace& workspace,
                                   hipStream_t stream = nullptr) {
  launch_fused(loss, logits, targets, workspace, stream, [&](const LossAndGradient& output) {
    if (!softmax::launch_row_in_registers(grad, logits, targets.rows, targets.classes, output,
                                          stream))
      softmax::launch_online(grad, logits, targets.rows, targets.classes, output, stream);
  });
}

inline void launch_fused_shared(float* loss, float* grad, const float* logits,
                                const Targets& targets, const Workspace& workspace,
                                hipStream_t stream = nullptr) {
  launch_fused(loss, logits, targets, workspace, stream, [&](const LossAndGradient& output) {
    if (!softmax::launch_row_in_shared(grad, logits, targets.rows, targets.classes, output, stream))
      softmax::launch_online(grad, logits, targets.rows, targets.classes, output, stream);
  });
}

// *loss and grad (rows, classes), which may be logits: the entry for later stages.
inline void cross_entropy(float* loss, float* grad, const float* logits, const Targets& targets,
                          const Workspace& workspace, hipStream_t stream = nullptr) {
  launch_fused(loss, logits, targets, workspace, stream, [&](const LossAndGradient& output) {
    softmax::launch_best(grad, logits, targets.rows, targets.classes, output, stream);
  });
}

// ---- The versions -----------------------------------------------------------------------------

// A block per row adds one element after the other, each of which may rescale the sum.
inline Roundings roundings_from_logits(size_t classes) {
  const double steps = static_cast<double>(gpu::ceil_div(classes, kBlock));
  return {softmax::additions(classes, kBlock), steps + 3};
}
// softmax::best is one of the versions of 3.2.
inline Roundings roundings_best(size_t classes) {
  const Roundings a = softmax::roundings_row_in_registers(classes);
  const Roundings b = softmax::roundings_row_in_shared(classes);
  return {std::fmax(a.additions, b.additions), std::fmax(a.exponentials, b.exponentials)};
}

struct Launch {
  // *loss = the mean, grad (rows, classes) = its gradient, which may be logits.
  void (*run)(float* loss, float* grad, const float* logits, const Targets& targets,
              const Workspace& workspace, hipStream_t stream);
  Roundings (*roundings)(size_t classes);
  bool from_probabilities;  // infinity where the label's probability is below float's range
};

inline constexpr Version<Launch> kVersions[] = {
    {"from_probabilities",
     {launch_from_probabilities, roundings_best, true},
     "softmax, loss and gradient in three kernels"},
    {"from_logits",
     {launch_from_logits, roundings_from_logits, false},
     "log-sum-exp: no probability is stored, and none underflows"},
    {"fused_online",
     {launch_fused_online, softmax::roundings_online, false},
     "loss and gradient in one kernel, which reads the row twice"},
    {"fused_registers",
     {launch_fused_registers, softmax::roundings_row_in_registers, false},
     "the row stays in registers: one read, one write"},
    {"fused_shared",
     {launch_fused_shared, softmax::roundings_row_in_shared, false},
     "part of a long row in shared memory"},
};

}  // namespace losses

// Compiled once, in losses_instances.hip, and not in every program that includes this file.
namespace softmax {

extern template void launch_online(float*, const float*, size_t, size_t, losses::LossAndGradient,
                                   hipStream_t);
extern template bool launch_row_in_registers(float*, const float*, size_t, size_t,
                                             losses::LossAndGradient, hipStream_t);
extern template bool launch_row_in_shared(float*, const float*, size_t, size_t,
                                          losses::LossAndGradient, hipStream_t);

}  // namespace softmax
