// Fixes : the host takes longer to launch a kernel than the device to run it.
// Idea  : capture many steps once, and launch them together.
// Costs : the kernels still begin and end one by one, and hand everything on in global memory.
#include <algorithm>

#include "common/graph.h"
#include "stage5_training/06_train_toy/loop.h"
#include "stage5_training/06_train_toy/train_toy.h"

namespace train_toy {

// The kernels of `operations`, launched kStepsPerGraph steps at a time. Their arguments are frozen,
// and need not change: the optimizer's schedule counts its steps on the device.
void launch_graph(Trainer& t, unsigned steps) {
  const unsigned length = std::min({steps, t.every, kStepsPerGraph});
  if (length == 0) return;
  t.model.use_branches(&t.branches);  // in a graph a fork costs nothing
  // exercise: capture `length` steps; replay them, and launch what is left one by one (about 8
  // lines)
  const gpu::Graph graph(t.stream, [&] {
    for (unsigned i = 0; i < length; ++i) launch_step(t);
  });
  run_in_pieces(t, steps, [&](unsigned piece) {
    for (; piece >= length; piece -= length) graph.launch(t.stream);
    for (; piece > 0; --piece) launch_step(t);
  });
  HIP_CHECK(hipStreamSynchronize(t.stream));  // the graph must live until it has run
  // end exercise
  t.model.use_branches(nullptr);
}

}  // namespace train_toy
