// 5.8  train_mnist: a network of two layers learns to read handwritten digits.
//
//   pixels (784) / 255 -> Linear -> ReLU -> hidden units -> Linear -> 10 logits -> cross-entropy
//
// The model is step 5.5's, the loss 3.3's, the optimizers are 5.4's. A step of 64 images is 26
// million operations, half a microsecond of a large GPU: what a training takes is decided by how
// its steps are launched, and by where the weights are between them. That is the ladder.
//
//   operations   a kernel per operation, launched by the host
//   graph        the same kernels, replayed from a graph
//   fused        two kernels per step, where the backward pass has to wait for all hidden units
//   persistent   one kernel for a whole epoch, where that wait is a barrier of the grid
//
// The data set stays on the device as bytes. No kernel is told which step it is: it reads the
// number of steps behind it from the optimizer's Schedule, and the images of the next one follow
// from it (random_numbers::permute): nothing to shuffle, nothing to copy, arguments that never
// change. An epoch drops what does not fill its last batch.
//
// All versions are deterministic: the same bits on every run of one device, from the same seed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/gpu.h"
#include "common/program.h"
#include "common/random.h"
#include "stage0_infra/04_device_matrix/device_matrix.h"
#include "stage3_ml_ops/03_losses/losses.h"
#include "stage5_training/04_optimizers/detail/rules.h"
#include "stage5_training/04_optimizers/optimizers.h"
#include "stage5_training/04_optimizers/reference.h"
#include "stage5_training/05_sequential/sequential.h"
#include "stage5_training/08_train_mnist/mnist_data.h"
#include "stage5_training/08_train_mnist/mnist_program.h"
#include "stage5_training/08_train_mnist/mnist_training.h"

namespace train_mnist {

using device_matrix::DeviceBuffer;
using mnist::accuracy;
using mnist::compare_losses;
using mnist::Course;
using mnist::DeviceDigits;
using mnist::epoch_losses;
using mnist::Guess;
using mnist::guess;
using mnist::kClasses;
using mnist::kEvaluationBatch;
using mnist::kPixels;
using mnist::kPixelScale;
using mnist::parameters_of;
using mnist::run_captured;
using mnist::Samples;
using mnist::Settings;
using mnist::train;
using mnist::Trajectory;
using optimizers::ParameterArena;
using optimizers::Schedule;
using random_numbers::Permutation;
using sequential::Sequential;

// ---- Tuning -----------------------------------------------------------------------------------

// The shape of the blocks of fused and persistent: see "A block's part of a step".
inline constexpr unsigned kSamples = 64;  // the largest batch
inline constexpr unsigned kParts = 7;
inline constexpr unsigned kThreads = kSamples * kParts;
inline constexpr unsigned kVectors = kPixels / 16 / kParts;  // loads of 16 pixels per part: 7
inline constexpr unsigned kWords = kPixels / 4;              // 196
inline constexpr unsigned kHalves = 2;
inline constexpr unsigned kSmallThreads = kThreads - kWords * kHalves;
inline constexpr unsigned kPadded = 12;                     // classes, in float4s
inline constexpr unsigned kHeld = 19;                       // hidden units of a part, at a time
inline constexpr unsigned kChunk = kHeld * kParts;          // hidden units at a time
inline constexpr unsigned kMostUnits = 4;                   // hidden units of a block
inline constexpr unsigned kExchanged = kSamples + kPadded;  // floats per hidden unit: h, w2
static_assert(kVectors * 16 * kParts == kPixels && kSmallThreads > 0);

// ---- The model in training --------------------------------------------------------------------

inline Sequential make_model(size_t hidden) {
  return Sequential(sequential::Linear(kPixels, hidden), sequential::ReLU(),
                    sequential::Linear(hidden, kClasses));
}

// A training of that model, and what blocks leave for one another: see "A block's part of a step".
struct Training : mnist::Training {
  Training(const Settings& wanted, const Samples& images)
      : mnist::Training(wanted, images, make_model(wanted.hidden)),
        exchange(2 * wanted.hidden * kExchanged + 3 * kClasses),
        rows(kSamples),
        position(1) {}

