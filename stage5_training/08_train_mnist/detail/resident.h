// What a block of persistent keeps from step to step beside its shared memory: the plan of the next
// steps, what the optimizer keeps of its weights, and the next batch on its way.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/gpu.h"
#include "stage5_training/04_optimizers/detail/rules.h"
#include "stage5_training/08_train_mnist/detail/block_pass.h"

namespace train_mnist {

// ---- The plan ---------------------------------------------------------------------------------

inline constexpr unsigned kAhead = 4 * kParts;  // steps that are planned at a time

// What the next steps need and all threads can find out at once: kept in shared memory. It would
// hold up each step to wait for the two powers of Adam's correction, which one thread computes.
struct Plan {
  unsigned rows[kAhead + 1][kSamples];  // their images, and those of the step behind them
  Schedule schedules[kAhead];
};

// Plans the steps from number `first` of a launch of `steps`; `begin` is the schedule before it.
__device__ inline void make_plan(Plan& plan, const Sampler& sampler, const Schedule& begin,
                                 size_t first, size_t steps) {
  const size_t in_epoch = begin.step % sampler.steps_per_epoch();
  const unsigned batch = static_cast<unsigned>(sampler.batch);
  const random_numbers::Permutation order = sampler.order(begin.step);
  for (unsigned i = threadIdx.x; i < (kAhead + 1) * kSamples; i += kThreads) {
    const size_t step = first + i / kSamples;
    if (i % kSamples < batch && step < steps)
      plan.rows[i / kSamples][i % kSamples] =
          static_cast<unsigned>(order((in_epoch + step) * batch + i % kSamples));
  }
  if (threadIdx.x < kAhead) {
    Schedule of_step = begin;
    of_step.step += first + threadIdx.x;
    optimizers::advance(of_step);
    plan.schedules[threadIdx.x] = of_step;
  }
}

// ---- What the optimizer keeps of w1 -----------------------------------------------------------

// Of the four weights `word` of every second unit of the block, in registers: see for_owned().
template <unsigned kUnits>
struct Moments {
  static constexpr unsigned kOwned = (kUnits + kHalves - 1) / kHalves;
  float4 m[kOwned] = {}, v[kOwned] = {};
};

// Calls visit(unit, offset in w1) for the weights that this thread owns.
template <unsigned kUnits, class Visit>
__device__ inline void visit_owned(unsigned hidden, Visit visit) {
  const unsigned word = threadIdx.x % kWords, half = threadIdx.x / kWords;
  GPU_UNROLL
  for (unsigned unit = 0; unit < kUnits; ++unit) {
    const unsigned row = blockIdx.x * kUnits + unit;
    if (threadIdx.x < kWords * kHalves && unit % kHalves == half && row < hidden)
      visit(unit, size_t{row} * kWords + word);
  }
}

template <unsigned kUnits>
__device__ inline void load_moments(Moments<kUnits>& own, const Network& network) {
  visit_owned<kUnits>(network.hidden, [&](unsigned unit, size_t i) {
    own.m[unit / kHalves] = reinterpret_cast<const float4*>(network.w1.m)[i];
    own.v[unit / kHalves] = reinterpret_cast<const float4*>(network.w1.v)[i];
  });
}

// Takes w1 back to global memory with its moments.
template <unsigned kUnits>
__device__ inline void store_w1(const Shared<kUnits>& shared, const Moments<kUnits>& own,
                                const Network& network) {
  const unsigned word = threadIdx.x % kWords;
  visit_owned<kUnits>(network.hidden, [&](unsigned unit, size_t i) {
    reinterpret_cast<float4*>(network.w1.w)[i] = shared.w1[unit][word];
    reinterpret_cast<float4*>(network.w1.m)[i] = own.m[unit / kHalves];
    reinterpret_cast<float4*>(network.w1.v)[i] = own.v[unit / kHalves];
  });
}

// ---- The next batch ---------------------------------------------------------------------------

// The batch of a step in shared memory, (kSamples, 784) bytes, and that of the next one on its way
// there: 7 loads of 16 bytes per thread, in flight during the barrier of the grid.
struct BatchTile {
  static constexpr unsigned kRow = kPixels / 16;  // uint4s of an image
  static constexpr unsigned kLoads = kSamples * kRow / kThreads;

  uint4* pixels;
  uint4 held[kLoads];

  __device__ explicit BatchTile(uint4* memory) : pixels(memory) {}
  __device__ void fetch(const Samples& samples, const unsigned* rows, unsigned batch) {
    GPU_UNROLL
    for (unsigned k = 0; k < kLoads; ++k) {
      const unsigned at = threadIdx.x + k * kThreads, sample = at / kRow;
      if (sample < batch)
        held[k] = reinterpret_cast<const uint4*>(samples.pixels +
                                                 size_t{rows[sample]} * kPixels)[at % kRow];
    }
  }
  __device__ void keep(unsigned batch) {
    GPU_UNROLL
    for (unsigned k = 0; k < kLoads; ++k) {
      const unsigned at = threadIdx.x + k * kThreads;
      if (at / kRow < batch) pixels[at] = held[k];
    }
  }
  __device__ TileImages images(const unsigned*) const {
    return {reinterpret_cast<const std::uint8_t*>(pixels)};
  }
};

// In its place where shared memory has no room for a batch: images are read where they lie.
struct BatchInPlace {
  const std::uint8_t* pixels;

  __device__ void fetch(const Samples&, const unsigned*, unsigned) {}
  __device__ void keep(unsigned) {}
  __device__ DataSetImages images(const unsigned* rows) const { return {pixels, rows}; }
};

// The one or the other; a tile lies behind the plan in shared memory.
template <bool kTile>
__device__ inline auto tile_behind(Plan& plan, const Samples& samples) {
  if constexpr (kTile)
    return BatchTile(reinterpret_cast<uint4*>(&plan + 1));
  else
    return BatchInPlace{samples.pixels};
}

}  // namespace train_mnist
