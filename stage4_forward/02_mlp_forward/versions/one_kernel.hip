// one_kernel: the hidden values stay in shared memory; nothing waits for a second launch.
#include <algorithm>

#include "common/gpu.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage1_vector/03_dot/detail/block_sum.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage4_forward/02_mlp_forward/mlp_forward.h"

namespace mlp_forward {

static constexpr unsigned kBlock = 512;  // threads of a block
static constexpr int kSamples = 4;       // that it takes through the network together
static constexpr int kUnits = 4;         // of a layer that a wave computes at a time

template <class Store>
static __device__ inline void for_each_sum(const Layer& layer, const float* x, Store&& store);

// Y = W2 f(W1 X + b1) + b2    x (batch, in), y (batch, out); kSamples (in + hidden) floats fit.
// Fixes : fused_layers sends h to memory, and has a second launch read it that waits for the last
//         block of the first.
// Idea  : a sample needs no other one's hidden values: a block takes its samples through both
//         layers and keeps them in shared memory.
// Thread: a wave owns kUnits units of a layer at a time, for all samples of its block.
// Costs : every block reads all weights, out of the L2 cache; 2 barriers; kSamples (in + hidden)
//         floats of shared memory.
template <class Activation>
static __global__ void __launch_bounds__(kBlock)
    mlp_one_kernel(float* y, const float* x, size_t batch, Network network) {
  DYNAMIC_SHARED(float, shared);
  const size_t in = network.first.in, hidden = network.first.out, out = network.second.out;
  const size_t first_sample = size_t{blockIdx.x} * kSamples;
  float *x_here = shared, *h_here = shared + kSamples * in;
  for (size_t i = threadIdx.x; i < kSamples * in; i += kBlock)
    x_here[i] = first_sample + i / in < batch ? x[first_sample * in + i] : 0.0f;
  __syncthreads();  // the block's samples are in x_here
  for_each_sum(network.first, x_here, [&](int sample, size_t unit, float sum) {
    h_here[sample * hidden + unit] = Activation{}(sum);
  });
  __syncthreads();  // all their hidden values are in h_here
  for_each_sum(network.second, h_here, [&](int sample, size_t unit, float sum) {
    if (first_sample + sample < batch) y[(first_sample + sample) * out + unit] = sum;
  });
}

// clang-format off
// A layer's sums for kSamples rows of x in shared memory: calls store(sample, unit, sum + bias)
// once for each, in one lane. Needs all threads of the block.
//
//   x, shared for  s0 ----------    lanes 0 1 2 ... take neighbouring weights; each weight is used
//                  s1 ----------    for kSamples products and each x for kUnits; then the lanes
//   w, memory    unit ----------    add up. A wave owns kUnits units, the next wave the next ones.
// clang-format on
template <class Store>
static __device__ inline void for_each_sum(const Layer& layer, const float* x, Store&& store) {
  const size_t lane = static_cast<size_t>(gpu::lane_id());
  const size_t lanes = static_cast<size_t>(gpu::wave_size()), waves = kBlock / lanes;
  for (size_t first = static_cast<size_t>(gpu::wave_id()) * kUnits; first < layer.out;
       first += waves * kUnits) {
    const float* w[kUnits];  // beyond the last unit: that one again
    for (int u = 0; u < kUnits; ++u) w[u] = layer.w + min(first + u, layer.out - 1) * layer.in;
    float sums[kUnits][kSamples] = {};
    // exercise: this lane's share of the sums, then the wave's sums (about 10 lines)
    for (size_t k = lane; k < layer.in; k += lanes) {
      GPU_UNROLL
      for (int u = 0; u < kUnits; ++u) {
        const float weight = w[u][k];
        GPU_UNROLL
        for (int s = 0; s < kSamples; ++s) sums[u][s] += weight * x[s * layer.in + k];
      }
    }
    GPU_UNROLL
    for (int u = 0; u < kUnits; ++u) {
      GPU_UNROLL
      for (int s = 0; s < kSamples; ++s) sums[u][s] = dot::wave_sum(sums[u][s]);
    }
    // end exercise
    if (lane > 0) continue;
    for (int u = 0; u < kUnits && first + u < layer.out; ++u)
      for (int s = 0; s < kSamples; ++s) store(s, first + u, sums[u][s] + layer.bias[first + u]);
  }
}

template <class Activation>
void launch_one_kernel(float* y, float* h, const float* x, size_t batch, const Network& network,
                       hipStream_t stream) {
  check(network);
  constexpr size_t kMostBytes = 48 * 1024;  // of shared memory that every device has for a block
  const size_t in = network.first.in, hidden = network.first.out, out = network.second.out;
  const size_t bytes = sizeof(float) * kSamples * (in + hidden);
  if (in > kMostBytes || hidden > kMostBytes || bytes > kMostBytes)
    return launch_fused_layers<Activation>(y, h, x, batch, network, stream);
  if (batch == 0 || out == 0) return;
  gemm::check(dense::product(y, x, batch, network.first));  // y stands for h, which needs no memory
  gemm::check(dense::product(y, y, batch, network.second));
  constexpr size_t kMost = vector_add::kMaxThreads / kBlock * kSamples;  // samples of a grid
  for (size_t begin = 0; begin < batch; begin += kMost) {                // once, or batch is huge
    const size_t count = std::min(batch - begin, kMost);
    LAUNCH_ON(stream, (mlp_one_kernel<Activation>),
              static_cast<unsigned>(gpu::ceil_div(count, size_t{kSamples})), kBlock, bytes,
              y + begin * out, x + begin * in, count, network);
  }
}

// The functions that this file is compiled for.
template void launch_one_kernel<activations::Relu>(float*, float*, const float*, size_t,
                                                   const Network&, hipStream_t);
template void launch_one_kernel<activations::Sigmoid>(float*, float*, const float*, size_t,
                                                      const Network&, hipStream_t);

}  // namespace mlp_forward
