// Mean and variance of a row from those of its parts.
#pragma once

#include "common/gpu.h"

namespace layernorm {

// What is known of a part of a row: how many elements, their mean, and the sum of the squares of
// their differences from it. The parts of all threads are together
//
//   mean = sum of count mean / n      squares = sum of (squares + count (mean of part - mean)^2)
//
// (Chan, Golub and LeVeque: Algorithms for computing the sample variance. The American Statistician
// 37, 1983, for two parts at a time; here all come together at once.)
struct RowMoments {
  float count, mean, squares;
};

// Welford's update, as versions/welford.hip has it.
__device__ inline void add_element(RowMoments& part, float x) {
  part.count += 1.0f;
  const float before = x - part.mean;
  part.mean += before / part.count;
  part.squares += before * (x - part.mean);
}

// The mean and the variance of a row of n elements, in every thread of the team.
template <class Team>
__device__ inline RowMoments merge_parts(RowMoments part, float n) {
  const float mean = Team::template sum<0>(part.count * part.mean) / n;
  const float apart = part.mean - mean;
  const float squares = Team::template sum<1>(part.squares + part.count * (apart * apart));
  return {n, mean, squares};
}

}  // namespace layernorm
