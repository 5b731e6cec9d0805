// The reference of 3.1. One IEEE addition rounds alike everywhere, so the reference takes the
// rounded sum too: activations::forward_cpu and backward_cpu of these sums, with the bounds of
// step 1.4, are what the kernels are held against.
#pragma once

#include <cstddef>
#include <vector>

#include "stage1_vector/04_activations/reference.h"

namespace matrix_activations {

// x[r,c] + bias[c] in float, for x (rows, cols) and bias (cols).
inline std::vector<float> biased_cpu(const std::vector<float>& x, const std::vector<float>& bias) {
  std::vector<float> sums(x.size());
  for (size_t i = 0; i < sums.size(); ++i) sums[i] = x[i] + bias[i % bias.size()];
  return sums;
}

}  // namespace matrix_activations
