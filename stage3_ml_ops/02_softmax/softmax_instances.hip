// What softmax.h declares extern: compiled once, here, for all programs that store probabilities.
#include "stage3_ml_ops/02_softmax/softmax.h"

namespace softmax {

template void launch_online(float*, const float*, size_t, size_t, Probabilities, hipStream_t);
template bool launch_row_in_registers(float*, const float*, size_t, size_t, Probabilities,
                                      hipStream_t);
template bool launch_row_in_shared(float*, const float*, size_t, size_t, Probabilities,
                                   hipStream_t);

}  // namespace softmax
