// No barrier: the network in the registers of a wave. A step is below the kernel.
#include "common/gpu.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage5_training/04_optimizers/detail/rules.h"
#include "stage5_training/06_train_toy/detail/point.h"
#include "stage5_training/06_train_toy/detail/span.h"
#include "stage5_training/06_train_toy/detail/wave_parameters.h"
#include "stage5_training/06_train_toy/loop.h"
#include "stage5_training/06_train_toy/train_toy.h"

namespace train_toy {

// A whole step by one wave. x are all points, `own` and `label` those of this lane's point. *loss
// becomes the mean loss before the step, unless loss is null.
template <class Rule>
__device__ inline void wave_step(const float (&x)[kWavePoints][kWaveInputs],
                                 const float (&own)[kWaveInputs], int label, WaveParameters& mine,
                                 const Schedule& schedule, float* loss);

// w, m, v after span.count steps    x (4, 2), one hidden layer of 8, two classes.
// Fixes : persistent waits 4 times per step for a block of which one wave has work, and reads every
//         number from shared memory.
// Idea  : 4 points times 8 units are 32 lanes. Lanes exchange registers, and nobody waits.
// Thread: lane (point, unit) as above.
// Costs : one wave works; no barrier, no shared memory; 15 exchanges per step.
template <class Rule>
static __global__ void steps_in_one_wave(Network n, Arrays arrays, Span span) {
  const int unit = gpu::lane_id() % kWaveHidden;
  const int point = gpu::lane_id() / kWaveHidden % kWavePoints;
  float x[kWavePoints][kWaveInputs], own[kWaveInputs];
  for (int p = 0; p < kWavePoints; ++p)
    for (int k = 0; k < kWaveInputs; ++k) x[p][k] = arrays.x[p * kWaveInputs + k];
  for (int k = 0; k < kWaveInputs; ++k) own[k] = arrays.x[point * kWaveInputs + k];
  const int label = arrays.labels[point];
  WaveParameters mine;
  for (int i = 0; i < WaveParameters::kCount; ++i) {
    const int index = WaveParameters::index(n, unit, i);
    mine.w[i] = arrays.w[index];
    if constexpr (Rule::kStates >= 1) mine.m[i] = arrays.m[index];
    if constexpr (Rule::kStates >= 2) mine.v[i] = arrays.v[index];
  }
  for_each_step(span, arrays, [&](const Schedule& schedule, float* loss) {
    wave_step<Rule>(x, own, label, mine, schedule, loss);
  });
  for (int i = 0; i < WaveParameters::kCount; ++i) {
    // Of the lanes that hold the same number, the first one stores it.
    const int owners = i < WaveParameters::kOutputBias ? kWaveHidden : 1;
    if (gpu::lane_id() >= owners) continue;
    const int index = WaveParameters::index(n, unit, i);
    arrays.w[index] = mine.w[i];
    if constexpr (Rule::kStates >= 1) arrays.m[index] = mine.m[i];
    if constexpr (Rule::kStates >= 2) arrays.v[index] = mine.v[i];
  }
}

template <class Rule>
__device__ inline void wave_step(const float (&x)[kWavePoints][kWaveInputs],
                                 const float (&own)[kWaveInputs], int label, WaveParameters& mine,
                                 const Schedule& schedule, float* loss) {
  using P = WaveParameters;
  const int unit = gpu::lane_id() % kWaveHidden;
  float sum = mine.w[P::kBias];
  for (int k = 0; k < kWaveInputs; ++k) sum = fmaf(mine.w[k], own[k], sum);
  const float h = tangent(sum);

  // The softmax of two classes is the sigmoid of the difference of their logits: one number to add
  // up instead of two, and its gradient is that of logit 1, and of logit 0 with the other sign.
  const float w = mine.w[P::kOutputs + 1] - mine.w[P::kOutputs];
  const float bias = mine.w[P::kOutputBias + 1] - mine.w[P::kOutputBias];
  // exercise: this unit's share in the difference, of which unit 0's has the bias in it; then the
  // sum over the units of the point (about 3 lines)
  float difference = fmaf(w, h, unit == 0 ? bias : 0.0f);
  for (int distance = 1; distance < kWaveHidden; distance *= 2)
    difference += gpu::wave_shfl_xor(difference, distance);
  // end exercise
  constexpr float kShare = 1.0f / kWavePoints;
  const float probability = reciprocal(1.0f + softmax::exponential(-difference));
  const float grad = fmaf(kShare, probability, label == 1 ? -kShare : 0.0f);
  const float grad_sum = grad * (w * fmaf(-h, h, 1.0f));

  // Every lane of a unit adds the points in the same order, so that all of them hold the same bits.
  float grads[P::kCount] = {};
  for (int point = 0; point < kWavePoints; ++point) {
    const int from = point * kWaveHidden + unit;
    const float of_h = gpu::wave_shfl(h, from), of_output = gpu::wave_shfl(grad, from);
    const float of_sum = gpu::wave_shfl(grad_sum, from);
    for (int k = 0; k < kWaveInputs; ++k) grads[k] = fmaf(of_sum, x[point][k], grads[k]);
    grads[P::kBias] += of_sum;
    grads[P::kOutputs + 1] = fmaf(of_output, of_h, grads[P::kOutputs + 1]);
    grads[P::kOutputBias + 1] += of_output;
  }
  grads[P::kOutputs] = -grads[P::kOutputs + 1];
  grads[P::kOutputBias] = -grads[P::kOutputBias + 1];
  for (int i = 0; i < P::kCount; ++i) Rule{}(mine.w[i], grads[i], mine.m[i], mine.v[i], schedule);

  if (loss != nullptr) {  // the logarithm of 1 / probability, or of 1 / (1 - probability)
    const float point_loss = activations::Softplus{}(label == 1 ? -difference : difference);
    float total = 0;
    for (int point = 0; point < kWavePoints; ++point)
      total += gpu::wave_shfl(point_loss, point * kWaveHidden);
    if (gpu::lane_id() == 0) *loss = total * kShare;
    gpu::wave_sync();  // the lanes go on together: the next step exchanges registers again
  }
}

void queue_wave(const Network& n, Kind kind, const Arrays& arrays, const Span& span,
                hipStream_t stream) {
  optimizers::visit_rule(kind, [&](auto rule) {
    LAUNCH_ON(stream, (steps_in_one_wave<decltype(rule)>), 1, gpu::device_wave_size(), 0, n, arrays,
              span);
  });
}

void launch_wave(Training& t, unsigned steps) {
  require(why_not_wave(t));
  launch_spans(t, steps, kStepsPerLaunch, queue_wave);
}

}  // namespace train_toy
