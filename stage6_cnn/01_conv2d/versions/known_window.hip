// known_window: the compiler knows that a window is 3 x 3.
#include "common/gpu.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage4_forward/01_dense/dense.h"
#include "stage6_cnn/01_conv2d/detail/window_sums.h"
#include "stage6_cnn/01_conv2d/problem.h"

namespace conv2d {

// y = f(x * w + bias) with the kernel of detail/window_sums.h.
// Fixes : implicit_gemm takes each line apart into c, r and s, and compares every place with the
//         four borders: a fifth of its instructions multiply nothing.
// Idea  : a tile is the window of one channel. Its nine distances are constants, and which of them
//         lie in the image is the same for all channels: a bit each (detail/known_window.h).
//         Windows of other sizes go the way of implicit_gemm.
// Thread: as in implicit_gemm.
// Costs : those of implicit_gemm, with 9 lines in a tile in place of 8.
template <class Activation>
void launch_known_window(float* y, const float* x, const float* w, const float* bias,
                         const Problem& problem, Workspace&, hipStream_t stream) {
  check_forward(y, x, w, problem);
  launch_known<Large>(windows_of(y, x, w, problem), problem.N, BiasActivation<Activation>{bias},
                      stream);
}

template void launch_known_window<dense::Linear>(float*, const float*, const float*, const float*,
                                                 const Problem&, Workspace&, hipStream_t);
template void launch_known_window<activations::Relu>(float*, const float*, const float*,
                                                     const float*, const Problem&, Workspace&,
                                                     hipStream_t);

}  // namespace conv2d
