// All steps in one launch of one block.
#include "common/gpu.h"
#include "stage5_training/06_train_toy/detail/block.h"
#include "stage5_training/06_train_toy/loop.h"
#include "stage5_training/06_train_toy/train_toy.h"

namespace train_toy {

// w, m, v after span.count steps    x (points, inputs), all points in one block; see Network.
// Fixes : one_kernel loads data, parameters and state for each step, and waits for its launch.
// Idea  : the loop over the steps is in the kernel: everything stays where it is until the end.
// Thread: as in one_kernel.
// Costs : one multiprocessor works; 2 layers barriers per step, no global memory but the schedule.
template <class Rule>
static __global__ void GPU_LAUNCH_BOUNDS(kMaxThreads, 1)
    steps_in_one_kernel(Network n, Arrays arrays, Span span) {
  DYNAMIC_SHARED(float, rows);
  float* weights = rows + n.rows * n.stride;
  Parameter mine = load<Rule>(n, arrays, rows, weights);
  for_each_step(span, arrays, [&](const Schedule& schedule, float* loss) {
    for (int l = 0; l + 1 < n.layers; ++l) {
      forward_layer(n, rows, weights, l);
      __syncthreads();  // the inputs of the next layer are complete
    }
    last_layer(n, rows, weights, loss);
    __syncthreads();  // the gradients of the last layer's sums are complete
    for (int l = n.layers - 1; l > 0; --l) {
      backward_layer(n, rows, weights, l);
      __syncthreads();  // the gradients of the sums of the layer before are complete
    }
    update<Rule>(n, mine, schedule);
    if (loss != nullptr) write_mean(loss, row(n, rows, n.losses), 1, n.points);
    __syncthreads();  // the weights are those of the next step, and the losses have been read
  });
  store<Rule>(arrays, mine);
}

void queue_persistent(const Network& n, Kind kind, const Arrays& arrays, const Span& span,
                      hipStream_t stream) {
  optimizers::visit_rule(kind, [&](auto rule) {
    launch_block(steps_in_one_kernel<decltype(rule)>, n, arrays, span, stream);
  });
}

void launch_persistent(Training& t, unsigned steps) {
  require(why_not_block(t));
  launch_spans(t, steps, kStepsPerLaunch, queue_persistent);
}

}  // namespace train_toy
