// One kernel for an epoch: what a step waits for is a barrier of the grid.
#include <algorithm>

#include "common/gpu.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage5_training/04_optimizers/detail/rules.h"
#include "stage5_training/06_train_toy/detail/schedules.h"
#include "stage5_training/07_train_sales/detail/block_pass.h"
#include "stage5_training/07_train_sales/train_sales.h"

namespace train_sales {

// shuffled[i] = the row that is at place i of this epoch    rows, shuffled (n, kParts).
// Fixes : a block of train_fused waits until a few threads have found out its rows.
// Idea  : the whole device does an epoch's shuffling at once; batches then lie one behind another.
// Thread: t owns part t % kParts of row t / kParts.
// Costs : 32 kParts n bytes of global memory per epoch, and as much memory again as the rows take.
static __global__ void shuffle_rows(float4* shuffled, const float4* rows, Sampler sampler,
                                    const Schedule* schedule) {
  const Permutation order = sampler.order(schedule->step);
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < sampler.samples * kParts;
       i += threads)
    shuffled[i] = rows[order(i / kParts) * kParts + i % kParts];
}

// The rows of an epoch in their order, and the number of the step behind the last to be done.
struct Epoch {
  const float4* shuffled;
  Sampler sampler;
  size_t end;
};

// This thread's part of the tile that begins with sample `first` of a step.
__device__ inline float4 load_part(const Epoch& epoch, size_t step, size_t first) {
  const unsigned sample = threadIdx.x / kParts, part = threadIdx.x % kParts;
  const size_t batch = epoch.sampler.batch;
  const bool is_there = sample < kTile && step < epoch.end && first + sample < batch;
  return is_there ? epoch.shuffled[(step * batch + first + sample) * kParts + part]
                  : make_float4(0, 0, 0, 0);
}

// Adds this block's samples of a step to the unit's gradient and to the loss. `next` is this
// thread's part of the step's first tile, and becomes that of the next step's.
__device__ inline void add_step(Unit& gradient, float& loss, float4& next, float4 (*tile)[kParts],
                                const float4* weights, const Epoch& epoch, size_t step) {
  const unsigned sample = threadIdx.x / kParts, part = threadIdx.x % kParts;
  const size_t batch = epoch.sampler.batch;
  const size_t first_tile = size_t{blockIdx.x} * kTile, stride = size_t{gridDim.x} * kTile;
  for (size_t first = first_tile; first < batch; first += stride) {
    if (sample < kTile) tile[sample][part] = next;
    __syncthreads();  // the weights and the tile are there
    // The next tile is on its way while this one is worked on.
    const bool last = first + stride >= batch;
    next = last ? load_part(epoch, step + 1, first_tile) : load_part(epoch, step, first + stride);
    const Unit unit = load_unit(reinterpret_cast<const float*>(weights), threadIdx.x % kHidden);
    const size_t left = batch - first;
    add_tile(gradient, loss, unit, tile, static_cast<unsigned>(left < kTile ? left : kTile),
             losses::squared_error_scale(batch));
    if (!last) __syncthreads();  // nobody reads this tile any more
  }
}

// `steps` steps of an epoch    shuffled (rows, kParts), sums (2, gridDim.x, kSlotParts), schedules
// (steps) of these steps, *schedule the one before them.
// Fixes : fused begins every step with two launches, the weights' way from memory, and cold rows.
// Idea  : blocks stay; they exchange sums, wait for one another once, and each updates all weights.
// Thread: as in train_fused; also the slots 4 t to 4 t + 3 of w, m and v, in registers all along.
// Costs : a barrier of the grid per step; 4 kSlots gridDim.x bytes read by every block.
template <class Rule>
static __global__ void GPU_LAUNCH_BOUNDS(kThreads, 1)
    train_persistent(float4* sums, const float4* shuffled, ParameterArena arena, Places places,
                     float* curve, Sampler sampler, Schedule* schedule, const Schedule* schedules,
                     size_t steps) {
  __shared__ float4 weights[kSlotParts];
  __shared__ float4 tile[kTile][kParts];
  __shared__ float of_groups[kGroups][kSlots];
  const bool has_slots = threadIdx.x < kSlotParts;
  Owned own = {};
  if (has_slots) {
    own = load_owned<Rule>(arena, places);
    weights[threadIdx.x] = own.w;
  }
  const size_t begin = schedule->step % sampler.steps_per_epoch();  // step of the epoch
  const Epoch epoch = {shuffled, sampler, begin + steps};
  float4 next = load_part(epoch, begin, size_t{blockIdx.x} * kTile);
  for (size_t step = begin; step < epoch.end; ++step) {
    Unit gradient = {};
    float loss = 0;
    add_step(gradient, loss, next, tile, weights, epoch, step);
    // Two sets of sums in turn: whoever is ahead writes into the one that nobody reads.
    float4* const of_step = sums + step % 2 * gridDim.x * kSlotParts;
    sum_block(of_step + blockIdx.x * kSlotParts, of_groups, gradient, loss);
    const Schedule begun = schedules[step - begin];
    gpu::grid_sync();  // the sums of all blocks are there
    if (has_slots) {
      const float4 sum = sum_of_blocks(of_step, gridDim.x);
      optimizers::apply(Rule{}, own.w, sum, own.m, own.v, begun);
      weights[threadIdx.x] = own.w;
      if (blockIdx.x == 0 && has_loss(threadIdx.x))
        curve[step] = sum.y / static_cast<float>(sampler.batch);
    }
  }
  if (blockIdx.x > 0 || !has_slots) return;
  store_owned<Rule>(arena, places, own);
  if (threadIdx.x == 0) *schedule = schedules[steps - 1];
}

void run_persistent(Training& t, size_t steps) {
  const unsigned threads = vector_add::kBlock;
  const size_t per_epoch = t.steps_per_epoch();
  if (t.shuffled.size() == 0) {
    t.shuffled = DeviceBuffer<float4>(t.sampler.samples * kParts);
    t.schedules = DeviceBuffer<Schedule>(per_epoch);
  }
  Schedule* const schedule = t.schedule.data();
  while (steps > 0) {
    const size_t count = std::min(steps, per_epoch - t.steps % per_epoch);
    LAUNCH(shuffle_rows, vector_add::full_grid(t.shuffled.size()), threads, 0, t.shuffled.data(),
           t.rows, t.sampler, schedule);
    LAUNCH(train_toy::fill_schedules, static_cast<unsigned>(gpu::ceil_div(count, threads)), threads,
           0, t.schedules.data(), t.settings.hyper, static_cast<unsigned>(t.steps),
           static_cast<unsigned>(count));
    optimizers::visit_rule(t.settings.kind, [&](auto rule) {
      LAUNCH_COOPERATIVE((train_persistent<decltype(rule)>), blocks_for(t.batch), kThreads, 0,
                         t.sums.data(), t.shuffled.data(), t.model.arena(), places_of(t.model),
                         t.curve.data(), t.sampler, schedule, t.schedules.data(), count);
    });
    t.steps += count, steps -= count;
  }
}

}  // namespace train_sales