  DeviceBuffer<float> exchange;
  DeviceBuffer<unsigned> rows;
  DeviceBuffer<std::uint64_t> position;
};

// ---- Reference --------------------------------------------------------------------------------

inline constexpr size_t kCheckedSteps = 20;

// The network in double, and its training by the settings.
class Reference {
 public:
  // parameters: w1, b1, w2, b2. The first twin decides otherwise where a float version might:
  // whether a hidden unit's sum that is nearly 0 is above ReLU's corner.
  Reference(const Settings& settings, const mnist::Digits& digits,
            const std::vector<std::vector<float>>& parameters, unsigned twin)
      : settings_(settings), digits_(digits), twin_(twin) {
    for (const std::vector<float>& values : parameters) {
      network_.emplace_back(values.size());
      for (size_t i = 0; i < values.size(); ++i)
        network_.back()[i].w = static_cast<double>(values[i]);
    }
  }

  // The loss of step number `step`, the first being 0; leaves its gradients, and takes it.
  double step(size_t step) {
    grads_.clear();
    for (const auto& tensor : network_) grads_.emplace_back(tensor.size());
    const Course course{digits_.count(), settings_.batch, settings_.seed};
    const Permutation order = course.order(step);
    double loss = 0;
    for (size_t sample = 0; sample < settings_.batch; ++sample)
      loss += image(order(course.place(step, sample)));
    for (size_t k = 0; k < network_.size(); ++k) {
      optimizers::step_cpu(settings_.optimizer, mnist::hyperparameters_of(settings_), step + 1,
                           std::vector<float>(grads_[k].begin(), grads_[k].end()), network_[k]);
      train_toy::Twins::move(network_[k], twin_, step + 1, static_cast<std::uint32_t>(k));
    }
    return loss;
  }
  std::vector<double> gradient() const { return train_toy::flat(grads_); }  // of the last step

 private:
  // Its share in the loss; adds to the gradients.
  double image(size_t row) {
    const auto &w1 = network_[0], &b1 = network_[1], &w2 = network_[2], &b2 = network_[3];
    const size_t hidden = b1.size();
    const double batch = static_cast<double>(settings_.batch);
    std::vector<double> x(kPixels), h(hidden), logits(kClasses), grad_logits(kClasses);
    std::vector<bool> passes(hidden);
    for (size_t k = 0; k < kPixels; ++k) x[k] = digits_.pixels[row * kPixels + k] / 255.0;
    for (size_t c = 0; c < kClasses; ++c) logits[c] = b2[c].w;
    for (size_t unit = 0; unit < hidden; ++unit) {
      double sum = b1[unit].w, terms = std::fabs(sum);
      for (size_t k = 0; k < kPixels; ++k) {
        const double term = x[k] * w1[unit * kPixels + k].w;
        sum += term, terms += std::fabs(term);
      }
      h[unit] = std::fmax(sum, 0.0);
      // What a float version's sum usually is off: sqrt(n) u of its terms.
      const double doubt = 2 * std::sqrt(double{kPixels}) * kFloatRoundoff * terms;
      passes[unit] = (sum > 0) != (twin_ == 1 && sum != 0 && std::fabs(sum) <= doubt);
      for (size_t c = 0; c < kClasses; ++c) logits[c] += h[unit] * w2[c * hidden + unit].w;
    }
    const double max = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const double logit : logits) sum += std::exp(logit - max);
    const size_t label = digits_.labels[row];
    for (size_t c = 0; c < kClasses; ++c) {
      const double p = std::exp(logits[c] - max) / sum;
      grad_logits[c] = (train_toy::Twins::stored(p, twin_) - (c == label ? 1 : 0)) / batch;
      grads_[3][c] += grad_logits[c];
    }
    for (size_t unit = 0; unit < hidden; ++unit) {
      double grad_h = 0;
      for (size_t c = 0; c < kClasses; ++c) {
        grads_[2][c * hidden + unit] += grad_logits[c] * h[unit];
        grad_h += grad_logits[c] * w2[c * hidden + unit].w;
      }
      if (!passes[unit]) continue;
      grads_[1][unit] += grad_h;
      for (size_t k = 0; k < kPixels; ++k) grads_[0][unit * kPixels + k] += grad_h * x[k];
    }
    return (std::log(sum) + max - logits[label]) / batch;
  }

  Settings settings_;
  const mnist::Digits& digits_;
  unsigned twin_;
  std::vector<std::vector<optimizers::Element>> network_;
  std::vector<std::vector<double>> grads_;
};

// What the first `steps` steps must do from these parameters; it may end before. Ten times what the
// twins drift away is allowed.
inline Trajectory trajectory_cpu(const Settings& settings, const mnist::Digits& digits,
                                 const std::vector<std::vector<float>>& parameters, size_t steps) {
  return train_toy::follow(
      steps, 3, train_toy::Twins(10),
      [&](unsigned twin) {
        return Reference(settings, digits, train_toy::Twins::beside(parameters, twin), twin);
      },
      [](Reference& run, std::uint64_t t) { return run.step(t - 1); });
}

