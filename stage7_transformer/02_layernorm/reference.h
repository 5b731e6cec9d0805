// The reference of 7.2 in double, and how far a correct float result may be from it. Plain C++.
#pragma once

#include <cstddef>
#include <vector>

namespace layernorm {

// Results in double, and what a float version may be off: any of them, in any order of its sums.
struct Normalized {
  std::vector<double> y, mean, rstd;
  std::vector<double> bound_y, bound_mean, bound_rstd;
};

// The rows of x, each of `cols` elements. reference.cpp derives the bounds.
Normalized forward_cpu(const std::vector<float>& x, const std::vector<float>& gain,
                       const std::vector<float>& bias, std::size_t cols, float eps);

}  // namespace layernorm
