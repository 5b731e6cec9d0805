// fused_epilogue: bias and activation before the sum leaves its register.
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage2_matrix/03_gemm/detail/choose_tile.h"
#include "stage4_forward/01_dense/dense.h"

namespace dense {

// An epilogue of step 2.3: what is stored as y[row, col] where `sum` is that of the product.
template <class Activation>
struct BiasActivation {
  const float* bias;
  __device__ float operator()(float sum, size_t, size_t col, const float*) const {
    // exercise: the element's bias, then the activation (about 1 line)
    return Activation{}(sum + bias[col]);
    // end exercise
  }
};

// Y = f(X W^T + b).
// Fixes : fused_activation has a second launch read all of y only to change it a little.
// Idea  : the kernel of the product does it to each sum that it stores.
// Costs : y goes to memory once; 1 launch. The epilogue needs registers in that kernel.
template <class Activation>
void forward(float* y, const float* x, size_t batch, const Layer& layer, hipStream_t stream) {
  gemm::best<gemm::Layouts<gemm::Layout::NT>>(product(y, x, batch, layer),
                                              BiasActivation<Activation>{layer.bias}, stream);
}

template <class Activation>
void launch_fused_epilogue(float* y, const float* x, size_t batch, const Layer& layer,
                           const gemv::Workspace&, hipStream_t stream) {
  forward<Activation>(y, x, batch, layer, stream);
}

// The functions that this file is compiled for.
template void forward<Linear>(float*, const float*, size_t, const Layer&, hipStream_t);
template void forward<activations::Relu>(float*, const float*, size_t, const Layer&, hipStream_t);
template void forward<activations::Sigmoid>(float*, const float*, size_t, const Layer&,
                                            hipStream_t);
template void forward<activations::GeluTanh>(float*, const float*, size_t, const Layer&,
                                             hipStream_t);
template void forward<activations::Tanh>(float*, const float*, size_t, const Layer&, hipStream_t);
template void launch_fused_epilogue<Linear>(float*, const float*, size_t, const Layer&,
                                            const gemv::Workspace&, hipStream_t);
template void launch_fused_epilogue<activations::Relu>(float*, const float*, size_t, const Layer&,
                                                       const gemv::Workspace&, hipStream_t);
template void launch_fused_epilogue<activations::Sigmoid>(float*, const float*, size_t,
                                                          const Layer&, const gemv::Workspace&,
                                                          hipStream_t);
template void launch_fused_epilogue<activations::GeluTanh>(float*, const float*, size_t,
                                                           const Layer&, const gemv::Workspace&,
                                                           hipStream_t);

}  // namespace dense
