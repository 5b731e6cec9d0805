// One kernel for a whole epoch, where a step waits at a barrier of the grid.
#include <algorithm>

#include "common/gpu.h"
#include "stage5_training/04_optimizers/detail/rules.h"
#include "stage5_training/08_train_mnist/detail/block_pass.h"
#include "stage5_training/08_train_mnist/detail/resident.h"
#include "stage5_training/08_train_mnist/train_mnist.h"

namespace train_mnist {

// `steps` steps, all of one epoch    a block per kUnits units, all blocks at the same time.
// Fixes : a kernel forgets: each one loads the block's weights, and a step waits for two launches.
// Idea  : one kernel; the weights stay in shared memory and what the optimizer keeps in registers.
//         Where a kernel ended, the blocks wait for one another. What they exchange has two places,
//         used in turn: a block may still read the one while another is a step ahead.
// Thread: as in the two kernels; (word, half) also keeps m and v of its weights.
// Costs : one barrier of the grid and 6 of the block per step. kTile: the batch, 50 KB, is brought
//         to shared memory once, one step ahead.
template <class Rule, unsigned kUnits, bool kTile>
static __global__ void __launch_bounds__(kThreads)
    train_persistent(Network network, Samples samples, Sampler sampler, Schedule* schedule,
                     Exchange even, Exchange odd, float* curve, size_t steps) {
  DYNAMIC_SHARED(Shared<kUnits>, block);
  Shared<kUnits>& shared = *block;
  static_assert(sizeof(*block) % sizeof(uint4) == 0 && sizeof(Plan) % sizeof(uint4) == 0);
  Plan& plan = *reinterpret_cast<Plan*>(block + 1);
  auto tile = tile_behind<kTile>(plan, samples);
  const unsigned t = threadIdx.x, batch = static_cast<unsigned>(sampler.batch), word = t % kWords;
  const Schedule begin = *schedule;
  const size_t in_epoch = begin.step % sampler.steps_per_epoch();
  load_w1(shared, network);
  load_small(shared, network);
  Moments<kUnits> own;
  load_moments(own, network);

  for (size_t i = 0; i < steps; ++i) {
    const unsigned planned = static_cast<unsigned>(i % kAhead);
    if (planned == 0) {
      make_plan(plan, sampler, begin, i, steps);
      __syncthreads();  // the plan of the next kAhead steps is there
      if constexpr (kTile)
        if (i == 0) {
          tile.fetch(samples, plan.rows[0], batch);
          tile.keep(batch);
          __syncthreads();  // the first batch is in the tile
        }
    }
    const Exchange& exchange = i % 2 == 0 ? even : odd;
    const unsigned* rows = plan.rows[planned];
    const Schedule& now = plan.schedules[planned];
    const auto images = tile.images(rows);
    sum_pixels(shared, images, batch);
    __syncthreads();  // the parts of all sums are in scratch
    publish_units(shared, exchange, network.hidden);
    const unsigned label = t < batch ? samples.labels[rows[t]] : 0;
    if (i + 1 < steps) tile.fetch(samples, plan.rows[planned + 1], batch);
    gpu::grid_sync();  // what every block knows of its units is in global memory

    sum_units(shared, exchange, network.hidden);
    __syncthreads();  // the parts of all logits are in scratch
    if (t < batch) differentiate_sample(shared, t, label, batch);
    __syncthreads();  // the gradients of logits and own units are there; scratch is free

    float4 sums[kUnits];
    if (t < kWords * kHalves)
      sum_samples(sums, shared, images, batch);
    else
      update_small<Rule>(shared, now, curve + in_epoch + i, batch);
    __syncthreads();  // each half has the other's sums in scratch; the tile is free
    if (t < kWords * kHalves)
      for_owned(sums, shared, [&](unsigned unit, float4 grad) {
        optimizers::apply(Rule{}, shared.w1[unit][word], grad, own.m[unit / kHalves],
                          own.v[unit / kHalves], now);
      });
    if (i + 1 < steps) tile.keep(batch);
    __syncthreads();  // new weights and the next batch are there
  }

  store_w1(shared, own, network);
  store_small(shared, network);
  if (blockIdx.x == 0 && t == 0) *schedule = plan.schedules[(steps - 1) % kAhead];
}

// How persistent can run on this device: calls visit(kernel, bytes of shared memory, blocks) for
// the first choice whose blocks are all resident at the same time. Returns false where none is.
template <class Rule, unsigned kUnits, bool kTile, class Visit>
static bool try_persistent(size_t hidden, Visit&& visit) {
  const auto kernel = train_persistent<Rule, kUnits, kTile>;
  const size_t bytes = sizeof(Shared<kUnits>) + sizeof(Plan) + (kTile ? kSamples * kPixels : 0);
  if (bytes > gpu::max_shared_bytes()) return false;
  gpu::allow_shared_bytes(kernel, bytes);
  int resident = 0;
  HIP_CHECK(hipOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel,
                                                         static_cast<int>(kThreads), bytes));
  const size_t blocks = gpu::ceil_div(hidden, kUnits);
  if (blocks > static_cast<size_t>(resident) * gpu::multiprocessors()) return false;
  visit(kernel, bytes, static_cast<unsigned>(blocks));
  return true;
}
template <class Rule, class Visit>
static bool choose_persistent(size_t hidden, Visit&& visit) {
  return try_persistent<Rule, 1, true>(hidden, visit) ||
         try_persistent<Rule, 2, true>(hidden, visit) ||
         try_persistent<Rule, 2, false>(hidden, visit) ||
         try_persistent<Rule, kMostUnits, false>(hidden, visit);
}

void run_persistent(Training& t, size_t steps) {
  const std::uint64_t per_epoch = t.steps_per_epoch();
  while (steps > 0) {  // a launch does not cross an epoch's end
    const size_t part = std::min<size_t>(steps, per_epoch - t.steps % per_epoch);
    optimizers::visit_rule(t.settings.kind, [&](auto rule) {
      choose_persistent<decltype(rule)>(t.hidden, [&](auto kernel, size_t bytes, unsigned blocks) {
        LAUNCH_COOPERATIVE(kernel, blocks, kThreads, bytes, network_of(t), t.samples, t.sampler,
                           t.schedule.data(), exchange_of(t, 0), exchange_of(t, 1), t.curve.data(),
                           part);
      });
    });
    t.steps += part, steps -= part;
  }
}

std::string needs_residency(const Training& t) {
  if (const std::string why = takes_small_batches(t); !why.empty()) return why;
  bool possible = gpu::device_attribute(hipDeviceAttributeCooperativeLaunch) != 0;
  optimizers::visit_rule(t.settings.kind, [&](auto rule) {
    possible =
        possible && choose_persistent<decltype(rule)>(t.hidden, [](auto, size_t, unsigned) {});
  });
  if (possible) return "";
  return "its " + std::to_string(gpu::ceil_div(t.hidden, kMostUnits)) +
         " blocks do not fit the device at a time";
}

}  // namespace train_mnist
