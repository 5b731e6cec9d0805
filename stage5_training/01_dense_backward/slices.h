// The gradients of a layer's parameters in slices of the batch, which keep all multiprocessors busy
// where the weights are few (split-K). versions/weight_slices.hip and bias_by_tiles.hip have it.
#pragma once

#include <cstddef>

#include "stage5_training/01_dense_backward/dense_backward.h"

namespace dense_backward {

// Into how many slices of the batch weight_slices cuts the sums of grad_w, and the distance from
// one slice's sums to the next one's: rows of weights stay aligned to 16 bytes.
size_t count_slices(size_t batch, size_t in, size_t out);
constexpr size_t slice_row(size_t in, size_t out) {
  return gpu::ceil_div(in * out + out, size_t{4}) * 4;
}
// What Workspace::slices_of_gradients has for such a layer. 0 where a single slice needs none.
size_t elements_of_slices(size_t batch, size_t in, size_t out);

// grad_w[i] = sum over slices of sums[slice * stride + i] + beta grad_w[i] for i < weights, and
// grad_bias[i - weights] alike for weights <= i < columns. A block has kGroups groups of threads
// that share the slices: compiled for 1 and for 16.
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

// In as many slices as suit the batch and as `workspace` has memory for.
void launch_grad_w_in_slices(const Gradients& to, const float* grad_y, const float* x, size_t batch,
                             const Layer& layer, float beta, Workspace& workspace,
                             hipStream_t stream);
// The same of to.w and, unless it is null, to.bias, where there are two slices or more. `launch`
// makes a product and, for to.bias, the sums of its op(A)'s rows.
using LaunchProduct = void (*)(const gemm::Product& product, float* bias, hipStream_t stream);
void launch_slices(const Gradients& to, const float* grad_y, const float* x, size_t batch,
                   const Layer& layer, float beta, Workspace& workspace, hipStream_t stream,
                   LaunchProduct launch);
// grad_w and grad_bias together, from the same tiles of grad_y. Where both are wanted and there are
// weights, `workspace` needs slices_of_gradients alone.
void launch_grad_parameters(const Gradients& to, const float* grad_y, const float* x, size_t batch,
                            const Layer& layer, float beta, Workspace& workspace,
                            hipStream_t stream);

}  // namespace dense_backward
