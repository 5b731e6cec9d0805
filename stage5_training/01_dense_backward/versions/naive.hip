// naive: one thread per element of each gradient.
#include <algorithm>
#include <stdexcept>

#include "common/gpu.h"
#include "stage5_training/01_dense_backward/dense_backward.h"

namespace dense_backward {

// grad_w = grad_y^T x + beta grad_w    grad_w (out, in), grad_y (batch, out), x (batch, in).
// Fixes : a CPU core computes the elements one after the other.
// Idea  : each weight sums over the samples what its unit's gradient and its input have made.
// Thread: t of the grid owns element first + t of grad_w.
// Costs : 2 loads per multiplication.
static __global__ void grad_w_naive(float* grad_w, const float* grad_y, const float* x,
                                    size_t batch, size_t in, size_t out, float beta, size_t first) {
  const size_t i = first + size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= out * in) return;
  const size_t unit = i / in, input = i % in;
  float sum = 0;
  for (size_t s = 0; s < batch; ++s) sum += grad_y[s * out + unit] * x[s * in + input];
  grad_w[i] = beta == 0 ? sum : sum + beta * grad_w[i];
}

// grad_x = grad_y w + beta grad_x    grad_x (batch, in), grad_y (batch, out), w (out, in).
// Fixes : a CPU core computes the elements one after the other.
// Idea  : each input sums over the units that it went to.
// Thread: t of the grid owns element first + t of grad_x.
// Costs : 2 loads per multiplication.
static __global__ void grad_x_naive(float* grad_x, const float* grad_y, const float* w,
                                    size_t batch, size_t in, size_t out, float beta, size_t first) {
  const size_t i = first + size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= batch * in) return;
  const size_t sample = i / in, input = i % in;
  float sum = 0;
  for (size_t o = 0; o < out; ++o) sum += grad_y[sample * out + o] * w[o * in + input];
  grad_x[i] = beta == 0 ? sum : sum + beta * grad_x[i];
}

// grad_bias = column sums of grad_y + beta grad_bias    grad_bias (out), grad_y (batch, out).
// Fixes : a CPU core adds the columns one after the other.
// Idea  : the bias is a weight whose input is always 1.
// Thread: t of the grid owns element first + t of grad_bias.
// Costs : 1 load per addition, by no more threads than there are units.
static __global__ void grad_bias_naive(float* grad_bias, const float* grad_y, size_t batch,
                                       size_t out, float beta, size_t first) {
  const size_t o = first + size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (o >= out) return;
  float sum = 0;
  for (size_t s = 0; s < batch; ++s) sum += grad_y[s * out + o];
  grad_bias[o] = beta == 0 ? sum : sum + beta * grad_bias[o];
}

// Calls launch(first, blocks, kThreads) for a thread per element: once, unless there are very many.
template <class Launch>
static void launch_for(size_t elements, const Launch& launch) {
  constexpr size_t kThreads = 256;  // of a block
  // Of a launch 2^31, since AMD counts them in 32 bits.
  const size_t most = std::min(size_t{1} << 31, gpu::most_blocks() * kThreads);
  for (size_t first = 0; first < elements; first += most)
    launch(first, gpu::ceil_div(std::min(elements - first, most), kThreads), kThreads);
}

void launch_naive(const Gradients& to, const float* grad_y, const float* x, size_t batch,
                  const Layer& layer, float beta, Workspace&, const Streams& streams) {
  const size_t in = layer.in, out = layer.out;
  const auto require = [](const void* array, size_t terms) {
    if (array == nullptr && terms > 0)
      throw std::invalid_argument("dense_backward: an array that is needed is null");
  };
  if (to.w != nullptr && in * out > 0) {
    require(grad_y, batch), require(x, batch);
    launch_for(in * out, [&](size_t first, size_t blocks, size_t threads) {
      LAUNCH_ON(streams.caller, grad_w_naive, blocks, threads, 0, to.w, grad_y, x, batch, in, out,
                beta, first);
    });
  }
  if (to.bias != nullptr && out > 0) {
    require(grad_y, batch);
    launch_for(out, [&](size_t first, size_t blocks, size_t threads) {
      LAUNCH_ON(streams.caller, grad_bias_naive, blocks, threads, 0, to.bias, grad_y, batch, out,
                beta, first);
    });
  }
  if (to.x != nullptr && batch * in > 0) {
    require(grad_y, out), require(layer.w, out);
    launch_for(batch * in, [&](size_t first, size_t blocks, size_t threads) {
      LAUNCH_ON(streams.caller, grad_x_naive, blocks, threads, 0, to.x, grad_y, layer.w, batch, in,
                out, beta, first);
    });
  }
}

}  // namespace dense_backward
