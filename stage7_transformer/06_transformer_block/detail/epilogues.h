// What the epilogues of several versions do to a sum while it is in a register. S: what the sums
// before GELU are kept as, float or bfloat16.
#pragma once

#include <cstddef>

#include "common/gpu.h"
#include "common/half.h"
#include "stage1_vector/04_activations/detail/formulas.h"

namespace transformer_block {

using activations::GeluTanh;  // GPT-2's

// sum + bias + what went round the box.
struct AddResidual {
  const float* bias;
  const float* residual;
  size_t cols;
  __device__ float operator()(float sum, size_t row, size_t col, const float*) const {
    return residual[row * cols + col] + (sum + bias[col]);
  }
};

// The gradient of GELU's argument from that of its result.
template <class S>
struct TimesSlope {
  const S* sums;
  size_t cols;
  __device__ float operator()(float sum, size_t row, size_t col, const float*) const {
    return sum * GeluTanh{}.derivative(gpu::to_float(sums[row * cols + col]));
  }
};

}  // namespace transformer_block
