// The kernels of `operations`, replayed from a graph.
#include "stage5_training/07_train_sales/train_sales.h"

namespace train_sales {

// Their arguments are frozen and need not change: a kernel reads from the schedule which step it
// is.
void run_graph(Training& t, size_t steps) {
  t.replay(steps, "graph", [&] { t.queue_step(); });
}

}  // namespace train_sales
