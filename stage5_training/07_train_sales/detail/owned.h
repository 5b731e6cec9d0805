// The slots of a thread of fused and persistent, from and to the arena of the model.
#pragma once

#include <cstddef>

#include "common/gpu.h"
#include "stage5_training/07_train_sales/detail/slots.h"

namespace train_sales {

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
