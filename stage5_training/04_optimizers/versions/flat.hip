// flat: all tensors are one array, read 16 bytes at a time.
#include <algorithm>

#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage5_training/04_optimizers/counted.h"
#include "stage5_training/04_optimizers/detail/begin.h"
#include "stage5_training/04_optimizers/detail/rules.h"
#include "stage5_training/04_optimizers/optimizers.h"

namespace optimizers {

using vector_add::Split;

// w, m, v = rule(w, grad_w, m, v)    each (n), any n, any alignment; `split` is step 1.1's.
// Fixes : multi_tensor looks up where its data is, and a tensor may begin where no float4 can.
// Idea  : all tensors lie in one arena; the rule is the same for all, so nobody looks for borders.
// Thread: t owns the float4s t, t + T, ... and of the head and tail the elements t, t + T, ...
// Costs : bytes_per_parameter n bytes of global memory, in a quarter of the instructions.
template <class Rule, class Source>
static __global__ void update_flat(ParameterArena arena, Split split, Source source) {
  const size_t thread = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  const Schedule s = source.template begin<Rule>();
  // exercise: the float4s between head and tail, then the single elements (about 10 lines)
  float4* w4 = reinterpret_cast<float4*>(arena.w + split.head);
  const float4* grad_w4 = reinterpret_cast<const float4*>(arena.grad_w + split.head);
  float4* m4 = reinterpret_cast<float4*>(arena.m + split.head);
  float4* v4 = reinterpret_cast<float4*>(arena.v + split.head);
  for (size_t i = thread; i < split.vectors; i += threads) update<Rule>(w4, grad_w4, m4, v4, i, s);
  for (size_t k = thread; k < split.head + split.tail; k += threads) {
    const size_t i = k < split.head ? k : k + 4 * split.vectors;
    update<Rule>(arena.w, arena.grad_w, arena.m, arena.v, i, s);
  }
  // end exercise
  source.end();
}

template <class Source>
static void launch_by(const Source& source, Kind kind, ParameterArena arena, hipStream_t stream) {
  if (states(kind) < 1) arena.m = arena.w;  // not used: aligned like w, and no null pointer to
  if (states(kind) < 2) arena.v = arena.w;  // add an offset to
  const Split split = vector_add::split_vectors(arena.n, {arena.w, arena.grad_w, arena.m, arena.v});
  visit_rule(kind, [&](auto rule) {
    LAUNCH_ON(stream, (update_flat<decltype(rule), Source>),
              std::max(vector_add::full_grid(split), 1u), kBlock, 0, arena, split, source);
  });
}

void launch_update(Kind kind, ParameterArena arena, const Schedule* schedule, hipStream_t stream) {
  if (arena.n > 0) launch_by(Begun{schedule}, kind, arena, stream);
}

void launch_counted_update(Kind kind, ParameterArena arena, const CountedStep& counted,
                           hipStream_t stream) {
  launch_by(CountedByLast{counted}, kind, arena, stream);
}

void launch_flat(Kind kind, const TensorList& list, const Schedule* schedule, hipStream_t stream) {
  launch_update(kind, list.arena(), schedule, stream);
}

}  // namespace optimizers
