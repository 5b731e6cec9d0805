// Fixes : the host takes longer to launch a kernel than the device to run it.
// Idea  : capture many steps once, and launch them together.
// Costs : the kernels still begin and end one by one, and hand everything on in global memory.
#include <algorithm>

#include "stage5_training/06_train_toy/train_toy.h"

namespace train_toy {

// The arguments of captured kernels are frozen, and need not change: the optimizer's schedule
// counts the steps on the device.
void Trainer::replay(size_t count, const std::string& name, const std::function<void()>& queue) {
  if (captured_ != name || moves_ != moves()) {
    forget_graphs();
    graph_steps_ = every == 1 ? most_graph_steps : std::min(every, most_graph_steps);
    captured_ = name, moves_ = moves();
  }
  use_branches(&branches);  // in a graph a fork costs nothing
  // exercise: unless that has been done, capture graph_steps_ steps in graph_ and a single one in
  // one_step_; launch as many as it takes (about 9 lines)
  if (graph_ == nullptr) {
    graph_ = std::make_unique<gpu::Graph>(stream, [&] {
      for (size_t i = 0; i < graph_steps_; ++i) queue();
    });
    one_step_ = std::make_unique<gpu::Graph>(stream, queue);
  }
  run_in_pieces(count, [&](size_t piece) {
    for (; piece >= graph_steps_; piece -= graph_steps_) graph_->launch(stream);
    for (; piece > 0; --piece) one_step_->launch(stream);
  });
  // end exercise
  use_branches(nullptr);
}

void launch_graph(Training& t, unsigned steps) {
  t.require_room(steps);
  t.replay(steps, "graph", [&] { t.queue_step(); });
}

}  // namespace train_toy
