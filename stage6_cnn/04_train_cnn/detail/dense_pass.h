// An image's way through the two dense layers and the loss, there and back, for the block of
// per_image. Barriers stand in the kernel, but for one.
#pragma once

#include "common/gpu.h"
#include "stage1_vector/03_dot/detail/block_sum.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage5_training/08_train_mnist/detail/float4.h"
#include "stage6_cnn/04_train_cnn/detail/image_memory.h"

namespace train_cnn {

using train_mnist::add_scaled;
using train_mnist::dot4;

// h = ReLU(w3 features + b3): a wave for several rows of w3, so that many loads are on their way.
__device__ inline void hidden_units(ImageMemory& m, const Weights& network) {
  const unsigned hidden = network.hidden, wave = static_cast<unsigned>(gpu::wave_id());
  const unsigned lane = static_cast<unsigned>(gpu::lane_id());
  const unsigned lanes = static_cast<unsigned>(gpu::wave_size()), waves = kThreads / lanes;
  const float4* const w3 = reinterpret_cast<const float4*>(network.w3.w);
  for (unsigned first = wave * kRowsAtOnce; first < hidden; first += waves * kRowsAtOnce) {
    float sums[kRowsAtOnce] = {};
    const float4* rows[kRowsAtOnce];
    for (unsigned r = 0; r < kRowsAtOnce; ++r)
      rows[r] = w3 + (first + r < hidden ? first + r : first) * kWords3;
    for (unsigned v = lane; v < kWords3; v += lanes)
      for (unsigned r = 0; r < kRowsAtOnce; ++r) sums[r] = dot4(rows[r][v], m.features[v], sums[r]);
    for (unsigned r = 0; r < kRowsAtOnce; ++r) {
      const float sum = dot::wave_sum(sums[r]);
      if (lane == 0 && first + r < hidden)
        m.h[first + r] = activations::Relu{}(sum + network.b3.w[first + r]);
    }
  }
}

// logits = w4 h + b4: a wave for each of the classes.
__device__ inline void class_logits(ImageMemory& m, const Weights& network) {
  const unsigned hidden = network.hidden, lane = static_cast<unsigned>(gpu::lane_id());
  const unsigned lanes = static_cast<unsigned>(gpu::wave_size()), waves = kThreads / lanes;
  for (unsigned c = static_cast<unsigned>(gpu::wave_id()); c < kClasses; c += waves) {
    float sum = 0;
    for (unsigned unit = lane; unit < hidden; unit += lanes)
      sum = fmaf(network.w4.w[c * hidden + unit], m.h[unit], sum);
    sum = dot::wave_sum(sum);
    if (lane == 0) m.logits[c] = sum + network.b4.w[c];
  }
}

// The loss of the image, its part of the gradients of w4, b4 and b3, and grad_h: the gradients of
// the hidden units' sums. Every thread computes the same probabilities, and its own units'.
__device__ inline void differentiate_loss(ImageMemory& m, const Weights& network, unsigned label,
                                          unsigned batch, float* part, float* loss) {
  const Row row{network.hidden};
  float grads[kClasses], max = m.logits[0], sum = 0, of_label = 0;
  for (unsigned c = 1; c < kClasses; ++c) max = fmaxf(max, m.logits[c]);
  GPU_UNROLL
  for (unsigned c = 0; c < kClasses; ++c) {
    if (c == label) of_label = m.logits[c];
    grads[c] = expf(m.logits[c] - max);
    sum += grads[c];
  }
  const float inverse_sum = 1.0f / sum, weight = 1.0f / static_cast<float>(batch);
  GPU_UNROLL
  for (unsigned c = 0; c < kClasses; ++c)
    grads[c] = weight * (grads[c] * inverse_sum - (c == label ? 1.0f : 0.0f));
  for (unsigned unit = threadIdx.x; unit < network.hidden; unit += kMostHidden) {
    const float h = m.h[unit];
    float grad = 0;
    GPU_UNROLL
    for (unsigned c = 0; c < kClasses; ++c) {
      grad = fmaf(grads[c], network.w4.w[c * network.hidden + unit], grad);
      part[row.w4() + c * network.hidden + unit] = grads[c] * h;
    }
    m.grad_h[unit] = grad * activations::Relu{}.derivative(h);
    part[row.b3 + unit] = m.grad_h[unit];
  }
  if (threadIdx.x == 0) {
    *loss = logf(sum) + (max - of_label);
    GPU_UNROLL
    for (unsigned c = 0; c < kClasses; ++c) part[row.b4() + c] = grads[c];
  }
}

// The gradients of features, to features, and to the planes grads2: the sums over the hidden units,
// first the even ones and the odd ones.
__device__ inline void differentiate_features(ImageMemory& m, const Weights& network) {
  const float4* const w3 = reinterpret_cast<const float4*>(network.w3.w);
  float* const features = reinterpret_cast<float*>(m.features);
  float4 sum = make_float4(0, 0, 0, 0);
  const unsigned word = threadIdx.x % kWords3, odd = threadIdx.x / kWords3;
  if (odd < 2)
    for (unsigned unit = odd; unit < network.hidden; unit += 2)
      add_scaled(sum, m.grad_h[unit], w3[unit * kWords3 + word]);
  if (odd == 1) m.half[word] = sum;
  __syncthreads();  // the odd ones' sums are in half
  if (odd > 0) return;
  const float4 other = m.half[word];
  const float grads[] = {sum.x + other.x, sum.y + other.y, sum.z + other.z, sum.w + other.w};
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned feature = 4 * word + i, place = m.place2[feature];
    const unsigned k = feature / kWindows2, window = feature % kWindows2;
    float* const corner =
        m.grads2 + k * kPlane1 + (window / kSide2 * 2 + 1) * kPitch1 + window % kSide2 * 2 + 1;
    features[feature] = place == kNone ? 0.0f : grads[i];
    if (place != kNone) corner[place / 2 * kPitch1 + place % 2] = grads[i];
  }
}

}  // namespace train_cnn
