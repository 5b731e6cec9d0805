// The network's parameters and the gradients that an image leaves, for kernels written for this
// network. Host and device.
#pragma once

#include "common/gpu_runtime.h"
#include "stage5_training/04_optimizers/optimizers.h"
#include "stage6_cnn/04_train_cnn/train_cnn.h"

namespace train_cnn {

inline constexpr unsigned kTaps = 3 * 3;  // of a filter
inline constexpr unsigned kFilters1 = kTaps * kChannels1, kFilters2 = kFilters1 * kChannels2;
inline constexpr unsigned kMostHidden = 256;  // units of per_image, in shared memory
static_assert(kFeatures == 784);

// The gradients that an image leaves, one behind the other: those of w1, b1, w2, b2, b3, w4, b4.
struct Row {
  unsigned hidden;
  static constexpr unsigned b1 = kFilters1, w2 = b1 + kChannels1, b2 = w2 + kFilters2;
  static constexpr unsigned b3 = b2 + kChannels2;
  __host__ __device__ unsigned w4() const { return b3 + hidden; }
  __host__ __device__ unsigned b4() const { return w4() + hidden * kClasses; }
  __host__ __device__ unsigned end() const { return b4() + kClasses; }
};

// Where the parameters and their states are.
struct Weights {
  optimizers::ParameterArena w1, b1, w2, b2, w3, b3, w4, b4;
  unsigned hidden;
};
Weights weights_of(const Training& t);

}  // namespace train_cnn
