// The kernels of `fused`, replayed from a graph.
#include "stage6_cnn/04_train_cnn/train_cnn.h"

namespace train_cnn {

// Which images a step takes follows from the number of steps behind it, in device memory: one graph
// of many steps serves all of them.
void run_graph(Training& t, size_t steps) {
  t.use(kFused);
  t.replay(steps, "graph", [&] { t.queue_step(); });
}

}  // namespace train_cnn
