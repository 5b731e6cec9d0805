// naive: one thread per element of each gradient.
#include <stdexcept>

#include "common/gpu.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage5_training/01_dense_backward/dense_backward.h"

namespace dense_backward {

// grad_w = grad_y^T x + beta grad_w    grad_w (out, in), grad_y (batch, out), x (batch, in).
// Fixes : a CPU core computes the elements one after the other.
// Idea  : each weight sums over the samples what its unit's gradient and its input have made.
// Thread: t of the grid owns the elements t, t + T, ... of grad_w.
// Costs : 2 loads per multiplication.
static __global__ void grad_w_naive(float* grad_w, const float* grad_y, const float* x,
                                    size_t batch, size_t in, size_t out, float beta) {
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < out * in; i += threads) {
    const size_t unit = i / in, input = i % in;
    float sum = 0;
    for (size_t s = 0; s < batch; ++s) sum += grad_y[s * out + unit] * x[s * in + input];
    grad_w[i] = beta == 0 ? sum : sum + beta * grad_w[i];
  }
}

// grad_x = grad_y w + beta grad_x    grad_x (batch, in), grad_y (batch, out), w (out, in).
// Fixes : a CPU core computes the elements one after the other.
// Idea  : each input sums over the units that it went to.
// Thread: t of the grid owns the elements t, t + T, ... of grad_x.
// Costs : 2 loads per multiplication.
static __global__ void grad_x_naive(float* grad_x, const float* grad_y, const float* w,
                                    size_t batch, size_t in, size_t out, float beta) {
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < batch * in; i += threads) {
    const size_t sample = i / in, input = i % in;
    float sum = 0;
    for (size_t o = 0; o < out; ++o) sum += grad_y[sample * out + o] * w[o * in + input];
    grad_x[i] = beta == 0 ? sum : sum + beta * grad_x[i];
  }
}

// grad_bias = column sums of grad_y + beta grad_bias    grad_bias (out), grad_y (batch, out).
// Fixes : a CPU core adds the columns one after the other.
// Idea  : the bias is a weight whose input is always 1.
// Thread: t of the grid owns the elements t, t + T, ... of grad_bias.
// Costs : 1 load per addition, by no more threads than there are units.
static __global__ void grad_bias_naive(float* grad_bias, const float* grad_y, size_t batch,
                                       size_t out, float beta) {
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t o = size_t{blockIdx.x} * blockDim.x + threadIdx.x; o < out; o += threads) {
    float sum = 0;
    for (size_t s = 0; s < batch; ++s) sum += grad_y[s * out + o];
    grad_bias[o] = beta == 0 ? sum : sum + beta * grad_bias[o];
  }
}

using vector_add::full_grid, vector_add::kBlock;

void launch_naive(const Gradients& to, const float* grad_y, const float* x, size_t batch,
                  const Layer& layer, float beta, Workspace&, const Streams& streams) {
  const size_t in = layer.in, out = layer.out;
  const auto require = [](const void* array, size_t terms) {
    if (array == nullptr && terms > 0)
      throw std::invalid_argument("dense_backward: an array that is needed is null");
  };
  if (to.w != nullptr && in * out > 0) {
    require(grad_y, batch), require(x, batch);
    LAUNCH_ON(streams.caller, grad_w_naive, full_grid(in * out), kBlock, 0, to.w, grad_y, x, batch,
              in, out, beta);
  }
  if (to.bias != nullptr && out > 0) {
    require(grad_y, batch);
    LAUNCH_ON(streams.caller, grad_bias_naive, full_grid(out), kBlock, 0, to.bias, grad_y, batch,
              out, beta);
  }
  if (to.x != nullptr && batch * in > 0) {
    require(grad_y, out), require(layer.w, out);
    LAUNCH_ON(streams.caller, grad_x_naive, full_grid(batch * in), kBlock, 0, to.x, grad_y, layer.w,
              batch, in, out, beta);
  }
}

}  // namespace dense_backward
