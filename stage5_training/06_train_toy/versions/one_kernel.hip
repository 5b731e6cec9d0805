// A whole step in one block of one kernel.
#include "common/gpu.h"
#include "stage5_training/06_train_toy/detail/block.h"
#include "stage5_training/06_train_toy/detail/schedules.h"
#include "stage5_training/06_train_toy/loop.h"
#include "stage5_training/06_train_toy/train_toy.h"

namespace train_toy {

// w, m, v after one step    x (points, inputs), all points in one block; see Network.
// Fixes : a graph's kernels take longer to begin and to end than to work, and hand everything to
//         the next one through global memory.
// Idea  : one block does it all. What all threads need is in shared memory, a barrier where a
//         kernel would end; gradient and state are in the registers of the parameter's thread.
// Thread: t owns parameter t; of each product the points t, t + blockDim.x, ... of its items.
// Costs : one multiprocessor works; 2 layers + 2 barriers; reads and writes the parameters once.
template <class Rule>
static __global__ void GPU_LAUNCH_BOUNDS(kMaxThreads, 1)
    step_in_one_kernel(Network n, Arrays arrays, Span span) {
  DYNAMIC_SHARED(float, rows);
  float* weights = rows + n.rows * n.stride;
  Parameter mine = load<Rule>(n, arrays, rows, weights);
  for_each_step({span.done, 1, span.every}, arrays, [&](const Schedule& schedule, float* loss) {
    for (int l = 0; l + 1 < n.layers; ++l) {
      forward_layer(n, rows, weights, l);
      __syncthreads();  // the inputs of the next layer are complete
    }
    last_layer(n, rows, weights, loss);
    __syncthreads();  // the gradients of the last layer's sums are complete
    for (int l = n.layers - 1; l > 0; --l) {
      const Layer& layer = n.layer[l];
      const float* inputs = row(n, rows, layer.inputs);
      float* grads = row(n, rows, n.layer[l - 1].grads);
      // exercise: grads = the transposed weights times this layer's grads, times 1 - tanh^2 (about
      // 8 lines)
      times_weights(n, row(n, rows, layer.grads), layer.out, weights + layer.weights, layer.in, 1,
                    layer.in + 1, [&](int point, int first, const float(&sums)[kUnits]) {
                      for (int j = 0; j < kUnits; ++j) {
                        if (first + j >= layer.in) continue;
                        const int at = (first + j) * n.stride + point;
                        grads[at] = sums[j] * fmaf(-inputs[at], inputs[at], 1.0f);
                      }
                    });
      // end exercise
      __syncthreads();  // the gradients of the sums of the layer before are complete
    }
    update<Rule>(n, mine, schedule);
    if (loss != nullptr) write_mean(loss, row(n, rows, n.losses), 1, n.points);
    __syncthreads();  // the weights are those of the next step, and the losses have been read
  });
  store<Rule>(arrays, mine);
}

Arrays make_arrays(Training& t, unsigned count) {
  if (t.schedules.size() < count) t.schedules = DeviceBuffer<Schedule>(count);
  const Hyperparameters& hyper = t.settings.hyper;
  constexpr unsigned kBlock = vector_add::kBlock;
  if (count > 0)
    LAUNCH_ON(t.stream, fill_schedules, static_cast<unsigned>(gpu::ceil_div(count, kBlock)), kBlock,
              0, t.schedules.data(), hyper, static_cast<unsigned>(t.steps), count);
  const optimizers::ParameterArena& arena = t.model.arena();
  return {t.x.data(), t.labels.data(),    arena.w, arena.m,
          arena.v,    t.schedules.data(), hyper,   t.curve.data()};
}

void queue_one_kernel(const Network& n, Kind kind, const Arrays& arrays, const Span& span,
                      hipStream_t stream) {
  optimizers::visit_rule(kind, [&](auto rule) {
    launch_block(step_in_one_kernel<decltype(rule)>, n, arrays, span, stream);
  });
}

void launch_one_kernel(Training& t, unsigned steps) {
  require(why_not_block(t));
  launch_spans(t, steps, 1, queue_one_kernel);
}

}  // namespace train_toy
