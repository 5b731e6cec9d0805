// A sum over a team of step 3.2, and from which length on a block is the team.
#pragma once

#include <cstddef>

#include "common/gpu.h"
#include "stage3_ml_ops/02_softmax/detail/team.h"

namespace activation_backward {

// The sum of `value` over the team, in every thread: parts of step 3.2 that all have the maximum 0
// merge into their plain sum.
template <class Team>
__device__ inline float team_sum(float value) {
  return Team::merge({0.0f, value}).sum;
}

}  // namespace activation_backward
