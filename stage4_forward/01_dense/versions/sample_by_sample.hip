// sample_by_sample: a matrix-vector product for each sample.
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage4_forward/01_dense/dense.h"

namespace dense {

// y = f(W x + b) for each sample: step 2.2's product, then f(y + b) over all of y by step 3.1.
// Fixes : the host computes one element after the other.
// Idea  : to a single sample a layer is a matrix-vector product, and its time that of reading W.
// Costs : W is read once per sample; batch + 1 launches.
template <class Activation>
void launch_sample_by_sample(float* y, const float* x, size_t batch, const Layer& layer,
                             const gemv::Workspace& workspace, hipStream_t stream) {
  const gemm::Product p = product(y, x, batch, layer);
  gemm::check(p);
  // exercise: step 2.2's best for each sample, y = W x; then step 3.1's bias and activation over
  // all of y (about 5 lines)
  for (size_t sample = 0; sample < batch; ++sample)
    gemv::best(false, {p.N, p.K, 1, p.b, p.ldb, x + sample * layer.in, 0, y + sample * layer.out},
               workspace, stream);
  matrix_activations::launch_forward_vectorized<Activation>(y, y, layer.bias, batch, layer.out,
                                                            stream);
  // end exercise
}

// The functions that this file is compiled for.
template void launch_sample_by_sample<Linear>(float*, const float*, size_t, const Layer&,
                                              const gemv::Workspace&, hipStream_t);
template void launch_sample_by_sample<activations::Relu>(float*, const float*, size_t, const Layer&,
                                                         const gemv::Workspace&, hipStream_t);
template void launch_sample_by_sample<activations::Sigmoid>(float*, const float*, size_t,
                                                            const Layer&, const gemv::Workspace&,
                                                            hipStream_t);
template void launch_sample_by_sample<activations::GeluTanh>(float*, const float*, size_t,
                                                             const Layer&, const gemv::Workspace&,
                                                             hipStream_t);

}  // namespace dense
