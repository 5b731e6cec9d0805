// The gradients of several layers' weights and biases in one launch: versions/grouped.hip has it.
#pragma once

#include <cstddef>
#include <vector>

#include "common/gpu_runtime.h"

namespace transformer_block {

// A layer's weights and bias: w (out, in) = grad_y^T x, bias (out) = the sum of grad_y's rows, for
// grad_y (rows, out) and x (rows, in).
struct WeightTask {
  const float* grad_y;
  const float* x;
  size_t out, in;
  float* w;
  float* bias;  // nullptr: there is none
};

inline constexpr unsigned kMostTasks = 4;

// How many floats of sums the launches of these tasks need. Throws std::invalid_argument unless
// there are 1 to kMostTasks.
size_t sums_of(const std::vector<WeightTask>& tasks, size_t rows);

// The gradients of up to kMostTasks layers, of which the grad_y and x have `rows` rows each. `sums`
// has room for sums_of(tasks, rows) floats. The same bits on every run of one device.
void weight_gradients(const std::vector<WeightTask>& tasks, size_t rows, float* sums,
                      hipStream_t stream = nullptr);

}  // namespace transformer_block
