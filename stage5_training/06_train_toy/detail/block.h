// The parts of a step by one block, which one_kernel and persistent share. See Network for what
// lies where in shared memory. No function here waits, but for load(): barriers stand in the
// kernels.
#pragma once

#include <cstddef>

#include "common/gpu.h"
#include "stage1_vector/03_dot/detail/thread_sum.h"
#include "stage5_training/04_optimizers/detail/rules.h"
#include "stage5_training/06_train_toy/detail/point.h"
#include "stage5_training/06_train_toy/detail/span.h"
#include "stage5_training/06_train_toy/network.h"

namespace train_toy {

// Softmax and cross-entropy of one point: turns its logits into the gradients of its share in the
// mean loss, and *loss into its loss unless loss is null. classes is at most kSize.
template <int kSize>
__device__ inline void softmax_gradient(float (&logits)[kSize], int classes, int label, float share,
                                        float* loss) {
  float grads[kSize] = {};
  for (int c = 0; c < kSize; ++c) {
    // A probability is 1 / (sum over k of exp(logit k - logit c)), whose own term is 1: no maximum
    // is needed, since the reciprocal of an overflow is the 0 that is right.
    float sum = 1;
    for (int k = 0; k < kSize; ++k)
      if (k != c && k < classes) sum += softmax::exponential(logits[k] - logits[c]);
    grads[c] = fmaf(share, reciprocal(sum), c == label ? -share : 0.0f);
  }
  if (loss != nullptr) *loss = cross_entropy(logits, classes, label);
  for (int c = 0; c < kSize; ++c) logits[c] = grads[c];
}

// Calls store(point, first, sums) with, for j < kUnits,
//   sums[j] = sum over d of rows[d][point] * weights[(first + j) * unit_step + d * depth_step]
// for each point and each group of kUnits units. Of the last group's sums those are void whose unit
// is not there.
template <class Store>
__device__ inline void times_weights(const Network& n, const float* rows, int depth,
                                     const float* weights, int units, int unit_step, int depth_step,
                                     Store store) {
  const int groups = (units + kUnits - 1) / kUnits;
  for (int item = static_cast<int>(threadIdx.x); item < n.points * groups;
       item += static_cast<int>(blockDim.x)) {
    const int point = item % n.points, first = item / n.points * kUnits;
    const float* of_unit[kUnits];
    float sums[kUnits];
    for (int j = 0; j < kUnits; ++j) {
      const int unit = first + j < units ? first + j : units - 1;
      of_unit[j] = weights + unit * unit_step, sums[j] = 0;
    }
    for (int d = 0; d < depth; ++d) {
      const float value = rows[d * n.stride + point];
      for (int j = 0; j < kUnits; ++j) sums[j] = fmaf(value, of_unit[j][d * depth_step], sums[j]);
    }
    store(point, first, sums);
  }
}

// The sum over the points of a row's numbers times another's, 16 bytes at a time.
__device__ inline float dot_of_rows(const float* a, const float* b, int stride) {
  const float4* a4 = reinterpret_cast<const float4*>(a);
  const float4* b4 = reinterpret_cast<const float4*>(b);
  float4 sum = make_float4(0, 0, 0, 0);
  for (int i = 0; i < stride / 4; ++i) dot::multiply_add(sum, a4[i], b4[i]);
  return (sum.x + sum.y) + (sum.z + sum.w);
}

// The parameter that a thread owns: it alone computes its gradient, keeps its state and updates it.
struct Parameter {
  float w = 0, m = 0, v = 0;
  size_t index = 0;              // in the arena
  float* shared = nullptr;       // where all threads read it; null: this thread owns none
  const float* input = nullptr;  // the row of the values that it multiplies
  const float* grad = nullptr;   // the row of the gradients of the sum that it is part of
};

// Puts data and weights where train_step wants them, and finds this thread's parameter.
template <class Rule>
__device__ inline Parameter load(const Network& n, const Arrays& arrays, float* rows,
                                 float* weights) {
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (int i = thread; i < n.rows * n.stride; i += threads) rows[i] = 0;
  __syncthreads();  // all rows are zero, up to their ends
  const int inputs = n.layer[0].in;
  for (int point = thread; point < n.points; point += threads) {
    for (int k = 0; k < inputs; ++k) rows[k * n.stride + point] = arrays.x[point * inputs + k];
    for (int l = 0; l < n.layers; ++l)
      rows[(n.layer[l].inputs + n.layer[l].in) * n.stride + point] = 1;
    rows[n.labels * n.stride + point] = static_cast<float>(arrays.labels[point]);
  }
  Parameter mine;
  if (thread < n.parameters) {
    int l = 0;
    while (l + 1 < n.layers && thread >= n.layer[l + 1].weights) ++l;
    const Layer& layer = n.layer[l];
    const int unit = (thread - layer.weights) / (layer.in + 1);
    const int input = (thread - layer.weights) % (layer.in + 1);
    mine.index = static_cast<size_t>(input < layer.in ? layer.w + unit * layer.in + input
                                                      : layer.bias + unit);
    mine.shared = weights + thread;
    mine.input = rows + (layer.inputs + input) * n.stride;
    mine.grad = rows + (layer.grads + unit) * n.stride;
    mine.w = *mine.shared = arrays.w[mine.index];
    if constexpr (Rule::kStates >= 1) mine.m = arrays.m[mine.index];
    if constexpr (Rule::kStates >= 2) mine.v = arrays.v[mine.index];
  }
  __syncthreads();  // data and weights are complete
  return mine;
}

template <class Rule>
__device__ inline void store(const Arrays& arrays, const Parameter& mine) {
  if (mine.shared == nullptr) return;
  arrays.w[mine.index] = mine.w;
  if constexpr (Rule::kStates >= 1) arrays.m[mine.index] = mine.m;
  if constexpr (Rule::kStates >= 2) arrays.v[mine.index] = mine.v;
}

// The first of the points' numbers in row r.
__device__ inline float* row(const Network& n, float* rows, int r) { return rows + r * n.stride; }

// The inputs of layer l + 1 = tanh(weights of layer l times its inputs).
__device__ inline void forward_layer(const Network& n, float* rows, const float* weights, int l) {
  const Layer& layer = n.layer[l];
  float* outputs = row(n, rows, n.layer[l + 1].inputs);
  times_weights(n, row(n, rows, layer.inputs), layer.in + 1, weights + layer.weights, layer.out,
                layer.in + 1, 1, [&](int point, int first, const float(&sums)[kUnits]) {
                  for (int j = 0; j < kUnits; ++j)
                    if (first + j < layer.out)
                      outputs[(first + j) * n.stride + point] = tangent(sums[j]);
                });
}

// The gradients of the last layer's sums, and the losses of the points unless there is no `loss`.
__device__ inline void last_layer(const Network& n, float* rows, const float* weights,
                                  const float* loss) {
  const Layer& last = n.layer[n.layers - 1];
  times_weights(n, row(n, rows, last.inputs), last.in + 1, weights + last.weights, last.out,
                last.in + 1, 1, [&](int point, int, float(&logits)[kUnits]) {
                  const int label = static_cast<int>(row(n, rows, n.labels)[point]);
                  softmax_gradient(logits, last.out, label, 1.0f / static_cast<float>(n.points),
                                   loss == nullptr ? nullptr : row(n, rows, n.losses) + point);
                  for (int c = 0; c < last.out; ++c)
                    row(n, rows, last.grads + c)[point] = logits[c];
                });
}

// The gradients of the sums of layer l - 1, as versions/one_kernel.hip has it in its kernel.
__device__ inline void backward_layer(const Network& n, float* rows, const float* weights, int l) {
  const Layer& layer = n.layer[l];
  const float* inputs = row(n, rows, layer.inputs);
  float* grads = row(n, rows, n.layer[l - 1].grads);
  times_weights(n, row(n, rows, layer.grads), layer.out, weights + layer.weights, layer.in, 1,
                layer.in + 1, [&](int point, int first, const float(&sums)[kUnits]) {
                  for (int j = 0; j < kUnits; ++j) {
                    if (first + j >= layer.in) continue;
                    const int at = (first + j) * n.stride + point;
                    grads[at] = sums[j] * fmaf(-inputs[at], inputs[at], 1.0f);
                  }
                });
}

// A thread's parameter takes its step.
template <class Rule>
__device__ inline void update(const Network& n, Parameter& mine, const Schedule& schedule) {
  if (mine.shared == nullptr) return;
  const float grad = dot_of_rows(mine.grad, mine.input, n.stride);
  Rule{}(mine.w, grad, mine.m, mine.v, schedule);
  *mine.shared = mine.w;
}

// Launches a kernel of one block, as many threads as it has work for. Static, as the kernels are:
// no version gets another one's.
template <class Kernel>
static void launch_block(Kernel kernel, const Network& n, const Arrays& arrays, const Span& span,
                         hipStream_t stream) {
  int items = n.parameters;
  for (int l = 0; l < n.layers; ++l) {
    const int of_layer = n.points * ((n.layer[l].out + kUnits - 1) / kUnits);
    if (of_layer > items) items = of_layer;
  }
  const unsigned wave = gpu::device_wave_size();
  const unsigned waves = static_cast<unsigned>(gpu::ceil_div(static_cast<size_t>(items), wave));
  const unsigned block = waves * wave < kMaxThreads ? waves * wave : kMaxThreads;
  gpu::allow_shared_bytes(kernel, n.shared_bytes());
  LAUNCH_ON(stream, kernel, 1, block, n.shared_bytes(), n, arrays, span);
}

}  // namespace train_toy
