// What the rows of a batch should be, how many of them count, and the memory that the kernels leave
// their results in. Launches and kernels of later steps take these. No kernel stands here: plain
// C++ may include it.
//
// A label is data, and data can be wrong. A kernel can't throw. At a label outside [0, classes) it
// reads nothing, makes that row's loss NaN and its gradient 0, and leaves the first such row in
// Workspace::bad_label. The host looks there when it reads the loss, so no training step waits.
#pragma once

#include <cstddef>
#include <limits>

#include "common/gpu_runtime.h"
#include "stage3_ml_ops/03_losses/detail/grid.h"

namespace softmax {
struct MaxSum;  // two floats: a row's maximum and the sum of exp(x - maximum)
}

namespace losses {

inline constexpr long long kIgnoreNothing = std::numeric_limits<long long>::min();  // no int
inline constexpr unsigned long long kNoBadLabel = ~0ull;  // every byte 0xFF

inline constexpr int kIgnored = -1, kBadLabel = -2;  // in place of a class

// `label` as a class, or kIgnored, or kBadLabel.
__host__ __device__ inline int class_of(int label, size_t classes, long long ignore_index) {
  if (label == ignore_index) return kIgnored;
  return label >= 0 && static_cast<size_t>(label) < classes ? label : kBadLabel;
}

// What each of `rows` rows should be.
struct Targets {
  const int* labels;  // (rows) on the device, each in [0, classes) or ignore_index
  size_t rows, classes;
  long long ignore_index = kIgnoreNothing;  // such rows get gradient 0 and are not counted

  bool ignores() const { return ignore_index != kIgnoreNothing; }
  // The row's class, or kIgnored, or kBadLabel.
  __host__ __device__ int label(size_t row) const {
    return class_of(labels[row], classes, ignore_index);
  }
};

// What a sum is divided by: n, or a number that an earlier kernel has left on the device.
struct Count {
  size_t n;
  const unsigned* counted = nullptr;
  __host__ __device__ float value() const {
    return static_cast<float>(counted != nullptr ? *counted : n);
  }
};

// Device memory for what the kernels leave behind. No other stream uses it at the same time.
// losses::Buffers owns one.
struct Workspace {
  size_t rows;        // the largest batch of a cross-entropy
  float* row_losses;  // (rows) the loss of each row; 0 where it is ignored, NaN for a bad label
  softmax::MaxSum* wholes;  // (rows) of the version that needs them: a row's maximum and its sum
  float* partials;          // (2 kMaxBlocks at most) one sum per block, behind them sums of those
  unsigned* counted;        // (1) how many rows are not ignored
  // (1) the first row with a bad label in the upper half, its label in the lower; kNoBadLabel
  // before the first launch
  unsigned long long* bad_label;
};

// Throws std::invalid_argument where there are rows without classes, more rows than the workspace
// is for, or 2^32 and more.
void check(const Targets& targets, const Workspace& workspace);

// What the batch's mean is divided by. Counts the rows on the device where some may be ignored;
// otherwise it is targets.rows. Throws what check() throws.
Count count_rows(const Targets& targets, const Workspace& workspace, hipStream_t stream);

}  // namespace losses
