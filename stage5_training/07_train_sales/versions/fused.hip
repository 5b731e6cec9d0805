// Two kernels per step: the gradient, and the update that has to wait for all of it.
#include "common/gpu.h"
#include "stage5_training/04_optimizers/detail/rules.h"
#include "stage5_training/07_train_sales/detail/block_pass.h"
#include "stage5_training/07_train_sales/train_sales.h"

namespace train_sales {

// tile = the first `count` of the rows that row_of names; zeros behind them.
__device__ inline void load_tile(float4 (*tile)[kParts], const float4* rows, const size_t* row_of,
                                 unsigned count) {
  const unsigned sample = threadIdx.x / kParts, part = threadIdx.x % kParts;
  if (sample >= kTile) return;
  tile[sample][part] =
      sample < count ? rows[row_of[sample] * kParts + part] : make_float4(0, 0, 0, 0);
}

// block_sums[b] = gradients and loss of block b's samples, in slots
// block_sums (gridDim.x, kSlotParts).
// Fixes : every operation sends through memory what the next one reads again, and is a launch.
// Idea  : 833 parameters fit into every block: samples go forward and back in its registers.
// Thread: hidden unit threadIdx.x % kHidden, for the samples of its group in tiles b, b + G, ...
// Costs : the rows once; 4 kSlots gridDim.x bytes for the sums; 3 barriers for the first tile.
static __global__ void __launch_bounds__(kThreads)
    train_fused(float4* block_sums, const float4* rows, const float* w, Places places,
                Sampler sampler, const Schedule* schedule) {
  __shared__ float4 weights[kSlotParts];
  __shared__ float4 tile[kTile][kParts];
  __shared__ size_t row_of[kTile];
  __shared__ float of_groups[kGroups][kSlots];
  const unsigned group = threadIdx.x / kHidden;
  const float scale = losses::squared_error_scale(sampler.batch);
  if (threadIdx.x < kSlotParts) weights[threadIdx.x] = load_slots(w, places, threadIdx.x);
  Unit gradient = {};
  float loss = 0;
  for (size_t first = size_t{blockIdx.x} * kTile; first < sampler.batch;
       first += size_t{gridDim.x} * kTile) {
    const unsigned count = static_cast<unsigned>(
        sampler.batch - first < kTile ? sampler.batch - first : size_t{kTile});
    if (threadIdx.x < count) row_of[threadIdx.x] = sampler.row(schedule->step, first + threadIdx.x);
    __syncthreads();  // the tile's rows are known; nobody reads the tile before any more
    load_tile(tile, rows, row_of, count);
    __syncthreads();  // the weights and the tile are there
    const Unit unit = load_unit(reinterpret_cast<const float*>(weights), threadIdx.x % kHidden);
    float sums[kSamples], y[kSamples];
    forward_tile(sums, y, unit, tile);
    GPU_UNROLL
    for (unsigned s = 0; s < kSamples; ++s) {
      const float4* row = tile[group + s * kGroups];
      const float error = error_of(y[s], unit, row, group + s * kGroups, count);
      // exercise: add to the loss and to the gradients of all that this thread has (about 13 lines)
      loss = fmaf(error, error, loss);
      const float grad_y = scale * error;
      gradient.out_bias += grad_y;
      gradient.out_weight = fmaf(grad_y, fmaxf(sums[s], 0.0f), gradient.out_weight);
      const float grad_sum = sums[s] > 0 ? grad_y * unit.out_weight : 0.0f;
      gradient.row[kFeatures] += grad_sum;
      GPU_UNROLL
      for (unsigned part = 0; part < kFeatureParts; ++part) {
        const float4 x = row[part];
        gradient.row[4 * part] = fmaf(grad_sum, x.x, gradient.row[4 * part]);
        gradient.row[4 * part + 1] = fmaf(grad_sum, x.y, gradient.row[4 * part + 1]);
        gradient.row[4 * part + 2] = fmaf(grad_sum, x.z, gradient.row[4 * part + 2]);
        gradient.row[4 * part + 3] = fmaf(grad_sum, x.w, gradient.row[4 * part + 3]);
      }
      // end exercise
    }
  }
  sum_block(block_sums + blockIdx.x * kSlotParts, of_groups, gradient, loss);
}

// w, m, v = rule(w, sum of the blocks' gradients, m, v), the curve's next loss, and the next step's
// number    sums (blocks, kSlotParts), one block.
// Fixes : a block of train_fused can't know when the others have left their sums.
// Idea  : the end of a kernel is a barrier of the grid; what is left fits into one block.
// Thread: t owns the slots 4 t to 4 t + 3; the last thread, which has none, begins the step.
// Costs : 4 kSlots blocks bytes of global memory; 1 barrier; two powers in double beside the sums.
template <class Rule>
static __global__ void __launch_bounds__(kThreads)
    update_fused(const float4* sums, unsigned blocks, ParameterArena arena, Places places,
                 float* curve, Sampler sampler, Schedule* schedule) {
  if (threadIdx.x == kThreads - 1) optimizers::advance(*schedule);
  float4 sum = make_float4(0, 0, 0, 0);
  if (threadIdx.x < kSlotParts) sum = sum_of_blocks(sums, blocks);
  __syncthreads();  // the step has begun
  if (threadIdx.x >= kSlotParts) return;
  const Schedule begun = *schedule;
  Owned own = load_owned<Rule>(arena, places);
  optimizers::apply(Rule{}, own.w, sum, own.m, own.v, begun);
  store_owned<Rule>(arena, places, own);
  if (has_loss(threadIdx.x))
    curve[(begun.step - 1) % sampler.steps_per_epoch()] = sum.y / static_cast<float>(sampler.batch);
}

static void queue_fused(Training& t) {
  const unsigned blocks = blocks_for(t.batch);
  const ParameterArena& arena = t.model.arena();
  const Places places = places_of(t.model);
  LAUNCH_ON(t.stream, train_fused, blocks, kThreads, 0, t.sums.data(), t.rows, arena.w, places,
            t.sampler, t.schedule.data());
  optimizers::visit_rule(t.settings.kind, [&](auto rule) {
    LAUNCH_ON(t.stream, (update_fused<decltype(rule)>), 1, kThreads, 0, t.sums.data(), blocks,
              arena, places, t.curve.data(), t.sampler, t.schedule.data());
  });
}

void run_fused(Training& t, size_t steps) {
  t.replay(steps, "fused", [&] { queue_fused(t); });
}

}  // namespace train_sales
