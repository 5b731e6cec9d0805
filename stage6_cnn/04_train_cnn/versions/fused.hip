// Operations that belong together, in one kernel.
#include "stage6_cnn/04_train_cnn/train_cnn.h"

namespace train_cnn {

// What is computed is the same; what lay in memory between a convolution and its ReLU, a pool's
// gradient and ReLU's slope, is never written, and the loss comes with its gradient.
void run_fused(Training& t, size_t steps) {
  t.use(kFused);
  t.run_operations(steps);
}

}  // namespace train_cnn
