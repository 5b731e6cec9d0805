// The second kernel of per_image: the sums of the images' gradients, and the rule; and the images
// of the next step.
#pragma once

#include "common/gpu.h"
#include "stage1_vector/03_dot/detail/block_sum.h"
#include "stage5_training/04_optimizers/detail/rules.h"
#include "stage6_cnn/04_train_cnn/detail/dense_pass.h"
#include "stage6_cnn/04_train_cnn/detail/image_memory.h"

namespace train_cnn {

using optimizers::Schedule;
using train_toy::Sampler;

// The second kernel's blocks: a thread for each of kColumns numbers and kGroups groups of images.
inline constexpr unsigned kColumns = 49, kGroups = 8, kUpdateThreads = kColumns * kGroups;
inline constexpr unsigned kPieces = kWords3 / kColumns;  // blocks side by side in a row of w3
static_assert(kPieces * kColumns == kWords3);

// The parameter whose gradient is at `column` of an image's parts: calls visit(tensor, offset).
template <class Visit>
__device__ inline void visit_column(const Weights& network, const Row& row, unsigned column,
                                    Visit visit) {
  if (column < row.b1) return visit(network.w1, column);
  if (column < row.w2) return visit(network.b1, column - row.b1);
  if (column < row.b2) return visit(network.w2, column - row.w2);
  if (column < row.b3) return visit(network.b2, column - row.b2);
  if (column < row.w4()) return visit(network.b3, column - row.b3);
  if (column < row.b4()) return visit(network.w4, column - row.w4());
  visit(network.b4, column - row.b4());
}

// w, m, v of all parameters, the step's loss, and the images of the next step.
// Fixes : a product, a sum of rows for each bias, and the optimizer are as many kernels, and hand
//         gradients through memory that are read once.
// Idea  : the block that has summed a gradient over the images owns its parameter.
// Thread: (column, group) sums a column over every eighth image: of w3 four neighbouring weights of
//         four hidden units, of all others one parameter. Then the first ones add up the groups.
// Costs : reads the features 16 times and the parts once, 4 MB from the L2 cache; 1 barrier.
template <class Rule>
static __global__ void __launch_bounds__(kUpdateThreads)
    update_parameters(Weights network, Sampler sampler, const Schedule* schedule, Handover exchange,
                      float* curve) {
  __shared__ float4 sums[kGroups][kAtOnce][kColumns];
  const unsigned t = threadIdx.x, column = t % kColumns, group = t / kColumns;
  const unsigned batch = static_cast<unsigned>(sampler.batch), hidden = network.hidden;
  const Row row{hidden};
  const unsigned blocks3 = (hidden + kAtOnce - 1) / kAtOnce * kPieces;
  const Schedule now = *schedule;

  if (blockIdx.x < blocks3) {
    const unsigned first_unit = blockIdx.x / kPieces * kAtOnce;
    const unsigned word = blockIdx.x % kPieces * kColumns + column;
    const unsigned unit = first_unit + group;  // of the weights that this thread owns, if any
    const bool owns = group < kAtOnce && unit < hidden;
    const size_t at = owns ? size_t{unit} * kWords3 + word : 0;
    float4 w{}, m{}, v{};
    if (owns) {  // on their way from now on
      w = reinterpret_cast<const float4*>(network.w3.w)[at];
      m = reinterpret_cast<const float4*>(network.w3.m)[at];
      v = reinterpret_cast<const float4*>(network.w3.v)[at];
    }
    float4 parts[kAtOnce];
    for (unsigned k = 0; k < kAtOnce; ++k) parts[k] = make_float4(0, 0, 0, 0);
    for (unsigned image = group; image < batch; image += kGroups) {
      const float4 features =
          reinterpret_cast<const float4*>(exchange.features)[size_t{image} * kWords3 + word];
      const float* grads = exchange.parts + size_t{image} * row.end() + row.b3 + first_unit;
      for (unsigned k = 0; k < kAtOnce; ++k)  // beyond the last unit: w4's, used for nothing
        add_scaled(parts[k], grads[k], features);
    }
    for (unsigned k = 0; k < kAtOnce; ++k) sums[group][k][column] = parts[k];
    __syncthreads();  // the groups' sums are there
    if (!owns) return;
    float4 grad = make_float4(0, 0, 0, 0);
    for (unsigned g = 0; g < kGroups; ++g) add_scaled(grad, 1.0f, sums[g][group][column]);
    optimizers::apply(Rule{}, w, grad, m, v, now);
    reinterpret_cast<float4*>(network.w3.w)[at] = w;
    reinterpret_cast<float4*>(network.w3.m)[at] = m;
    reinterpret_cast<float4*>(network.w3.v)[at] = v;
  } else if (blockIdx.x < gridDim.x - 1) {
    const unsigned own = (blockIdx.x - blocks3) * kColumns + column;
    float part = 0;
    if (own < row.end())
      for (unsigned image = group; image < batch; image += kGroups)
        part += exchange.parts[size_t{image} * row.end() + own];
    sums[group][0][column].x = part;
    __syncthreads();  // the groups' sums are there
    if (group > 0 || own >= row.end()) return;
    float grad = 0;
    for (unsigned g = 0; g < kGroups; ++g) grad += sums[g][0][column].x;
    visit_column(network, row, own, [&](const optimizers::ParameterArena& tensor, unsigned i) {
      Rule{}(tensor.w[i], grad, tensor.m[i], tensor.v[i], now);
    });
  } else {
    const unsigned lanes = static_cast<unsigned>(gpu::wave_size());
    for (unsigned i = t; i < batch; i += kUpdateThreads)
      exchange.rows[i] = static_cast<unsigned>(sampler.order(now.step)(sampler.place(now.step, i)));
    if (gpu::wave_id() != 0) return;
    float loss = 0;
    for (unsigned i = t; i < batch; i += lanes) loss += exchange.losses[i];
    loss = dot::wave_sum(loss);
    if (t == 0)
      curve[(now.step - 1) % sampler.steps_per_epoch()] = loss / static_cast<float>(batch);
  }
}

// rows = the images of the step that begins.
// Fixes : each step's images are chosen at the end of the step before; the first has none.
// Idea  : the same once more.
// Thread: t chooses the images t, t + T, ...
// Costs : one launch for as many steps as are asked for.
static __global__ void choose_rows(unsigned* rows, Sampler sampler, const Schedule* schedule) {
  const std::uint64_t step = schedule->step;
  for (size_t i = threadIdx.x; i < sampler.batch; i += blockDim.x)
    rows[i] = static_cast<unsigned>(sampler.order(step)(sampler.place(step, i)));
}

}  // namespace train_cnn
