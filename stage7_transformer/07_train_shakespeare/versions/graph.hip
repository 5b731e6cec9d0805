// graph: the same kernels, replayed from a graph.
//
// Fixes : the host takes longer to launch these kernels than the device to run them.
// Idea  : capture steps once, with their branches, and launch them as a whole. Nothing in a step
//         depends on its number, which lies in device memory.
// Costs : a first launch that captures kGraphSteps steps.
#include "stage7_transformer/07_train_shakespeare/train_shakespeare.h"

namespace train_shakespeare {

void run_graph(Training& t, size_t steps) {
  if (t.one == nullptr) {
    t.many = std::make_unique<gpu::Graph>(t.stream, [&] {
      for (size_t i = 0; i < kGraphSteps; ++i) queue_fused(t);
    });
    t.one = std::make_unique<gpu::Graph>(t.stream, [&] { queue_fused(t); });
  }
  for (; steps >= kGraphSteps; steps -= kGraphSteps) t.many->launch(t.stream);
  for (; steps > 0; --steps) t.one->launch(t.stream);
}

}  // namespace train_shakespeare
