// 4.2  mlp_forward: a network of two layers, y = W2 f(W1 x + b1) + b2, for a batch of samples.
//
//   x (batch, in)  ->  h (batch, hidden)  ->  y (batch, out)      row-major, without gaps
//
// The layers are those of step 4.1, one after the other. A hidden value is made by one launch, kept
// in memory, and read by the next: the ladder takes away the launches within a layer, then the one
// between the layers, and with it the memory for h.
//
// Any sizes (0 too), all arrays on the device and aligned to 4 bytes. y and h overlap nothing else.
// Launchers throw std::invalid_argument where an array that is needed is null, or where the second
// layer does not take what the first one makes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/gpu.h"
#include "common/program.h"
#include "stage1_vector/03_dot/detail/block_sum.h"
#include "stage4_forward/01_dense/dense.h"
#include "stage4_forward/01_dense/reference.h"

namespace mlp_forward {

using dense::Layer;
using dense::Linear;
using dense::Values;

struct Network {
  Layer first, second;  // first.out == second.in: the hidden units
};

// ---- Reference --------------------------------------------------------------------------------

// A network's parameters on the host, each as Layer says.
struct Parameters {
  std::vector<float> w1, bias1, w2, bias2;
};

// W2 f(W1 x + b1) + b2 for `batch` samples, with the bound that step 4.1 derives from layer to
// layer.
template <class Activation>
Values mlp_cpu(const std::vector<float>& x, const Parameters& p, size_t batch) {
  const Values h = dense::dense_cpu<Activation>(dense::exactly(x), p.w1, p.bias1, batch);
  return dense::dense_cpu<Linear>(h, p.w2, p.bias2, batch);
}

// ---- What all versions share ------------------------------------------------------------------

inline void check(const Network& network) {
  if (network.first.out != network.second.in)
    throw std::invalid_argument(
        "mlp_forward: the first layer makes " + std::to_string(network.first.out) +
        " values and the second takes " + std::to_string(network.second.in));
}

// ---- Layer by layer, every operation a launch -------------------------------------------------

// Five launches: product, bias, activation; product, bias.
template <class Activation>
inline void launch_separate(float* y, float* h, const float* x, size_t batch,
                            const Network& network, hipStream_t stream = nullptr) {
  check(network);
  const gemv::Workspace none{nullptr};
  dense::launch_separate<Activation>(h, x, batch, network.first, none, stream);
  dense::launch_separate<Linear>(y, h, batch, network.second, none, stream);
}

// ---- Layer by layer, one launch each ----------------------------------------------------------

// Two launches. h goes to memory once and comes back once.
template <class Activation>
inline void launch_fused_layers(float* y, float* h, const float* x, size_t batch,
                                const Network& network, hipStream_t stream = nullptr) {
  check(network);
  // exercise: step 4.1's forward, twice (about 2 lines)
  dense::forward<Activation>(h, x, batch, network.first, stream);
  dense::forward<Linear>(y, h, batch, network.second, stream);
  // end exercise
}

// ---- The network in one kernel ----------------------------------------------------------------

inline constexpr unsigned kBlock = 512;  // threads of a block of one_kernel
inline constexpr int kSamples = 4;       // that it takes through the network together
inline constexpr int kUnits = 4;         // of a layer that a wave computes at a time
inline constexpr size_t kSharedBytes = 48 * 1024;

// A layer's sums for kSamples rows of x in shared memory: calls store(sample, unit, sum + bias)
// once for each, in one lane. Needs all threads of the block.
//
//   x, shared    s0 ----------      lanes 0 1 2 ... take neighbouring weights, each weight is used
//   for
//                s1 ----------      kSamples products and each x for kUnits; then the lanes add up.
//   w, memory    unit ---------     A wave owns units kUnits w ... , the next wave the next ones.
template <class Store>
__device__ inline void for_each_sum(const Layer& layer, const float* x, Store&& store) {
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

inline size_t shared_bytes(const Network& network) {
  return sizeof(float) * kSamples * (network.first.in + network.first.out);
}

// One launch; h is not used. Networks too wide for the shared memory are left to fused_layers.
template <class Activation>
inline void launch_one_kernel(float* y, float* h, const float* x, size_t batch,
                              const Network& network, hipStream_t stream = nullptr) {
  check(network);
  const size_t in = network.first.in, hidden = network.first.out, out = network.second.out;
  if (in > kSharedBytes || hidden > kSharedBytes || shared_bytes(network) > kSharedBytes)
    return launch_fused_layers<Activation>(y, h, x, batch, network, stream);
  if (batch == 0 || out == 0) return;
  gemm::check(dense::product(y, x, batch, network.first));  // y stands for h, which needs no memory
  gemm::check(dense::product(y, y, batch, network.second));
  constexpr size_t kMost = vector_add::kMaxThreads / kBlock * kSamples;  // samples of a grid
  for (size_t begin = 0; begin < batch; begin += kMost) {                // once, or batch is huge
    const size_t count = std::min(batch - begin, kMost);
    LAUNCH_ON(stream, (mlp_one_kernel<Activation>),
              static_cast<unsigned>(gpu::ceil_div(count, size_t{kSamples})), kBlock,
              shared_bytes(network), y + begin * out, x + begin * in, count, network);
  }
}

// ---- The versions -----------------------------------------------------------------------------

// h (batch, hidden) is memory for the hidden values.
using Launch = void (*)(float* y, float* h, const float* x, size_t batch, const Network& network,
                        hipStream_t stream);

// The same versions for every function: kVersions<Relu>, kVersions<Sigmoid>, ...
template <class Activation>
inline constexpr Version<Launch> kVersions[] = {
    {"separate", launch_separate<Activation>, "every operation of every layer is a launch"},
    {"fused_layers", launch_fused_layers<Activation>, "one launch per layer"},
    {"one_kernel", launch_one_kernel<Activation>,
     "the hidden values stay in shared memory; nothing waits for a second launch"},
};

}  // namespace mlp_forward
