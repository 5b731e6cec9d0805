// fused_activation: product, then bias and activation in one launch.
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage4_forward/01_dense/dense.h"

namespace dense {

// Y = X W^T, then f(Y + b).
// Fixes : separate sends y to memory and back between the bias and the activation.
// Idea  : step 3.1's kernel does both while an element is in a register.
// Costs : y goes to memory twice and comes back once; 2 launches.
template <class Activation>
void launch_fused_activation(float* y, const float* x, size_t batch, const Layer& layer,
                             const gemv::Workspace&, hipStream_t stream) {
  gemm::best(product(y, x, batch, layer), stream);
  matrix_activations::launch_forward_vectorized<Activation>(y, y, layer.bias, batch, layer.out,
                                                            stream);
}

// The functions that this file is compiled for.
template void launch_fused_activation<Linear>(float*, const float*, size_t, const Layer&,
                                              const gemv::Workspace&, hipStream_t);
template void launch_fused_activation<activations::Relu>(float*, const float*, size_t, const Layer&,
                                                         const gemv::Workspace&, hipStream_t);
template void launch_fused_activation<activations::Sigmoid>(float*, const float*, size_t,
                                                            const Layer&, const gemv::Workspace&,
                                                            hipStream_t);
template void launch_fused_activation<activations::GeluTanh>(float*, const float*, size_t,
                                                             const Layer&, const gemv::Workspace&,
                                                             hipStream_t);

}  // namespace dense
