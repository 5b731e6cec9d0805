// best: the version that choices.h names for rows of this length.
#include "stage3_ml_ops/02_softmax/detail/launch_best.h"
#include "stage3_ml_ops/02_softmax/softmax.h"

namespace softmax {

void best(float* y, const float* x, size_t rows, size_t cols, hipStream_t stream) {
  launch_best(y, x, rows, cols, Probabilities{}, stream);
}

}  // namespace softmax
