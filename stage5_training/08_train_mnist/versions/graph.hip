// The kernels of `operations`, replayed from a graph.
#include "stage5_training/08_train_mnist/train_mnist.h"

namespace train_mnist {

// Their arguments are frozen and need not change: a kernel reads from the schedule which step it
// is.
void run_graph(Training& t, size_t steps) {
  t.replay(steps, "graph", [&] { t.queue_step(); });
}

}  // namespace train_mnist
