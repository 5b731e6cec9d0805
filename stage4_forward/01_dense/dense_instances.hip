// What dense.h declares extern: compiled once, here, for all programs that have a layer.
#include "stage4_forward/01_dense/dense.h"

namespace dense {

template void forward<Linear>(float*, const float*, size_t, const Layer&, hipStream_t);
template void forward<activations::Relu>(float*, const float*, size_t, const Layer&, hipStream_t);

}  // namespace dense
