// separate: layer by layer, every operation a launch.
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage4_forward/02_mlp_forward/mlp_forward.h"

namespace mlp_forward {

// h = f(W1 x + b1), then y = W2 h + b2, by the version of step 4.1 of this name.
// Fixes : the host computes one value after the other.
// Idea  : a layer is a matrix product, a bias and an activation, for the whole batch at once.
// Costs : 5 launches; h goes to memory three times and comes back three times.
template <class Activation>
void launch_separate(float* y, float* h, const float* x, size_t batch, const Network& network,
                     hipStream_t stream) {
  check(network);
  const gemv::Workspace none{nullptr};
  dense::launch_separate<Activation>(h, x, batch, network.first, none, stream);
  dense::launch_separate<Linear>(y, h, batch, network.second, none, stream);
}

// The functions that this file is compiled for.
template void launch_separate<activations::Relu>(float*, float*, const float*, size_t,
                                                 const Network&, hipStream_t);
template void launch_separate<activations::Sigmoid>(float*, float*, const float*, size_t,
                                                    const Network&, hipStream_t);

}  // namespace mlp_forward
