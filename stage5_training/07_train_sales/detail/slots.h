// How the parameters lie in a block of fused and persistent.
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

#include "common/gpu.h"
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

// Part `part` of the slots, from and to an array of the arena.
__device__ inline float4 load_slots(const float* array, const Places& places, unsigned part) {
  float values[4];
  GPU_UNROLL
  for (unsigned i = 0; i < 4; ++i) {
    const size_t at = place(places, 4 * part + i);
    values[i] = at == kNowhere ? 0.0f : array[at];
  }
  return make_float4(values[0], values[1], values[2], values[3]);
}
__device__ inline void store_slots(float* array, const Places& places, unsigned part,
                                   float4 stored) {
  const float values[] = {stored.x, stored.y, stored.z, stored.w};
  GPU_UNROLL
  for (unsigned i = 0; i < 4; ++i) {
    const size_t at = place(places, 4 * part + i);
    if (at != kNowhere) array[at] = values[i];
  }
}

// The slots 4 t to 4 t + 3 of thread t: parameters and the optimizer's states, as far as the rule
// keeps them.
struct Owned {
  float4 w, m, v;
};

template <class Rule>
__device__ inline Owned load_owned(const ParameterArena& arena, const Places& places) {
  Owned own = {load_slots(arena.w, places, threadIdx.x), {}, {}};
  if constexpr (Rule::kStates >= 1) own.m = load_slots(arena.m, places, threadIdx.x);
  if constexpr (Rule::kStates >= 2) own.v = load_slots(arena.v, places, threadIdx.x);
  return own;
}

template <class Rule>
__device__ inline void store_owned(const ParameterArena& arena, const Places& places,
                                   const Owned& own) {
  store_slots(arena.w, places, threadIdx.x, own.w);
  if constexpr (Rule::kStates >= 1) store_slots(arena.m, places, threadIdx.x, own.m);
  if constexpr (Rule::kStates >= 2) store_slots(arena.v, places, threadIdx.x, own.v);
}

}  // namespace train_sales
