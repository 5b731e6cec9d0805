// Two kernels per step, where the backward pass has to wait for all hidden units.
#include <type_traits>

#include "common/gpu.h"
#include "stage5_training/04_optimizers/detail/rules.h"
#include "stage5_training/08_train_mnist/detail/block_pass.h"
#include "stage5_training/08_train_mnist/train_mnist.h"

namespace train_mnist {

// h and w2 of all hidden units, in `exchange`, of the next batch    a block per kUnits units.
// Fixes : an operation's kernel reads from memory what the one before has just written there.
// Idea  : all that a block's units need until they meet the others, from bytes to ReLU, at once.
// Thread: (sample, part) sums a seventh of the pixels for all units of the block.
// Costs : every block reads the whole batch, 50 KB from the L2 cache; 2 barriers.
template <unsigned kUnits>
static __global__ void __launch_bounds__(kThreads)
    forward_units(Network network, Samples samples, Sampler sampler, Schedule* schedule,
                  Exchange exchange, std::uint64_t* position, unsigned* rows) {
  DYNAMIC_SHARED(Shared<kUnits>, block);
  Shared<kUnits>& shared = *block;
  const unsigned t = threadIdx.x, batch = static_cast<unsigned>(sampler.batch);
  const std::uint64_t step = *position;  // the schedule's own step changes below
  __shared__ unsigned images[kSamples];
  load_w1(shared, network);
  load_small(shared, network);
  if (t < batch) {
    const std::uint64_t row = sampler.order(step)(sampler.place(step, t));
    images[t] = static_cast<unsigned>(row);
    if (blockIdx.x == 0) rows[t] = static_cast<unsigned>(row);
  }
  __syncthreads();  // weights and rows are in shared memory
  sum_pixels(shared, DataSetImages{samples.pixels, images}, batch);
  __syncthreads();  // the parts of all sums are in scratch
  publish_units(shared, exchange, network.hidden);
  if (blockIdx.x == 0 && t < kClasses) {  // block 0 of the next kernel changes b2 itself
    exchange.b2.w[t] = network.b2.w[t];
    exchange.b2.m[t] = network.b2.m[t], exchange.b2.v[t] = network.b2.v[t];
  }
  if (blockIdx.x == 0 && t == 0) optimizers::advance(*schedule);
}

// The outputs of the own units that forward_units has left.
template <unsigned kUnits>
__device__ inline void load_units(Shared<kUnits>& shared, const Exchange& from, unsigned hidden) {
  for (unsigned i = threadIdx.x; i < kUnits * kSamples; i += kThreads) {
    const unsigned unit = blockIdx.x * kUnits + i / kSamples;
    shared.h[i / kSamples][i % kSamples] =
        unit < hidden ? from.h[unit * kSamples + i % kSamples] : 0.0f;
  }
}

// What a thread for each sample does: its logits, its loss, their gradient, and the gradient of
// the own units' sums.
template <unsigned kUnits>
__device__ inline void differentiate(Shared<kUnits>& shared, unsigned sample, unsigned label,
                                     unsigned batch) {
  float logits[kPadded];  // of kClasses classes; at first their exponentials
  const float sum = exponentials(logits, shared, sample, label);
  // exercise: grad_logits = (probability - one_hot) / batch, in place of the exponentials; and per
  // own unit grad_h = grad_logits . its column of w2, where h > 0 (about 11 lines)
  const float inverse_sum = 1.0f / sum, weight = 1.0f / static_cast<float>(batch);
  GPU_UNROLL
  for (unsigned c = 0; c < kClasses; ++c)
    logits[c] = weight * (logits[c] * inverse_sum - (c == label ? 1.0f : 0.0f));
  for (unsigned unit = 0; unit < kUnits; ++unit) {
    float grad = 0;
    GPU_UNROLL
    for (unsigned c = 0; c < kClasses; ++c)
      grad = fmaf(logits[c], shared.small_w[unit * kClasses + c], grad);
    shared.grad_h[sample][unit] = grad * activations::Relu{}.derivative(shared.h[unit][sample]);
  }
  // end exercise
  keep_gradients(shared, sample, logits);
}

// The rest of the step: its loss, and new weights    a block per kUnits units.
// Fixes : gradients go to memory, to be read once by the optimizer.
// Idea  : the block that has summed a gradient owns its weight, and applies the rule at once.
// Thread: (sample, part) for the logits, (word, half) for the gradients of w1.
// Costs : every block computes all logits; 5 barriers; the kernel's end lets the others go on.
template <class Rule, unsigned kUnits>
static __global__ void __launch_bounds__(kThreads)
    backward_units(Network network, Samples samples, Sampler sampler, const Schedule* schedule,
                   Exchange exchange, std::uint64_t* position, const unsigned* rows, float* curve) {
  DYNAMIC_SHARED(Shared<kUnits>, block);
  Shared<kUnits>& shared = *block;
  const unsigned t = threadIdx.x, batch = static_cast<unsigned>(sampler.batch);
  const std::uint64_t step = schedule->step - 1;
  Network copied = network;
  copied.b2 = exchange.b2;
  load_small(shared, copied);
  load_units(shared, exchange, network.hidden);
  __shared__ unsigned images[kSamples];
  if (t < batch) images[t] = rows[t];
  sum_units(shared, exchange, network.hidden);
  __syncthreads();  // the parts of all logits are in scratch, and what is loaded above is there
  if (t < batch) differentiate(shared, t, samples.labels[images[t]], batch);
  __syncthreads();  // the gradients of the logits and of the own units are there; scratch is free
  float4 sums[kUnits];
  if (t < kWords * kHalves)
    sum_samples(sums, shared, DataSetImages{samples.pixels, images}, batch);
  else
    update_small<Rule>(shared, *schedule, curve + step % sampler.steps_per_epoch(), batch);
  __syncthreads();  // each half has the other's sums in scratch; small_w is new
  const Schedule s = *schedule;
  if (t < kWords * kHalves)
    for_owned(sums, shared, [&](unsigned unit, float4 grad) {
      const size_t row = blockIdx.x * kUnits + unit;
      if (row >= network.hidden) return;
      const size_t i = row * kWords + t % kWords;
      float4& w = reinterpret_cast<float4*>(network.w1.w)[i];
      float4& m = reinterpret_cast<float4*>(network.w1.m)[i];
      float4& v = reinterpret_cast<float4*>(network.w1.v)[i];
      optimizers::apply(Rule{}, w, grad, m, v, s);
    });
  store_small(shared, network);
  if (blockIdx.x == 0 && t == 0) *position = step + 1;
}

// Calls visit(std::integral_constant) with 1, 2 or kMostUnits.
template <class Visit>
static void visit_units(unsigned units, Visit&& visit) {
  if (units == 1) return visit(std::integral_constant<unsigned, 1>{});
  if (units == 2) return visit(std::integral_constant<unsigned, 2>{});
  visit(std::integral_constant<unsigned, kMostUnits>{});
}

// As few hidden units per block as give every multiprocessor at most one block, and no more than
// kMostUnits.
static unsigned fused_units(size_t hidden) {
  for (const unsigned units : {1u, 2u})
    if (gpu::ceil_div(hidden, units) <= gpu::multiprocessors()) return units;
  return kMostUnits;
}

void queue_fused(Training& t) {
  const Network network = network_of(t);
  const Exchange exchange = exchange_of(t, 0);
  Schedule* schedule = t.schedule.data();
  visit_units(fused_units(network.hidden), [&](auto units) {
    constexpr unsigned kUnits = decltype(units)::value;
    constexpr size_t kBytes = sizeof(Shared<kUnits>);
    static_assert(kBytes <= 48 * 1024, "more needs gpu::allow_shared_bytes");
    const unsigned blocks = static_cast<unsigned>(gpu::ceil_div(network.hidden, kUnits));
    LAUNCH_ON(t.stream, (forward_units<kUnits>), blocks, kThreads, kBytes, network, t.samples,
              t.sampler, schedule, exchange, t.position.data(), t.rows.data());
    optimizers::visit_rule(t.settings.kind, [&](auto rule) {
      LAUNCH_ON(t.stream, (backward_units<decltype(rule), kUnits>), blocks, kThreads, kBytes,
                network, t.samples, t.sampler, schedule, exchange, t.position.data(), t.rows.data(),
                t.curve.data());
    });
  });
}

void run_fused(Training& t, size_t steps) {
  HIP_CHECK(hipMemcpyAsync(t.position.data(), &t.schedule.data()->step, sizeof(std::uint64_t),
                           hipMemcpyDeviceToDevice, t.stream));
  t.replay(steps, "fused", [&] { queue_fused(t); });
}

}  // namespace train_mnist
