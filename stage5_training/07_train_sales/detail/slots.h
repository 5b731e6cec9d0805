// How the parameters lie in a block of fused and persistent. No kernel: plain C++ may include it.
//
// One thread is one hidden unit for one sample at a time: kHidden threads are a group, which takes
// a sample through the network and back without leaving the registers but for the sum over the
// units. kGroups groups are a block; it takes tiles of kTile samples.
//
// Parameters, gradients and their sums lie in slots, so that all threads of a group can read or
// write theirs at once: kRow is odd, and so no two of a wave meet in a bank of shared memory.
//
//   slot  0 ... 23   24   25 ... 48   49     ...   800 ... 831   832   833    834 835
//         unit 0     its  unit 1      its          units'        bias  (loss) 0   0
//         weights    bias weights     bias         output weight
#pragma once

#include <cstddef>

#include "common/gpu_runtime.h"
#include "stage5_training/07_train_sales/sales_training.h"

namespace train_sales {

inline constexpr unsigned kGroups = 8;   // groups of a block, one thread per hidden unit
inline constexpr unsigned kSamples = 4;  // that a group has in its registers at a time

inline constexpr unsigned kThreads = kGroups * kHidden;
inline constexpr unsigned kTile = kGroups * kSamples;
inline constexpr unsigned kRow = kFeatures + 1;
inline constexpr unsigned kOutWeights = kHidden * kRow, kOutBias = kOutWeights + kHidden;
inline constexpr unsigned kSlots = kOutBias + 4, kSlotParts = kSlots / 4;
static_assert(kRow % 2 == 1 && kSlots % 4 == 0, "banks, and slots in parts of 16 bytes");
static_assert(kSlotParts < kThreads && kTile * kParts <= kThreads, "a part per thread at most");

// Where the slots' parameters are in the arena of the model.
struct Places {
  size_t weights, biases, out_weights, out_bias;
};

// The place of a slot, or kNowhere where it holds no parameter.
inline constexpr size_t kNowhere = ~size_t{0};
__host__ __device__ inline size_t place(const Places& places, unsigned slot) {
  if (slot > kOutBias) return kNowhere;
  if (slot == kOutBias) return places.out_bias;
  if (slot >= kOutWeights) return places.out_weights + (slot - kOutWeights);
  const unsigned unit = slot / kRow, column = slot % kRow;
  return column < kFeatures ? places.weights + size_t{unit} * kFeatures + column
                            : places.biases + unit;
}

inline Places places_of(const Sequential& model) {
  const auto offset = [&](size_t tensor) {
    return static_cast<size_t>(model.tensors()[tensor].w - model.arena().w);
  };
  return {offset(0), offset(1), offset(2), offset(3)};
}

}  // namespace train_sales
