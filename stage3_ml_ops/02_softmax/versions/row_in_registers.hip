// row_in_registers: the row is read once. Its kernel is in detail/row_in_registers.h, because later
// steps compile it with an Output of their own: here it stores the probabilities.
#include "stage3_ml_ops/02_softmax/detail/row_in_registers.h"

#include "stage3_ml_ops/02_softmax/softmax.h"

namespace softmax {

template bool launch_row_in_registers(float*, const float*, size_t, size_t, Probabilities,
                                      hipStream_t);

void launch_row_in_registers(float* y, const float* x, size_t rows, size_t cols,
                             hipStream_t stream) {
  if (rows == 0 || cols == 0) return;
  if (!launch_row_in_registers(y, x, rows, cols, Probabilities{}, stream))
    launch_online(y, x, rows, cols, stream);  // such a row is not held
}

}  // namespace softmax
