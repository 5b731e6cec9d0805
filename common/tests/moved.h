// Parameters after the first steps of a training, held against those of a reference in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "common/compare.h"

namespace tests {

// `want(k, i)` is element i of tensor k, which began as `start`. What rounds a gradient is small
// against the tensor's largest, about a hundred-thousandth; a hundred times as much is allowed, and
// what a tensor of hardly any gradient gets from the others' rounding. A factor that is missing, or
// a gradient, is off by far more.
template <class Want>
Comparison compare_moved(const std::vector<std::vector<float>>& got,
                         const std::vector<std::vector<float>>& start, Want want) {
  std::vector<double> way(start.size());  // of the tensor's farthest element
  for (std::size_t k = 0; k < start.size(); ++k)
    for (std::size_t i = 0; i < start[k].size(); ++i)
      way[k] = std::fmax(way[k], std::fabs(want(k, i) - static_cast<double>(start[k][i])));
  const double farthest = *std::max_element(way.begin(), way.end());
  std::vector<double> values, wanted, bounds;
  for (std::size_t k = 0; k < start.size(); ++k)
    for (std::size_t i = 0; i < start[k].size(); ++i) {
      values.push_back(static_cast<double>(got[k][i])), wanted.push_back(want(k, i));
      bounds.push_back(1e-3 * std::fmax(way[k], 1e-3 * farthest) +
                       4 * kFloatRoundoff * std::fabs(want(k, i)));
    }
  return compare(
      values.size(), [&](std::size_t i) { return values[i]; },
      [&](std::size_t i) { return wanted[i]; }, [&](std::size_t i) { return bounds[i]; });
}

}  // namespace tests
