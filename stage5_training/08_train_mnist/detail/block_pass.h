// A block's part of a step of fused and persistent, phase by phase. Between two of them stands a
// barrier in the kernels: of the block, or of the grid.
#pragma once

#include "common/gpu.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage5_training/08_train_mnist/detail/block.h"
#include "stage5_training/08_train_mnist/detail/float4.h"

namespace train_mnist {

// scratch[part, unit, sample] = the sum of w1 x over the pixels of a part.
template <unsigned kUnits, class Images>
__device__ inline void sum_pixels(Shared<kUnits>& shared, const Images& images, unsigned batch) {
  const unsigned sample = threadIdx.x % kSamples, part = threadIdx.x / kSamples;
  float sums[kUnits] = {};
  if (sample < batch) {
    const uint4* vectors = reinterpret_cast<const uint4*>(images.image(sample));
    for (unsigned v = part * kVectors; v < (part + 1) * kVectors; ++v) {
      const uint4 pixels = vectors[v];
      const unsigned words[] = {pixels.x, pixels.y, pixels.z, pixels.w};
      GPU_UNROLL
      for (unsigned i = 0; i < 4; ++i) {
        const float4 x = gpu::unpack_bytes(words[i]);
        GPU_UNROLL
        for (unsigned unit = 0; unit < kUnits; ++unit)
          sums[unit] = dot4(x, shared.w1[unit][4 * v + i], sums[unit]);
      }
    }
  }
  float* partial = reinterpret_cast<float*>(shared.scratch);
  for (unsigned unit = 0; unit < kUnits; ++unit)
    partial[(part * kUnits + unit) * kSamples + sample] = sums[unit];
}

// h = max(0, the sum of all parts / 255 + b1), kept and left for the others with the units' columns
// of w2.
template <unsigned kUnits>
__device__ inline void publish_units(Shared<kUnits>& shared, const Exchange& to, unsigned hidden) {
  const unsigned first = blockIdx.x * kUnits;
  const float* partial = reinterpret_cast<const float*>(shared.scratch);
  for (unsigned i = threadIdx.x; i < kUnits * kSamples; i += kThreads) {
    const unsigned unit = i / kSamples, sample = i % kSamples;
    float sum = 0;
    for (unsigned part = 0; part < kParts; ++part) sum += partial[part * kUnits * kSamples + i];
    const float h = activations::Relu{}(fmaf(kPixelScale, sum, shared.bias(unit)));
    shared.h[unit][sample] = h;
    if (first + unit < hidden) to.h[(first + unit) * kSamples + sample] = h;
  }
  for (unsigned i = threadIdx.x; i < kUnits * kPadded; i += kThreads) {
    const unsigned unit = i / kPadded, c = i % kPadded;
    if (first + unit < hidden)
      to.w2[(first + unit) * kPadded + c] =
          c < kClasses ? shared.small_w[unit * kClasses + c] : 0.0f;
  }
}

// scratch[part, class, sample] = the sum of w2 h over the hidden units of a part.
template <unsigned kUnits>
__device__ inline void sum_units(Shared<kUnits>& shared, const Exchange& from, unsigned hidden) {
  const unsigned sample = threadIdx.x % kSamples, part = threadIdx.x / kSamples;
  const float4* columns = reinterpret_cast<const float4*>(from.w2);
  float4 sums[kPadded / 4] = {};
  for (unsigned first = 0; first < hidden; first += kChunk) {
    if (first > 0) __syncthreads();  // the columns of the chunk before have been read
    for (unsigned i = threadIdx.x; i < kChunk * kPadded / 4; i += kThreads) {
      const unsigned column = first * kPadded / 4 + i;
      shared.w2[i / 3][i % 3] =
          column < hidden * kPadded / 4 ? columns[column] : make_float4(0, 0, 0, 0);
    }
    float h[kHeld];  // on their way while the columns are
    GPU_UNROLL
    for (unsigned j = 0; j < kHeld; ++j) {
      const unsigned unit = first + part * kHeld + j;
      h[j] = unit < hidden ? from.h[unit * kSamples + sample] : 0.0f;
    }
    __syncthreads();  // a chunk of w2 is in shared memory
    GPU_UNROLL
    for (unsigned j = 0; j < kHeld; ++j)
      for (unsigned k = 0; k < kPadded / 4; ++k)
        add_scaled(sums[k], h[j], shared.w2[part * kHeld + j][k]);
  }
  float* partial = reinterpret_cast<float*>(shared.scratch) + part * kClasses * kSamples + sample;
  const float values[] = {sums[0].x, sums[0].y, sums[0].z, sums[0].w, sums[1].x,
                          sums[1].y, sums[1].z, sums[1].w, sums[2].x, sums[2].y};
  for (unsigned c = 0; c < kClasses; ++c) partial[c * kSamples] = values[c];
}

// logits[c] = exp(logit c of a sample - their largest); returns their sum, and keeps the sample's
// loss. Called by a thread for each sample.
template <unsigned kUnits>
__device__ inline float exponentials(float (&logits)[kPadded], Shared<kUnits>& shared,
                                     unsigned sample, unsigned label) {
  const float* partial = reinterpret_cast<const float*>(shared.scratch) + sample;
  GPU_UNROLL
  for (unsigned c = 0; c < kClasses; ++c) {
    logits[c] = shared.bias_of_class(c);
    for (unsigned part = 0; part < kParts; ++part)
      logits[c] += partial[(part * kClasses + c) * kSamples];
  }
  float max = logits[0], sum = 0, of_label = 0;
  GPU_UNROLL
  for (unsigned c = 1; c < kClasses; ++c) max = fmaxf(max, logits[c]);
  GPU_UNROLL
  for (unsigned c = 0; c < kClasses; ++c) {
    if (c == label) of_label = logits[c];
    logits[c] = expf(logits[c] - max);
    sum += logits[c];
  }
  shared.row_losses[sample] = logf(sum) + (max - of_label);
  return sum;
}

// Keeps the gradients of a sample's logits.
template <unsigned kUnits>
__device__ inline void keep_gradients(Shared<kUnits>& shared, unsigned sample,
                                      const float (&gradients)[kPadded]) {
  float4* row = shared.grad_logits[sample];
  row[0] = make_float4(gradients[0], gradients[1], gradients[2], gradients[3]);
  row[1] = make_float4(gradients[4], gradients[5], gradients[6], gradients[7]);
  row[2] = make_float4(gradients[8], gradients[9], 0, 0);
}

// What a thread for each sample does, as differentiate() of versions/fused.hip: its logits, its
// loss, their gradient, and the gradient of the own units' sums.
template <unsigned kUnits>
__device__ inline void differentiate_sample(Shared<kUnits>& shared, unsigned sample, unsigned label,
                                            unsigned batch) {
  float logits[kPadded];
  const float sum = exponentials(logits, shared, sample, label);
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
  keep_gradients(shared, sample, logits);
}

// The sums over the samples that are no matrix: the gradients of the own columns of w2, of b2 and
// of the own biases, each used at once by its thread; and the loss. A bias is the weight of
// something that is always 1, so all of them are sums of products. Called by kSmallThreads threads.
template <class Rule, unsigned kUnits>
__device__ inline void update_small(Shared<kUnits>& shared, const Schedule& schedule, float* loss,
                                    unsigned batch) {
  using Block = Shared<kUnits>;
  const float* grad_logits = reinterpret_cast<const float*>(shared.grad_logits);
  for (unsigned i = threadIdx.x - kWords * kHalves; i <= Block::kSmall; i += kSmallThreads) {
    const bool of_class = i < Block::kOfClasses, of_unit = !of_class && i < Block::kSmall;
    const float* a = of_class  ? grad_logits + i % kClasses
                     : of_unit ? &shared.grad_h[0][0] + (i - Block::kOfClasses)
                               : shared.row_losses;
    const unsigned stride = of_class ? kPadded : of_unit ? kUnits : 1;
    const float* b = shared.h[of_class ? i / kClasses : kUnits];
    float sum = 0;
    for (unsigned s = 0; s < batch; ++s) sum = fmaf(a[s * stride], b[s], sum);
    if (i < Block::kSmall)
      Rule{}(shared.small_w[i], sum, shared.small_m[i], shared.small_v[i], schedule);
    else if (blockIdx.x == 0)
      *loss = sum / static_cast<float>(batch);
  }
}

// sums[unit] = the sum of grad_h x over half of the samples, for four pixels, in the threads of
// both halves. Each half owns every second unit, and leaves the sums of the others in scratch.
template <unsigned kUnits, class Images>
__device__ inline void sum_samples(float4 (&sums)[kUnits], Shared<kUnits>& shared,
                                   const Images& images, unsigned batch) {
  const unsigned word = threadIdx.x % kWords, half = threadIdx.x / kWords;
  const unsigned first = half * (kSamples / kHalves);
  const unsigned last = batch < first + kSamples / kHalves ? batch : first + kSamples / kHalves;
  for (unsigned unit = 0; unit < kUnits; ++unit) sums[unit] = make_float4(0, 0, 0, 0);
  for (unsigned s = first; s < last; ++s) {
    const float4 x = gpu::unpack_bytes(reinterpret_cast<const unsigned*>(images.image(s))[word]);
    GPU_UNROLL
    for (unsigned unit = 0; unit < kUnits; ++unit)
      add_scaled(sums[unit], shared.grad_h[s][unit], x);
  }
  GPU_UNROLL
  for (unsigned unit = 0; unit < kUnits; ++unit)
    if (unit % kHalves != half) shared.scratch[unit * kWords + word] = sums[unit];
}

// Calls update(unit, gradient of the four weights) for the units that this thread's half owns.
template <unsigned kUnits, class Update>
__device__ inline void for_owned(const float4 (&sums)[kUnits], const Shared<kUnits>& shared,
                                 Update update) {
  const unsigned word = threadIdx.x % kWords, half = threadIdx.x / kWords;
  GPU_UNROLL
  for (unsigned unit = 0; unit < kUnits; ++unit) {
    if (unit % kHalves != half) continue;
    const float4 other = shared.scratch[unit * kWords + word];
    const float4 sum = sums[unit];
    update(unit, make_float4(kPixelScale * (sum.x + other.x), kPixelScale * (sum.y + other.y),
                             kPixelScale * (sum.z + other.z), kPixelScale * (sum.w + other.w)));
  }
}

}  // namespace train_mnist