// ---- A kernel per operation -------------------------------------------------------------------

// Queues one step.
inline void queue_operations(Training& t) { mnist::queue_step(t, losses::cross_entropy); }

inline void run_operations(Training& t, size_t steps) {
  for (size_t i = 0; i < steps; ++i) queue_operations(t);
}

// ---- The same from a graph --------------------------------------------------------------------

inline void run_graph(Training& t, size_t steps) { run_captured(t, steps, queue_operations); }

// ---- A block's part of a step -----------------------------------------------------------------
// From here on kernels are written for this network. A block owns kUnits hidden units: their rows
// of w1 and what the optimizer keeps of them, their biases, their columns of w2. All pixels of the
// batch meet all of these weights inside one block, so a block computes its units' outputs without
// the others, and changes its weights without the others. Only between the two does it need what
// the other blocks have: the logits are sums over all hidden units.
//
//   pixels --> h of own units --+                 +--> logits --> loss --> gradients --> own
//   weights
//                               |  all blocks     |
//                               +--> h, w2 -------+    the same in every block, but the last two
//
// Each block computes all logits itself: to share that work would take a second time of waiting.
// b2 is every block's: all keep it, all change it alike.
//
// The threads of a block are divided in two ways:
//   kSamples x kParts     a sample; a seventh of its pixels, or of the hidden units
//   kWords x kHalves      four neighbouring pixels; half of the samples. The threads that are left
//                         take the small gradients: of w2's columns and of the biases.

struct Network {
  ParameterArena w1, b1, w2, b2;  // (hidden, 784), (hidden), (10, hidden), (10)
  unsigned hidden;
};

// What the blocks leave for one another, in global memory.
struct Exchange {
  float* h;           // (hidden, kSamples) outputs of the hidden units
  float* w2;          // (hidden, kPadded) the columns of w2
  ParameterArena b2;  // (10) a copy
};

// The shared memory of a block.
template <unsigned kUnits>
struct Shared {
  static constexpr unsigned kOfClasses = (kUnits + 1) * kClasses, kSmall = kOfClasses + kUnits;
  static constexpr unsigned kOfLogits = kParts * kSamples * kClasses / 4;
  static constexpr unsigned kOfPixels = kUnits * kWords;

  float4 w1[kUnits][kWords];
  float4 scratch[kOfLogits > kOfPixels ? kOfLogits : kOfPixels];  // parts of sums
  float4 w2[kChunk][kPadded / 4];                                 // of all units, a chunk of them
  float4 grad_logits[kSamples][kPadded / 4];
  float h[kUnits + 1][kSamples];  // of the own units, and of one that is always 1
  float grad_h[kSamples][kUnits];
  float row_losses[kSamples];
  // The own columns of w2, unit by unit; b2, the column of the unit that is always 1; the own
  // units' b1. And their m and v.
  float small_w[kSmall], small_m[kSmall], small_v[kSmall];

  __device__ float& bias(unsigned unit) { return small_w[kOfClasses + unit]; }
  __device__ float& bias_of_class(unsigned c) { return small_w[kUnits * kClasses + c]; }
};

// The images of a batch: where they lie in the data set, or copied into a tile of shared memory.
struct DataSetImages {
  const std::uint8_t* pixels;
  const unsigned* rows;
  __device__ const std::uint8_t* image(unsigned sample) const {
    return pixels + size_t{rows[sample]} * kPixels;
  }
};
struct TileImages {
  const std::uint8_t* tile;
  __device__ const std::uint8_t* image(unsigned sample) const { return tile + sample * kPixels; }
};

__device__ inline float dot4(float4 a, float4 b, float sum) {
  return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

__device__ inline void multiply_add(float4& sum, float a, float4 b) {
  sum.x = fmaf(a, b.x, sum.x), sum.y = fmaf(a, b.y, sum.y);
  sum.z = fmaf(a, b.z, sum.z), sum.w = fmaf(a, b.w, sum.w);
}

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
        multiply_add(sums[k], h[j], shared.w2[part * kHeld + j][k]);
  }
  float* partial = reinterpret_cast<float*>(shared.scratch) + part * kClasses * kSamples + sample;
  const float values[] = {sums[0].x, sums[0].y, sums[0].z, sums[0].w, sums[1].x,
                          sums[1].y, sums[1].z, sums[1].w, sums[2].x, sums[2].y};
  for (unsigned c = 0; c < kClasses; ++c) partial[c * kSamples] = values[c];
}

