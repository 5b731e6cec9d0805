// How operations on elements walk through their inputs, as plain C++: 8.6 has compilers write the
// same walk.
#pragma once

#include <cstdint>

#include "stage8_framework/02_backends/c_tensor.h"

namespace own {

using framework::kMaxRank;

// The axes of an output without gaps, and how each of kInputs inputs is walked along them: a stride
// of 0 where it is repeated. Neighbours along which all inputs go on are one axis.
template <int kInputs>
struct Axes {
  int rank = 0;
  std::int64_t extent[kMaxRank] = {}, stride[kInputs][kMaxRank] = {};

  Axes(const CourseTensor* inputs, const CourseTensor& out) {
    for (int axis = 0; axis < out.rank; ++axis) {
      if (out.extent[axis] == 1) continue;
      std::int64_t steps[kInputs];
      bool goes_on = rank > 0;
      for (int i = 0; i < kInputs; ++i) {
        const int own_axis = axis - (out.rank - inputs[i].rank);
        const bool repeats = own_axis < 0 || inputs[i].extent[own_axis] == 1;
        steps[i] = repeats ? 0 : inputs[i].stride[own_axis];
        goes_on = goes_on && stride[i][rank - 1] == out.extent[axis] * steps[i];
      }
      if (!goes_on) extent[rank++] = 1;
      extent[rank - 1] *= out.extent[axis];
      for (int i = 0; i < kInputs; ++i) stride[i][rank - 1] = steps[i];
    }
  }

  // Every input is one element, or lies as the output does.
  bool are_flat() const {
    if (rank > 1) return false;
    for (int i = 0; i < kInputs; ++i)
      if (stride[i][0] != 0 && stride[i][0] != 1) return false;
    return true;
  }
};

}  // namespace own
