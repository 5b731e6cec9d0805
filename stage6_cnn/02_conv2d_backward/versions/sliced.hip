// sliced: the sums of the filters' gradient in slices for all multiprocessors.
#include "common/gpu.h"
#include "stage2_matrix/03_gemm/detail/epilogue.h"
#include "stage6_cnn/02_conv2d_backward/problem.h"

namespace conv2d_backward {

constexpr int kSumColumns = 32;  // of the slices' sums, which neighbouring threads add up

// grad[i] = sum over slices of sums[slice, i] + beta grad[i]    weights, then biases.
// Fixes : implicit_gemm computes each tile of grad_w in one block. A few tiles leave most
//         multiprocessors idle.
// Idea  : its blocks take slices of the pixels, as many as keep all multiprocessors busy. A second
//         launch adds the slices' sums in a fixed order, so that every run gives the same bits.
// Thread: (x, y) adds slices y, y + kGroups, ... of one column; y = 0 adds up the groups' sums.
// Costs : 4 bytes per slice and column, which the caches still hold; 1 barrier.
template <int kGroups>
static __global__ void __launch_bounds__(kSumColumns* kGroups)
    grad_w_add_slices(float* grad_w, float* grad_bias, const float* sums, size_t stride, int slices,
                      size_t weights, size_t columns, float beta) {
  __shared__ float groups[kGroups][kSumColumns];
  const size_t i = size_t{blockIdx.x} * kSumColumns + threadIdx.x;
  float sum = 0;
  // exercise: the sum of this group's slices, then of all groups (about 7 lines)
  if (i < columns)
    for (int slice = static_cast<int>(threadIdx.y); slice < slices; slice += kGroups)
      sum += sums[size_t(slice) * stride + i];
  groups[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();  // every group's sum is in shared memory
  if (threadIdx.y > 0 || i >= columns) return;
  for (int group = 1; group < kGroups; ++group) sum += groups[group][threadIdx.x];
  // end exercise
  float* const to = i < weights ? grad_w + i : grad_bias + (i - weights);
  *to = gemm::AlphaBeta{1, beta}(sum, 0, 0, to);
}

template <int kGroups>
void launch_add_slices(float* grad_w, float* grad_bias, const float* sums, size_t stride,
                       size_t slices, size_t weights, size_t columns, float beta,
                       hipStream_t stream) {
  if (columns > 0)
    LAUNCH_ON(stream, grad_w_add_slices<kGroups>,
              static_cast<unsigned>(gpu::ceil_div(columns, kSumColumns)),
              dim3(kSumColumns, kGroups), 0, grad_w, grad_bias, sums, stride,
              static_cast<int>(slices), weights, columns, beta);
}
template void launch_add_slices<1>(float*, float*, const float*, size_t, size_t, size_t, size_t,
                                   float, hipStream_t);
template void launch_add_slices<16>(float*, float*, const float*, size_t, size_t, size_t, size_t,
                                    float, hipStream_t);

void launch_sliced(const Gradients& to, const float* grad_y, const float* x, const float* w,
                   const Problem& problem, float beta, Workspace& workspace, hipStream_t stream) {
  check_backward(to, grad_y, x, w, problem);
  launch_grad_w(to, grad_y, x, problem, beta, workspace, count_slices(problem), stream);
  if (to.x != nullptr) launch_grad_x(to.x, grad_y, w, problem, nullptr, 0, stream);
}

}  // namespace conv2d_backward
