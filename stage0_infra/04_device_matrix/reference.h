// What a fill and a round trip must leave behind. Both are exact.
#pragma once

#include <vector>

#include "common/compare.h"

namespace device_matrix {

// Compares every element of `got` with value.
Comparison compare_fill(const std::vector<float>& got, float value);

// Compares every bit of `got` with `want`, element by element: a NaN must be the same NaN.
Comparison compare_bits(const std::vector<float>& got, const std::vector<float>& want);

}  // namespace device_matrix
