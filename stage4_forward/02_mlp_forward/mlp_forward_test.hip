// A network whose hidden values are in shared memory, with and without the barrier between its
// layers.
#include "common/gpu.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage4_forward/02_mlp_forward/mlp_forward.h"

namespace mlp_forward_test {

using mlp_forward::Layer;
using mlp_forward::Network;

void launch_without_barrier(float* y, float* h, const float* x, size_t batch,
                            const Network& network, hipStream_t stream);
void launch_with_barrier(float* y, float* h, const float* x, size_t batch, const Network& network,
                         hipStream_t stream);

constexpr unsigned kThreads = 256;  // per block

__device__ inline float sum_of(const Layer& layer, const float* x, size_t unit) {
  float sum = layer.bias[unit];
  for (size_t k = 0; k < layer.in; ++k) sum += layer.w[unit * layer.in + k] * x[k];
  return sum;
}

// A block owns a sample, thread t of it the units t, t + kThreads, ... of each layer.
template <bool kWithBarrier>
static __global__ void network_of_a_sample(float* y, const float* x, Network network) {
  DYNAMIC_SHARED(float, h);
  const size_t sample = blockIdx.x, out = network.second.out;
  for (size_t u = threadIdx.x; u < network.first.out; u += kThreads)
    h[u] = activations::Relu{}(sum_of(network.first, x + sample * network.first.in, u));
  if (kWithBarrier) __syncthreads();  // all hidden values are in h
  for (size_t u = threadIdx.x; u < out; u += kThreads)
    y[sample * out + u] = sum_of(network.second, h, u);
}

void launch_without_barrier(float* y, float*, const float* x, size_t batch, const Network& network,
                            hipStream_t stream) {
  LAUNCH_ON(stream, (network_of_a_sample<false>), static_cast<unsigned>(batch), kThreads,
            network.first.out * sizeof(float), y, x, network);
}

void launch_with_barrier(float* y, float*, const float* x, size_t batch, const Network& network,
                         hipStream_t stream) {
  LAUNCH_ON(stream, (network_of_a_sample<true>), static_cast<unsigned>(batch), kThreads,
            network.first.out * sizeof(float), y, x, network);
}

}  // namespace mlp_forward_test
