// row_in_shared: a row in two memories. Its kernel is in detail/row_in_shared.h, because later
// steps compile it with an Output of their own: here it stores the probabilities.
#include "stage3_ml_ops/02_softmax/detail/row_in_shared.h"

#include "stage3_ml_ops/02_softmax/softmax.h"

namespace softmax {

template bool launch_row_in_shared(float*, const float*, size_t, size_t, Probabilities,
                                   hipStream_t);

void launch_row_in_shared(float* y, const float* x, size_t rows, size_t cols, hipStream_t stream) {
  if (rows == 0 || cols == 0) return;
  if (!launch_row_in_shared(y, x, rows, cols, Probabilities{}, stream))
    launch_online(y, x, rows, cols, stream);  // such a row is not held
}

}  // namespace softmax