// What a thread for each sample does: its logits, its loss, their gradient, and the gradient of
// the own units' sums.
template <unsigned kUnits>
__device__ inline void differentiate_sample(Shared<kUnits>& shared, unsigned sample, unsigned label,
                                            unsigned batch) {
  const float* partial = reinterpret_cast<const float*>(shared.scratch) + sample;
  float logits[kPadded];
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

  // exercise: grad_logits = (probability - one_hot) / batch, in place of the exponentials; and per
  // own unit grad_h = grad_logits . its column of w2, where h > 0 (about 11 lines)
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
  // end exercise
  shared.grad_logits[sample][0] = make_float4(logits[0], logits[1], logits[2], logits[3]);
  shared.grad_logits[sample][1] = make_float4(logits[4], logits[5], logits[6], logits[7]);
  shared.grad_logits[sample][2] = make_float4(logits[8], logits[9], 0, 0);
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
      multiply_add(sums[unit], shared.grad_h[s][unit], x);
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

// Where the block's number i of small_w lies in the network: calls visit(tensor, offset) unless it
// is of a unit that the network does not have.
template <unsigned kUnits, class Visit>
__device__ inline void visit_small(const Network& network, unsigned i, Visit visit) {
  using Block = Shared<kUnits>;
  const unsigned first = blockIdx.x * kUnits, unit = i / kClasses, c = i % kClasses;
  if (i >= Block::kOfClasses) {
    const unsigned row = first + i - Block::kOfClasses;
    if (row < network.hidden) visit(network.b1, row);
  } else if (unit == kUnits) {
    visit(network.b2, c);
  } else if (first + unit < network.hidden) {
    visit(network.w2, c * network.hidden + first + unit);
  }
}

// Brings the block's weights from global memory; those of units that the network does not have
// are 0.
template <unsigned kUnits>
__device__ inline void load_w1(Shared<kUnits>& shared, const Network& network) {
  const float4* w1 = reinterpret_cast<const float4*>(network.w1.w);
  for (unsigned i = threadIdx.x; i < kUnits * kWords; i += kThreads) {
    const unsigned unit = blockIdx.x * kUnits + i / kWords;
    shared.w1[i / kWords][i % kWords] =
        unit < network.hidden ? w1[size_t{unit} * kWords + i % kWords] : make_float4(0, 0, 0, 0);
  }
}
template <unsigned kUnits>
__device__ inline void load_small(Shared<kUnits>& shared, const Network& network) {
  for (unsigned i = threadIdx.x; i < kSamples; i += kThreads) shared.h[kUnits][i] = 1;
  for (unsigned i = threadIdx.x; i < Shared<kUnits>::kSmall; i += kThreads) {
    shared.small_w[i] = shared.small_m[i] = shared.small_v[i] = 0;
    visit_small<kUnits>(network, i, [&](const ParameterArena& tensor, unsigned at) {
      shared.small_w[i] = tensor.w[at];
      shared.small_m[i] = tensor.m[at], shared.small_v[i] = tensor.v[at];
    });
  }
}

// Takes the small ones back; b2 from block 0.
template <unsigned kUnits>
__device__ inline void store_small(const Shared<kUnits>& shared, const Network& network) {
  for (unsigned i = threadIdx.x; i < Shared<kUnits>::kSmall; i += kThreads)
    visit_small<kUnits>(network, i, [&](const ParameterArena& tensor, unsigned at) {
      if (tensor.w == network.b2.w && blockIdx.x != 0) return;
      tensor.w[at] = shared.small_w[i];
      tensor.m[at] = shared.small_m[i], tensor.v[at] = shared.small_v[i];
    });
}

// ---- Two kernels per step ---------------------------------------------------------------------

// h and w2 of all hidden units, in `exchange`, of the next batch    a block per kUnits units.
// Fixes : an operation's kernel reads from memory what the one before has just written there.
// Idea  : all that a block's units need until they meet the others, from bytes to ReLU, at once.
// Thread: (sample, part) sums a seventh of the pixels for all units of the block.
// Costs : every block reads the whole batch, 50 KB from the L2 cache; 2 barriers.
template <unsigned kUnits>
static __global__ void __launch_bounds__(kThreads)
    forward_units(Network network, Samples samples, Course course, Schedule* schedule,
                  Exchange exchange, std::uint64_t* position, unsigned* rows) {
  DYNAMIC_SHARED(Shared<kUnits>, block);
  Shared<kUnits>& shared = *block;
  const unsigned t = threadIdx.x, batch = static_cast<unsigned>(course.batch);
  const std::uint64_t step = *position;  // the schedule's own step changes below
  __shared__ unsigned images[kSamples];
  load_w1(shared, network);
  load_small(shared, network);
  if (t < batch) {
    const std::uint64_t row = course.order(step)(course.place(step, t));
    images[t] = static_cast<unsigned>(row);
    if (blockIdx.x == 0) rows[t] = static_cast<unsigned>(row);
  }
  __syncthreads();  // weights and rows are in shared memory
  sum_pixels(shared, DataSetImages{samples.pixels, images}, batch);
  __syncthreads();  // the parts of all sums are in scratch
  publish_units(shared, exchange, network.hidden);
  if (blockIdx.x == 0 && t < kClasses) {  // block 0 of the next kernel changes b2 itself
    exchange.b2.w[t] = network.b2.w[t];
    exchange.b2.m[t] = network.b2.m[t], exchange.b2.v[t] = network.b2.v[t];
  }
  if (blockIdx.x == 0 && t == 0) optimizers::advance(*schedule);
}

// The rest of the step: *loss, and new weights    a block per kUnits units.
// Fixes : gradients go to memory, to be read once by the optimizer.
// Idea  : the block that has summed a gradient owns its weight, and applies the rule at once.
// Thread: (sample, part) for the logits, (word, half) for the gradients of w1.
// Costs : every block computes all logits; 5 barriers; the kernel's end lets the others go on.
template <class Rule, unsigned kUnits>
static __global__ void __launch_bounds__(kThreads)
    backward_units(Network network, Samples samples, Course course, const Schedule* schedule,
                   Exchange exchange, std::uint64_t* position, const unsigned* rows, float* curve) {
  DYNAMIC_SHARED(Shared<kUnits>, block);
  Shared<kUnits>& shared = *block;
  const unsigned t = threadIdx.x, batch = static_cast<unsigned>(course.batch);
  const std::uint64_t step = schedule->step - 1;
  Network copied = network;
  copied.b2 = exchange.b2;
  load_small(shared, copied);
  for (unsigned i = t; i < kUnits * kSamples; i += kThreads) {
    const unsigned unit = blockIdx.x * kUnits + i / kSamples;
    shared.h[i / kSamples][i % kSamples] =
        unit < network.hidden ? exchange.h[unit * kSamples + i % kSamples] : 0.0f;
  }
  __shared__ unsigned images[kSamples];
  if (t < batch) images[t] = rows[t];
  sum_units(shared, exchange, network.hidden);
  __syncthreads();  // the parts of all logits are in scratch, and what is loaded above is there
  if (t < batch) differentiate_sample(shared, t, samples.labels[images[t]], batch);
  __syncthreads();  // the gradients of the logits and of the own units are there; scratch is free
  float4 sums[kUnits];
  if (t < kWords * kHalves)
    sum_samples(sums, shared, DataSetImages{samples.pixels, images}, batch);
  else
    update_small<Rule>(shared, *schedule, curve + step % course.steps_per_epoch(), batch);
  __syncthreads();  // each half has the other's sums in scratch; small_w is new
  const Schedule s = *schedule;
  if (t < kWords * kHalves)
    for_owned(sums, shared, [&](unsigned unit, float4 grad) {
      const size_t row = blockIdx.x * kUnits + unit;
      if (row >= network.hidden) return;
      const size_t i = row * kWords + t % kWords;
      float4& w = reinterpret_cast<float4*>(network.w1.w)[i];
      float4& m = reinterpret_cast<float4*>(network.w1.m)[i];
      float4& v = reinterpret_cast<float4*>(network.w1.v)[i];
      optimizers::apply(Rule{}, w, grad, m, v, s);
    });
  store_small(shared, network);
  if (blockIdx.x == 0 && t == 0) *position = step + 1;
}

inline ParameterArena tensor_of(const sequential::NamedTensor& named) {
  return {named.w, named.grad, named.m, named.v, named.n};
}
inline Network network_of(const Training& t) {
  const auto& tensors = t.model.tensors();
  return {tensor_of(tensors[0]), tensor_of(tensors[1]), tensor_of(tensors[2]),
          tensor_of(tensors[3]), static_cast<unsigned>(t.settings.hidden)};
}
// Two of them, for steps in turn.
inline Exchange exchange_of(Training& t, size_t turn) {
  float* const h = t.exchange.data() + turn * t.settings.hidden * kExchanged;
  float* const b2 = t.exchange.data() + 2 * t.settings.hidden * kExchanged;
  return {h,
          h + t.settings.hidden * kSamples,
          {b2, nullptr, b2 + kClasses, b2 + 2 * kClasses, kClasses}};
}

// Calls visit(std::integral_constant) with 1, 2 or kMostUnits.
template <class Visit>
inline void visit_units(unsigned units, Visit&& visit) {
  if (units == 1) return visit(std::integral_constant<unsigned, 1>{});
  if (units == 2) return visit(std::integral_constant<unsigned, 2>{});
  visit(std::integral_constant<unsigned, kMostUnits>{});
}

// As few hidden units per block as give every multiprocessor at most one block, and no more than
// kMostUnits.
inline unsigned fused_units(size_t hidden) {
  for (const unsigned units : {1u, 2u})
    if (gpu::ceil_div(hidden, units) <= gpu::multiprocessors()) return units;
  return kMostUnits;
}

inline void queue_fused(Training& t) {
  const Network network = network_of(t);
  const Exchange exchange = exchange_of(t, 0);
  Schedule* schedule = t.schedule.data();
  visit_units(fused_units(network.hidden), [&](auto units) {
    constexpr unsigned kUnits = decltype(units)::value;
    constexpr size_t kBytes = sizeof(Shared<kUnits>);
    static_assert(kBytes <= 48 * 1024, "more needs gpu::allow_shared_bytes");
    const unsigned blocks = static_cast<unsigned>(gpu::ceil_div(network.hidden, kUnits));
    LAUNCH_ON(t.stream, (forward_units<kUnits>), blocks, kThreads, kBytes, network, t.samples,
              t.course(), schedule, exchange, t.position.data(), t.rows.data());
    optimizers::visit_rule(t.settings.optimizer, [&](auto rule) {
      LAUNCH_ON(t.stream, (backward_units<decltype(rule), kUnits>), blocks, kThreads, kBytes,
                network, t.samples, t.course(), schedule, exchange, t.position.data(),
                t.rows.data(), t.curve.data());
    });
  });
}

inline void run_fused(Training& t, size_t steps) {
  HIP_CHECK(hipMemcpyAsync(t.position.data(), &t.schedule.data()->step, sizeof(std::uint64_t),
                           hipMemcpyDeviceToDevice, t.stream));
  run_captured(t, steps, queue_fused);
}

// ---- One kernel for an epoch ------------------------------------------------------------------

inline constexpr unsigned kAhead = 4 * kParts;  // steps that are planned at a time

// What the next steps need and all threads can find out at once: kept in shared memory. It would
// hold up each step to wait for the two powers of Adam's correction, which one thread computes.
struct Plan {
  unsigned rows[kAhead + 1][kSamples];  // their images, and those of the step behind them
  Schedule schedules[kAhead];
};

// `steps` steps, all of one epoch    a block per kUnits units, all blocks at the same time.
// Fixes : a kernel forgets: each one loads the block's weights, and a step waits for two launches.
// Idea  : one kernel; the weights stay in shared memory and what the optimizer keeps in registers.
//         Where a kernel ended, the blocks wait for one another. What they exchange has two places,
//         used in turn: a block may still read the one while another is a step ahead.
// Thread: as in the two kernels; (word, half) also keeps m and v of its weights.
// Costs : one barrier of the grid and 6 of the block per step. kTile: the batch, 50 KB, is brought
//         to shared memory once, one step ahead.
template <class Rule, unsigned kUnits, bool kTile>
static __global__ void __launch_bounds__(kThreads)
    train_persistent(Network network, Samples samples, Course course, Schedule* schedule,
                     Exchange even, Exchange odd, float* curve, size_t steps) {
  DYNAMIC_SHARED(Shared<kUnits>, block);
  Shared<kUnits>& shared = *block;
  static_assert(sizeof(*block) % sizeof(uint4) == 0 && sizeof(Plan) % sizeof(uint4) == 0);
  Plan& plan = *reinterpret_cast<Plan*>(block + 1);
  uint4* tile = reinterpret_cast<uint4*>(&plan + 1);  // (kSamples, 784) bytes, where kTile
  constexpr unsigned kRow = kPixels / 16;             // uint4s of an image
  constexpr unsigned kOwned = (kUnits + kHalves - 1) / kHalves;
  const unsigned t = threadIdx.x, batch = static_cast<unsigned>(course.batch);
  const unsigned word = t % kWords, half = t / kWords;
  const Schedule begin = *schedule;
  const size_t in_epoch = begin.step % course.steps_per_epoch();

  // Calls visit(unit, offset in w1) for the weights that this thread owns.
  const auto visit_owned = [&](auto visit) {
    GPU_UNROLL
    for (unsigned unit = 0; unit < kUnits; ++unit) {
      const unsigned row = blockIdx.x * kUnits + unit;
      if (t < kWords * kHalves && unit % kHalves == half && row < network.hidden)
        visit(unit, size_t{row} * kWords + word);
    }
  };
  load_w1(shared, network);
  load_small(shared, network);
  float4 m[kOwned] = {}, v[kOwned] = {};
  visit_owned([&](unsigned unit, size_t i) {
    m[unit / kHalves] = reinterpret_cast<const float4*>(network.w1.m)[i];
    v[unit / kHalves] = reinterpret_cast<const float4*>(network.w1.v)[i];
  });

  const auto make_plan = [&](size_t first) {
    const Permutation order = course.order(begin.step);
    for (unsigned i = t; i < (kAhead + 1) * kSamples; i += kThreads) {
      const size_t step = first + i / kSamples;
      if (i % kSamples < batch && step < steps)
        plan.rows[i / kSamples][i % kSamples] =
            static_cast<unsigned>(order((in_epoch + step) * batch + i % kSamples));
    }
    if (t < kAhead) {
      Schedule of_step = begin;
      of_step.step += first + t;
      optimizers::advance(of_step);
      plan.schedules[t] = of_step;
    }
  };
  // A batch on its way to the tile: 7 loads of 16 bytes per thread, in flight during the barrier.
  constexpr unsigned kLoads = kTile ? kSamples * kRow / kThreads : 1;
  uint4 held[kLoads];
  const auto fetch = [&](const unsigned* rows) {
    GPU_UNROLL
    for (unsigned k = 0; k < kLoads; ++k) {
      const unsigned at = t + k * kThreads, sample = at / kRow;
      if (sample < batch)
        held[k] = reinterpret_cast<const uint4*>(samples.pixels +
                                                 size_t{rows[sample]} * kPixels)[at % kRow];
    }
  };
  const auto keep = [&] {
    GPU_UNROLL
    for (unsigned k = 0; k < kLoads; ++k)
      if ((t + k * kThreads) / kRow < batch) tile[t + k * kThreads] = held[k];
  };

  for (size_t i = 0; i < steps; ++i) {
    const unsigned planned = static_cast<unsigned>(i % kAhead);
    if (planned == 0) {
      make_plan(i);
      __syncthreads();  // the plan of the next kAhead steps is there
      if constexpr (kTile)
        if (i == 0) {
          fetch(plan.rows[0]);
          keep();
          __syncthreads();  // the first batch is in the tile
        }
    }
    const Exchange& exchange = i % 2 == 0 ? even : odd;
    const unsigned* rows = plan.rows[planned];
    const Schedule& now = plan.schedules[planned];
    const auto images = [&] {
      if constexpr (kTile)
        return TileImages{reinterpret_cast<const std::uint8_t*>(tile)};
      else
        return DataSetImages{samples.pixels, rows};
    }();
    sum_pixels(shared, images, batch);
    __syncthreads();  // the parts of all sums are in scratch
    publish_units(shared, exchange, network.hidden);
    const unsigned label = t < batch ? samples.labels[rows[t]] : 0;
    if constexpr (kTile)
      if (i + 1 < steps) fetch(plan.rows[planned + 1]);
    gpu::grid_sync();  // what every block knows of its units is in global memory

    sum_units(shared, exchange, network.hidden);
    __syncthreads();  // the parts of all logits are in scratch
    if (t < batch) differentiate_sample(shared, t, label, batch);
    __syncthreads();  // the gradients of logits and own units are there; scratch is free

    float4 sums[kUnits];
    if (t < kWords * kHalves)
      sum_samples(sums, shared, images, batch);
    else
      update_small<Rule>(shared, now, curve + in_epoch + i, batch);
    __syncthreads();  // each half has the other's sums in scratch; the tile is free
    if (t < kWords * kHalves)
      for_owned(sums, shared, [&](unsigned unit, float4 grad) {
        optimizers::apply(Rule{}, shared.w1[unit][word], grad, m[unit / kHalves], v[unit / kHalves],
                          now);
      });
    if constexpr (kTile)
      if (i + 1 < steps) keep();
    __syncthreads();  // new weights and the next batch are there
  }

  visit_owned([&](unsigned unit, size_t i) {
    reinterpret_cast<float4*>(network.w1.w)[i] = shared.w1[unit][word];
    reinterpret_cast<float4*>(network.w1.m)[i] = m[unit / kHalves];
    reinterpret_cast<float4*>(network.w1.v)[i] = v[unit / kHalves];
  });
  store_small(shared, network);
  if (blockIdx.x == 0 && t == 0) *schedule = plan.schedules[(steps - 1) % kAhead];
}

// How persistent can run on this device: calls visit(kernel, bytes of shared memory, blocks) for
// the first choice whose blocks are all resident at the same time. Returns false where none is.
template <class Rule, unsigned kUnits, bool kTile, class Visit>
inline bool try_persistent(size_t hidden, Visit&& visit) {
  const auto kernel = train_persistent<Rule, kUnits, kTile>;
  const size_t bytes = sizeof(Shared<kUnits>) + sizeof(Plan) + (kTile ? kSamples * kPixels : 0);
  if (bytes > gpu::max_shared_bytes()) return false;
  gpu::allow_shared_bytes(kernel, bytes);
  int resident = 0;
  HIP_CHECK(hipOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel,
                                                         static_cast<int>(kThreads), bytes));
  const size_t blocks = gpu::ceil_div(hidden, kUnits);
  if (blocks > static_cast<size_t>(resident) * gpu::multiprocessors()) return false;
  visit(kernel, bytes, static_cast<unsigned>(blocks));
  return true;
}
template <class Rule, class Visit>
inline bool choose_persistent(size_t hidden, Visit&& visit) {
  return try_persistent<Rule, 1, true>(hidden, visit) ||
         try_persistent<Rule, 2, true>(hidden, visit) ||
         try_persistent<Rule, 2, false>(hidden, visit) ||
         try_persistent<Rule, kMostUnits, false>(hidden, visit);
}

