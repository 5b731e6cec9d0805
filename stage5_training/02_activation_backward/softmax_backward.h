// The second ladder of step 5.2: back through a softmax.
#pragma once

#include <cstddef>

#include "common/gpu_runtime.h"
#include "common/version.h"

namespace activation_backward {

// grad_x through P = softmax(X), given P. All (rows, cols).

// versions/softmax_jacobian.hip, softmax_sum_once.hip, softmax_in_registers.hip. The last is what
// later steps call; rows that no team can hold, or that are not aligned alike in the three
// matrices, it leaves to sum_once.
void launch_softmax_jacobian(float* grad_x, const float* grad_p, const float* p, size_t rows,
                             size_t cols, hipStream_t stream = nullptr);
void launch_softmax_sum_once(float* grad_x, const float* grad_p, const float* p, size_t rows,
                             size_t cols, hipStream_t stream = nullptr);
void softmax_backward(float* grad_x, const float* grad_p, const float* p, size_t rows, size_t cols,
                      hipStream_t stream = nullptr);

// Through how many additions a product goes at most on its way into its row's sum.
double roundings_softmax_jacobian(size_t cols);
double roundings_softmax_sum_once(size_t cols);
double roundings_softmax_backward(size_t cols);

struct SoftmaxLaunch {
  void (*run)(float* grad_x, const float* grad_p, const float* p, size_t rows, size_t cols,
              hipStream_t stream);
  double (*roundings)(size_t cols);
  bool in_place;  // grad_x may be grad_p or p
};

inline constexpr Version<SoftmaxLaunch> kSoftmaxVersions[] = {
    {"softmax_jacobian",
     {launch_softmax_jacobian, roundings_softmax_jacobian, false},
     "the chain rule as it is written: cols^2 products per row"},
    {"softmax_sum_once",
     {launch_softmax_sum_once, roundings_softmax_sum_once, true},
     "one sum per row is all there is in the Jacobian"},
    {"softmax_in_registers",
     {softmax_backward, roundings_softmax_backward, true},
     "both rows are read once, 16 bytes at a time"},
};

}  // namespace activation_backward
