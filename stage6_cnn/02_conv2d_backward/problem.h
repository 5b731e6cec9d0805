// What every launcher of 6.2 checks, and the launches of a single gradient that versions share.
#pragma once

#include "stage6_cnn/02_conv2d_backward/conv2d_backward.h"

namespace conv2d_backward {

// Throws std::invalid_argument where an array that is needed is null or begins between two floats.
void check_backward(const Gradients& to, const float* grad_y, const float* x, const float* w,
                    const Problem& p);

// versions/direct.hip: grad_bias = sum of grad_y + beta grad_bias.
void launch_grad_bias(float* grad_bias, const float* grad_y, const Problem& problem, float beta,
                      hipStream_t stream);

// grad_w.cpp: grad_w and grad_bias with at most so many slices of the pixels.
// `most` is conv2d::images_of_launch's.
void launch_grad_w(const Gradients& to, const float* grad_y, const float* x, const Problem& problem,
                   float beta, Workspace& workspace, size_t most_slices, hipStream_t stream,
                   size_t most = size_t{1} << 30);

// grad_x.cpp: grad_x with the kernels of step 6.1; through transformed tiles in `memory`, of `room`
// elements, unless it is null.
void launch_grad_x(float* grad_x, const float* grad_y, const float* w, const Problem& problem,
                   float* memory, size_t room, hipStream_t stream);

}  // namespace conv2d_backward