inline void run_persistent(Training& t, size_t steps) {
  const std::uint64_t per_epoch = t.course().steps_per_epoch();
  for (std::uint64_t step = t.steps; steps > 0;) {  // a launch does not cross an epoch's end
    const size_t part = std::min<size_t>(steps, per_epoch - step % per_epoch);
    optimizers::visit_rule(t.settings.optimizer, [&](auto rule) {
      choose_persistent<decltype(rule)>(
          t.settings.hidden, [&](auto kernel, size_t bytes, unsigned blocks) {
            LAUNCH_COOPERATIVE(kernel, blocks, kThreads, bytes, network_of(t), t.samples,
                               t.course(), t.schedule.data(), exchange_of(t, 0), exchange_of(t, 1),
                               t.curve.data(), part);
          });
    });
    step += part, steps -= part;
  }
}

// ---- The versions -----------------------------------------------------------------------------

// Empty, or why a version can't run this training on this device.
inline std::string takes_any(const Training&) { return ""; }
inline std::string takes_small_batches(const Training& t) {
  return t.settings.batch <= kSamples ? "" : "takes batches of up to " + std::to_string(kSamples);
}
inline std::string needs_residency(const Training& t) {
  if (const std::string why = takes_small_batches(t); !why.empty()) return why;
  bool possible = gpu::device_attribute(hipDeviceAttributeCooperativeLaunch) != 0;
  optimizers::visit_rule(t.settings.optimizer, [&](auto rule) {
    possible = possible &&
               choose_persistent<decltype(rule)>(t.settings.hidden, [](auto, size_t, unsigned) {});
  });
  if (possible) return "";
  return "its " + std::to_string(gpu::ceil_div(t.settings.hidden, kMostUnits)) +
         " blocks do not fit the device at a time";
}

using Launch = mnist::Launch<Training>;

inline constexpr Version<Launch> kVersions[] = {
    {"operations", {run_operations, takes_any}, "a kernel per operation, launched by the host"},
    {"graph", {run_graph, takes_any}, "the same kernels, replayed from a graph of steps"},
    {"fused", {run_fused, takes_small_batches}, "two kernels per step, in a graph"},
    {"persistent", {run_persistent, needs_residency}, "one kernel per epoch, weights on the chip"},
};

// The version to take where one is enough: the last that can run. A processor does not care how
// kernels are launched, and has the fastest ones of them in the first version.
inline const Version<Launch>& best(const Training& t) {
  const Version<Launch>* chosen = &kVersions[0];
  if (std::string(gpu::kBackend) == "cpu") return *chosen;
  for (const auto& version : kVersions)
    if (version.launch.obstacle(t).empty()) chosen = &version;
  return *chosen;
}

}  // namespace train_mnist
