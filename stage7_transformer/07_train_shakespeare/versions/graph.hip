// graph: the same kernels, replayed from a graph.
//
// Fixes : the host takes longer to launch these kernels than the device to run them.
// Idea  : capture steps once, with their branches, and launch them as a whole (step 5.6).
//         Nothing in a step depends on its number, which lies in device memory.
// Costs : a first launch that captures kGraphSteps steps.
#include "stage7_transformer/07_train_shakespeare/train_shakespeare.h"

namespace train_shakespeare {

void run_graph(Training& t, size_t steps) {
  t.replay(steps, "graph", [&] { queue_rows(t); });
}

}  // namespace train_shakespeare
