// The references of 6.2 in double, and how far correct float gradients may be from them.
#pragma once

#include <cstddef>
#include <vector>

#include "stage6_cnn/01_conv2d/reference.h"
#include "stage6_cnn/02_conv2d_backward/conv2d_backward.h"

namespace conv2d_backward {

using conv2d::Terms;
using conv2d::Values;

// The bounds are those of a matrix product: gemm::bound, or gemm::bound_of_mean_zero where the
// signs of one factor are random (step 2.3).

// The planes [n, c] of the gradient of x, numbered n C + c.
Values grad_x_cpu(const std::vector<float>& grad_y, const std::vector<float>& w,
                  const Problem& problem, const std::vector<size_t>& planes,
                  Terms terms = Terms::any);

// The planes [k, c] of the gradient of w plus beta times what was there before, numbered k C + c.
Values grad_w_cpu(const std::vector<float>& grad_y, const std::vector<float>& x,
                  const Problem& problem, float beta, const std::vector<float>& before,
                  const std::vector<size_t>& planes, Terms terms = Terms::any);

// The gradient of the bias plus beta times what was there before.
Values grad_bias_cpu(const std::vector<float>& grad_y, const Problem& problem, float beta,
                     const std::vector<float>& before, Terms terms = Terms::any);

// What `winograd` may be off beyond that, for the planes that grad_x_cpu was asked for.
void add_winograd_error_of_x(Values& grad_x, const std::vector<float>& grad_y,
                             const std::vector<float>& w, const Problem& p,
                             const std::vector<size_t>& planes, Terms terms = Terms::any);

}  // namespace conv2d_backward
