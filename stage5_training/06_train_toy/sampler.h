// Which samples of a data set a step takes, the same on host and device: the number of the step
// says it, so that nothing has to be shuffled or copied, and a kernel's arguments never change.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/random.h"
#include "stage5_training/04_optimizers/optimizers.h"

namespace train_toy {

// An epoch walks through all samples in an order of its own, `batch` at a time, and drops what does
// not fill its last batch. Steps count from 0; batch is from 1 to `samples`.
struct Sampler {
  size_t samples, batch;
  std::uint64_t seed;

  __host__ __device__ size_t steps_per_epoch() const { return samples / batch; }
  // The order of the epoch that this step is in.
  __host__ __device__ random_numbers::Permutation order(std::uint64_t step) const {
    return {samples, seed, static_cast<std::uint32_t>(step / steps_per_epoch())};
  }
  // Where in that order the step's sample i is.
  __host__ __device__ size_t place(std::uint64_t step, size_t i) const {
    return step % steps_per_epoch() * batch + i;
  }
  // The number of the step's sample i in the data set.
  __host__ __device__ size_t row(std::uint64_t step, size_t i) const {
    return order(step)(place(step, i));
  }
};

// The sampler. Throws std::invalid_argument, which calls the samples by this name, where they do
// not fill a batch.
Sampler require_batch(const Sampler& sampler, const char* samples);

// Which sample of the data set is sample i of a batch, for kernels that fetch it: the next of a
// training, or the next of a test.
struct Shuffled {
  Sampler sampler;
  const optimizers::Schedule* schedule;  // of the step that begins
  __device__ size_t operator()(size_t i) const { return sampler.row(schedule->step, i); }
};
struct InOrder {
  size_t first;
  __device__ size_t operator()(size_t i) const { return first + i; }
};

}  // namespace train_toy
