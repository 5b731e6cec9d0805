// multi_tensor: one launch for a table of tensors.
#include "stage5_training/04_optimizers/detail/rules.h"
#include "stage5_training/04_optimizers/optimizers.h"

namespace optimizers {

// w, m, v = rule(w, grad_w, m, v)    for each slice: (n), n at most kSlice, any alignment.
// Fixes : per_tensor pays a launch for a bias of ten floats, and its kernels can't overlap.
// Idea  : a table in device memory says where the tensors are, in slices of one block's work.
// Thread: thread t of block b owns the elements t, t + blockDim.x, ... of slice b.
// Costs : the same bytes, 40 more per slice, and the wait for them before the first load.
template <class Rule>
static __global__ void update_multi_tensor(const ParameterArena* slices, const Schedule* schedule) {
  // exercise: find this block's slice, and update it (about 4 lines)
  const ParameterArena slice = slices[blockIdx.x];
  const Schedule s = *schedule;
  for (size_t i = threadIdx.x; i < slice.n; i += blockDim.x)
    update<Rule>(slice.w, slice.grad_w, slice.m, slice.v, i, s);
  // end exercise
}

void launch_multi_tensor(Kind kind, const TensorList& list, const Schedule* schedule,
                         hipStream_t stream) {
  const gpu::DeviceBuffer<ParameterArena>& slices = list.slices();
  if (slices.size() == 0) return;
  visit_rule(kind, [&](auto rule) {
    LAUNCH_ON(stream, (update_multi_tensor<decltype(rule)>), static_cast<unsigned>(slices.size()),
              kBlock, 0, slices.data(), schedule);
  });
}

}  // namespace optimizers
