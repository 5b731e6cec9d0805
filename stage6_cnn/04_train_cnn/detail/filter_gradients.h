// An image's part of the gradients of both convolutions, for the block of per_image.
#pragma once

#include "common/gpu.h"
#include "stage6_cnn/04_train_cnn/detail/image_memory.h"

namespace train_cnn {

// multiply_patch the other way around: adds each filter's gradient, from those of its four outputs.
__device__ inline void multiply_grads(float (&sums)[kAtOnce][kTaps], const float (&patch)[4][4],
                                      const float (&grads)[kAtOnce][4]) {
  GPU_UNROLL
  for (unsigned tap = 0; tap < kTaps; ++tap) GPU_UNROLL
  for (unsigned k = 0; k < kAtOnce; ++k)
    for (unsigned i = 0; i < 4; ++i)
      sums[k][tap] = fmaf(grads[k][i], patch[tap / 3 + i / 2][tap % 3 + i % 2], sums[k][tap]);
}

// The gradients of w2, by half of the threads: thread `own` of these has a channel taken, four that
// are made, and every eighth window.
__device__ inline void differentiate_filters2(const ImageMemory& m, unsigned own, float* part) {
  const unsigned c = own / kParts2 % kChannels1, made = own / kParts2 / kChannels1 * kAtOnce;
  float sums[kAtOnce][kTaps] = {};
  for (unsigned w = own % kParts2; w < kWindows2; w += kParts2) {
    const unsigned corner = w / kSide2 * 2 * kPitch1 + w % kSide2 * 2;
    float patch[4][4], grads[kAtOnce][4];
    load_patch(patch, m.pooled1 + c * kPlane1 + corner, kPitch1);
    for (unsigned k = 0; k < kAtOnce; ++k)
      for (unsigned i = 0; i < 4; ++i)
        grads[k][i] = m.grads2[(made + k) * kPlane1 + corner + (i / 2 + 1) * kPitch1 + i % 2 + 1];
    multiply_grads(sums, patch, grads);
  }
  for (unsigned k = 0; k < kAtOnce; ++k)
    for (unsigned tap = 0; tap < kTaps; ++tap) {
      for (int distance = 1; distance < static_cast<int>(kParts2); distance *= 2)
        sums[k][tap] += gpu::wave_shfl_xor(sums[k][tap], distance);
      if (own % kParts2 == 0)
        part[Row::w2 + ((made + k) * kChannels1 + c) * kTaps + tap] = sums[k][tap];
    }
}

// That of channel k's bias: the sum of the gradients that the features have left.
__device__ inline void differentiate_bias2(const ImageMemory& m, unsigned k, float* part) {
  const float* const features = reinterpret_cast<const float*>(m.features);
  float total = 0;
  for (unsigned w = 0; w < kWindows2; ++w) total += features[k * kWindows2 + w];
  part[Row::b2 + k] = total;
}

// The gradients of the first pool's outputs, four of channels first, first + 1, ... in a window of
// the second one: each goes to the sum that was the largest of its four.
__device__ inline void route_to_sums1(ImageMemory& m, unsigned window, unsigned first,
                                      const float (&grads)[kAtOnce][4]) {
  for (unsigned k = 0; k < kAtOnce; ++k)
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned y = window / kSide2 * 2 + i / 2, x = window % kSide2 * 2 + i % 2;
      const unsigned output = (first + k) * kWindows1 + y * kSide1 + x, place = m.place1[output];
      const unsigned chosen = place == kNone ? 0 : place;
      m.first.grads1[output] = {place == kNone ? 0.0f : grads[k][i],
                                (2 * y + chosen / 2) * kPitch0 + 2 * x + chosen % 2};
    }
}

// The gradients of w1 and b1: first the parts of each sum, then their sums. A bias is the weight of
// something that is always 1.
__device__ inline void differentiate_filters1(ImageMemory& m, float* part) {
  const unsigned t = threadIdx.x;
  const unsigned tap = t % kSums1 % (kTaps + 1), channel = t % kSums1 / (kTaps + 1);
  if (t < kParts1 * kSums1) {
    const unsigned place = tap / 3 * kPitch0 + tap % 3;
    float total = 0;
    for (unsigned w = t / kSums1; w < kWindows1; w += kParts1) {
      const Routed from = m.first.grads1[channel * kWindows1 + w];
      total = fmaf(from.grad, tap < kTaps ? m.x[from.corner + place] : 1.0f, total);
    }
    m.first.sums1[t] = total;
  }
  __syncthreads();  // the parts of the last sums are there
  if (t >= kSums1) return;
  float total = 0;
  for (unsigned p = 0; p < kParts1; ++p) total += m.first.sums1[p * kSums1 + t];
  part[tap < kTaps ? channel * kTaps + tap : Row::b1 + channel] = total;
}

}  // namespace train_cnn
