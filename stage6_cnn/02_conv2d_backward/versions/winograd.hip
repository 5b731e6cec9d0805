// winograd: the gradient of x with a quarter of the multiplications.
#include "stage6_cnn/02_conv2d_backward/problem.h"

namespace conv2d_backward {

// Fixes : the gradient of x is a convolution. sliced computes it without transformed tiles.
// Idea  : with a stride of 1 it is one of 3 x 3 windows, as in `winograd` of step 6.1; other
// windows
//         go as in sliced. The gradient of the filters stays as it is.
void launch_winograd(const Gradients& to, const float* grad_y, const float* x, const float* w,
                     const Problem& problem, float beta, Workspace& workspace, hipStream_t stream) {
  check_backward(to, grad_y, x, w, problem);
  launch_grad_w(to, grad_y, x, problem, beta, workspace, count_slices(problem), stream);
  if (to.x != nullptr)
    launch_grad_x(to.x, grad_y, w, problem, workspace.tiles.data(), workspace.tiles.size(), stream);
}

}  // namespace conv2d_backward
