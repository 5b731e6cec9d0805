// Whether NaN or an infinity has come into sums.
#pragma once

#include "common/gpu.h"

namespace attention {

// A mask hides a key from a query by a weight of 0, but 0 times NaN or an infinity is NaN. To leave
// such products out costs time in every tile with a hidden pair. So the kernels first multiply
// zeros, too, and ask once, at the end, whether their sums are finite:
//
// - If they are, no product was NaN. A sum that has become NaN stays NaN, whatever is added to it
//   or rescales it, and so does what is computed from it: a gradient of a score of NaN makes sums
//   NaN, even where it is multiplied by 0. What a mask replaces, scores and weights, is replaced
//   whatever it was, and brings NaN nowhere.
// - If they are not, all threads that share tiles begin again and are careful: they leave out
//   hidden pairs. What is not finite then comes from pairs that see each other.
//
// Being careful is a flag where that costs nothing. The gradients have little room for one: with a
// loop of its own for each of the two they take 2 to 5% less time at heads of 64.

// 0 if all values are finite, else NaN. Arrays may have any number of dimensions.
__device__ inline float zero_times(float value) { return 0 * value; }
template <class T, int kCount>
__device__ inline float zero_times(const T (&values)[kCount]) {
  float sum = 0;
  GPU_UNROLL
  for (int i = 0; i < kCount; ++i) sum += zero_times(values[i]);
  return sum;
}

template <class T, int kCount>
__device__ inline bool are_finite(const T (&values)[kCount]) {
  return zero_times(values) == 0;
}

// All values become 0.
__device__ inline void clear(float& value) { value = 0; }
template <class T, int kCount>
__device__ inline void clear(T (&values)[kCount]) {
  GPU_UNROLL
  for (int i = 0; i < kCount; ++i) clear(values[i]);
}

}  // namespace attention
