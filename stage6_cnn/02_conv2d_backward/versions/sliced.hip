// sliced: the sums of the filters' gradient in slices for all multiprocessors.
#include "stage6_cnn/02_conv2d_backward/problem.h"

namespace conv2d_backward {

// Fixes : implicit_gemm computes each tile of grad_w in one block. A few tiles leave most
//         multiprocessors idle.
// Idea  : its blocks take slices of the pixels, as many as keep all multiprocessors busy. Step
//         5.1's second launch adds the slices' sums in their order.
// Costs : 4 bytes per slice and sum, which the caches still hold.
void launch_sliced(const Gradients& to, const float* grad_y, const float* x, const float* w,
                   const Problem& problem, float beta, Workspace& workspace, hipStream_t stream) {
  check_backward(to, grad_y, x, w, problem);
  launch_grad_w(to, grad_y, x, problem, beta, workspace, count_slices(problem), stream);
  if (to.x != nullptr) launch_grad_x(to.x, grad_y, w, problem, nullptr, 0, stream);
}

}  // namespace conv2d_backward
