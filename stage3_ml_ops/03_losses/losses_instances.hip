// What losses.h declares extern: compiled once, here, for all programs that need the gradient.
#include "stage3_ml_ops/03_losses/losses.h"

namespace softmax {

template void launch_online(float*, const float*, size_t, size_t, losses::LossAndGradient,
                            hipStream_t);
template bool launch_row_in_registers(float*, const float*, size_t, size_t, losses::LossAndGradient,
                                      hipStream_t);
template bool launch_row_in_shared(float*, const float*, size_t, size_t, losses::LossAndGradient,
                                   hipStream_t);

}  // namespace softmax
