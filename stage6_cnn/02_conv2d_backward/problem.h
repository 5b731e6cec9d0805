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

// versions/sliced.hip: grad_w[i] = sum over slices of sums[slice * stride + i] + beta grad_w[i] for
// i < weights, and grad_bias[i - weights] alike for weights <= i < columns. A block has kGroups
// groups of threads that share the slices: compiled for 1 and for 16.
template <int kGroups>
void launch_add_slices(float* grad_w, float* grad_bias, const float* sums, size_t stride,
                       size_t slices, size_t weights, size_t columns, float beta,
                       hipStream_t stream);

// How many groups suit the backend: a thread of the CPU backend has no others to wait for.
#if defined(GPU_BACKEND_CPU)
inline constexpr int kSumGroups = 1;
#else
inline constexpr int kSumGroups = 16;
#endif

}  // namespace conv2d_backward
