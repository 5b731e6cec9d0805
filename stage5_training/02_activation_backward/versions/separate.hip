// separate: the slopes, then the sums of columns.
#include <algorithm>

#include "common/gpu.h"
#include "stage2_matrix/02_gemv/gemv.h"
#include "stage5_training/02_activation_backward/detail/with_bias.h"
#include "stage5_training/02_activation_backward/detail/without_bias.h"

namespace activation_backward {

using activations::GeluErf;
using activations::GeluTanh;
using activations::Relu;
using activations::Sigmoid;
using activations::Softplus;
using activations::Tanh;

// grad_x, then its columns' sums.
// Fixes : -
// Idea  : both passes are there: the kernel of step 1.4, and the sum of rows of step 5.1.
// Costs : 16 bytes per element: grad_x goes to memory and comes back to be added up.
template <class Slope>
void launch_separate(float* grad_x, float* grad_bias, const float* grad_y, const float* kept,
                     size_t rows, size_t cols, float beta, Workspace& workspace,
                     hipStream_t stream) {
  check(grad_bias, rows, cols, workspace);
  launch_without_bias<Slope>(grad_x, grad_y, kept, rows, cols, stream);
  dense_backward::launch_grad_bias({nullptr, grad_bias, nullptr}, grad_x, rows,
                                   {0, cols, nullptr, nullptr}, beta, workspace, stream,
                                   gemv::launch_split_columns);
}

double roundings_separate(size_t rows, size_t cols) {
  const gemv::Product p{rows, cols, 1, nullptr, cols, nullptr, 0, nullptr};  // null is aligned
  gemv::Product unaligned = p;
  unaligned.a = reinterpret_cast<const float*>(sizeof(float));
  return std::max(gemv::depth_split_columns(p), gemv::depth_split_columns(unaligned));
}

// The functions that this file is compiled for.
template void launch_without_bias<Relu>(float*, const float*, const float*, size_t, size_t,
                                        hipStream_t);
template void launch_without_bias<Sigmoid>(float*, const float*, const float*, size_t, size_t,
                                           hipStream_t);
template void launch_without_bias<Tanh>(float*, const float*, const float*, size_t, size_t,
                                        hipStream_t);
template void launch_without_bias<GeluErf>(float*, const float*, const float*, size_t, size_t,
                                           hipStream_t);
template void launch_without_bias<GeluTanh>(float*, const float*, const float*, size_t, size_t,
                                            hipStream_t);
template void launch_without_bias<Softplus>(float*, const float*, const float*, size_t, size_t,
                                            hipStream_t);
template void launch_separate<Relu>(float*, float*, const float*, const float*, size_t, size_t,
                                    float, Workspace&, hipStream_t);
template void launch_separate<Sigmoid>(float*, float*, const float*, const float*, size_t, size_t,
                                       float, Workspace&, hipStream_t);
template void launch_separate<Tanh>(float*, float*, const float*, const float*, size_t, size_t,
                                    float, Workspace&, hipStream_t);
template void launch_separate<GeluErf>(float*, float*, const float*, const float*, size_t, size_t,
                                       float, Workspace&, hipStream_t);
template void launch_separate<GeluTanh>(float*, float*, const float*, const float*, size_t, size_t,
                                        float, Workspace&, hipStream_t);
template void launch_separate<Softplus>(float*, float*, const float*, const float*, size_t, size_t,
                                        float, Workspace&, hipStream_t);

}  // namespace activation_backward
