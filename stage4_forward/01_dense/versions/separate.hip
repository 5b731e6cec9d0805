// separate: product, bias and activation, a launch each.
#include <stdexcept>
#include <type_traits>

#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage4_forward/01_dense/dense.h"

namespace dense {

gemm::Product product(float* y, const float* x, size_t batch, const Layer& layer) {
  if (layer.bias == nullptr && layer.out > 0) throw std::invalid_argument("dense: bias is null");
  gemm::Product p;
  // exercise: sizes, arrays and leading dimensions of y = x w^T in one of step 2.3's layouts (about
  // 5 lines)
  p.layout = gemm::Layout::NT;
  p.M = batch, p.N = layer.out, p.K = layer.in;
  p.a = x, p.lda = layer.in;
  p.b = layer.w, p.ldb = layer.in;
  p.c = y, p.ldc = layer.out;
  // end exercise
  return p;
}

// Y = X W^T, then Y + b, then f(Y).
// Fixes : sample_by_sample reads all weights again for each sample.
// Idea  : a matrix product: the samples of a tile share each weight that is read.
// Costs : y goes to memory three times and comes back twice; 3 launches.
template <class Activation>
void launch_separate(float* y, const float* x, size_t batch, const Layer& layer,
                     const gemv::Workspace&, hipStream_t stream) {
  gemm::best(product(y, x, batch, layer), stream);
  matrix_activations::launch_bias(y, y, layer.bias, batch, layer.out, stream);
  if constexpr (!std::is_same_v<Activation, Linear>)
    matrix_activations::launch_activation<Activation>(y, y, batch, layer.out, stream);
}

// The functions that this file is compiled for.
template void launch_separate<Linear>(float*, const float*, size_t, const Layer&,
                                      const gemv::Workspace&, hipStream_t);
template void launch_separate<activations::Relu>(float*, const float*, size_t, const Layer&,
                                                 const gemv::Workspace&, hipStream_t);
template void launch_separate<activations::Sigmoid>(float*, const float*, size_t, const Layer&,
                                                    const gemv::Workspace&, hipStream_t);
template void launch_separate<activations::GeluTanh>(float*, const float*, size_t, const Layer&,
                                                     const gemv::Workspace&, hipStream_t);

}  // namespace dense
