// 5.6  train_toy: a small network learns XOR, two blobs and a spiral, thousands of steps over all
// points at once.
//
//   2 -> Linear -> tanh -> ... -> Linear -> softmax, cross-entropy -> gradients -> optimizer
//
// Nothing in it is new: the layers are step 5.5's, the loss 3.3's, the rule of the optimizer 5.4's.
// But such a step has a few thousand operations to do, and each kernel of it is over before the
// next one has been launched. The ladder is how a step is launched: a kernel per operation, the
// same kernels as a graph, one kernel for the step, one for all steps, and at last a wave that
// keeps the whole network in registers.
//
// x (points, inputs), row-major; a label in [0, classes) for each point. An epoch is one step:
// every step takes all points. One training at a time uses a Trainer; launches only queue work.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/compare.h"
#include "common/gpu.h"
#include "common/graph.h"
#include "common/program.h"
#include "common/random.h"
#include "stage0_infra/04_device_matrix/device_matrix.h"
#include "stage1_vector/03_dot/detail/block_sum.h"
#include "stage1_vector/03_dot/detail/thread_sum.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage3_ml_ops/02_softmax/softmax.h"
#include "stage3_ml_ops/03_losses/losses.h"
#include "stage5_training/04_optimizers/detail/rules.h"
#include "stage5_training/04_optimizers/optimizers.h"
#include "stage5_training/04_optimizers/reference.h"
#include "stage5_training/05_sequential/sequential.h"
#include "stage5_training/06_train_toy/trajectory.h"

namespace train_toy {

using device_matrix::DeviceBuffer;
using optimizers::Hyperparameters;
using optimizers::Kind;
using optimizers::Schedule;

// ---- Data sets --------------------------------------------------------------------------------

// Points in the plane (any other dimension would do) and the class of each.
struct Points {
  std::vector<float> x;  // (labels.size(), inputs)
  std::vector<int> labels;
};

// Coordinates are rounded to a multiple of 2^-12: what the last bit of a math library's cosine is
// can't be seen, and the data is the same everywhere.
inline float coordinate(double value) {
  return static_cast<float>(std::round(value * 4096) / 4096);
}

// The four corners of a square; opposite ones are of one class. No straight line separates them.
inline Points make_xor(std::uint64_t /*seed*/) { return {{0, 0, 0, 1, 1, 0, 1, 1}, {0, 1, 1, 0}}; }

// 256 points around two centres, normally distributed (Box and Muller: A note on the generation of
// random normal deviates, 1958). The centres are 5.6 standard deviations apart.
inline Points make_blobs(std::uint64_t seed) {
  constexpr size_t kPoints = 256;
  constexpr double kDeviation = 0.4, kCentres[2][2] = {{-1, -0.5}, {1, 0.5}};
  constexpr std::uint32_t kStream = 100;
  Points points;
  for (size_t i = 0; i < kPoints; ++i) {
    const size_t label = i % 2;
    // Both in (0, 1]: a uniform number is at least -1 and below 1.
    const double a = (1 - static_cast<double>(random_numbers::uniform(seed, kStream, 2 * i))) / 2;
    const double b =
        (1 - static_cast<double>(random_numbers::uniform(seed, kStream, 2 * i + 1))) / 2;
    const double radius = kDeviation * std::sqrt(-2 * std::log(a)), angle = 2 * std::acos(-1.0) * b;
    points.x.push_back(coordinate(kCentres[label][0] + radius * std::cos(angle)));
    points.x.push_back(coordinate(kCentres[label][1] + radius * std::sin(angle)));
    points.labels.push_back(static_cast<int>(label));
  }
  return points;
}

// Three arms of 64 points, each of which winds around the origin by three quarters of a turn.
inline Points make_spiral(std::uint64_t seed) {
  constexpr size_t kArms = 3, kPointsPerArm = 64;
  constexpr double kTurns = 0.75, kNoise = 0.2;  // of the angle, in radians
  constexpr std::uint32_t kStream = 101;
  Points points;
  for (size_t i = 0; i < kArms * kPointsPerArm; ++i) {
    const size_t arm = i % kArms;
    const double along = (static_cast<double>(i / kArms) + 0.5) / kPointsPerArm;
    const double noise = static_cast<double>(random_numbers::uniform(seed, kStream, i));
    const double turns = static_cast<double>(arm) / kArms + kTurns * along;
    const double radius = 0.1 + 0.9 * along, angle = 2 * std::acos(-1.0) * turns + kNoise * noise;
    points.x.push_back(coordinate(radius * std::cos(angle)));
    points.x.push_back(coordinate(radius * std::sin(angle)));
    points.labels.push_back(static_cast<int>(arm));
  }
  return points;
}

struct DataSet {
  const char* name;
  Points (*make)(std::uint64_t seed);
  std::vector<size_t> widths;  // of the network: inputs, hidden units, ..., classes
  double accuracy;             // what a training must reach
};

inline const std::vector<DataSet>& data_sets() {
  static const std::vector<DataSet> sets = {{"xor", make_xor, {2, 8, 2}, 1},
                                            {"blobs", make_blobs, {2, 8, 2}, 0.99},
                                            {"spiral", make_spiral, {2, 16, 16, 3}, 0.99}};
  return sets;
}

// What suits all three. 400 epochs are enough, and what the CPU backend can do in a few seconds.
inline const TrainingDefaults kDefaults{5000, 400, 20, 0, 0.2, "momentum", false};

// ---- Reference and bound ----------------------------------------------------------------------

// A network in double. Parameters in the order of the model's: a layer's weights (out, in), then
// its biases.
class Reference {
 public:
  // A twin keeps the layers' outputs as floats. Where tanh is nearly 1, hardly a digit is left of
  // its slope 1 - h^2 then; Adam takes a full step from whatever is left.
  Reference(std::vector<size_t> widths, const std::vector<float>& parameters, unsigned twin)
      : widths_(std::move(widths)), twin_(twin) {
    for (const float value : parameters) elements_.push_back({static_cast<double>(value)});
  }

  // The mean loss over the points; then one step of the optimizer, number t (the first is 1).
  double step(const Points& points, Kind kind, const Hyperparameters& hyper, std::uint64_t t) {
    const size_t layers = widths_.size() - 1, count = points.labels.size();
    std::vector<double>& grad = gradient_;
    grad.assign(elements_.size(), 0);
    double loss = 0;
    for (size_t s = 0; s < count; ++s) {
      std::vector<std::vector<double>> values{
          {points.x.begin() + static_cast<std::ptrdiff_t>(s * widths_[0]),
           points.x.begin() + static_cast<std::ptrdiff_t>((s + 1) * widths_[0])}};
      for (size_t l = 0; l < layers; ++l) values.push_back(forward(l, values[l]));
      std::vector<double> delta = values.back();  // from here on: the gradient of the sums
      const double max = *std::max_element(delta.begin(), delta.end());
      double sum = 0;
      for (const double logit : delta) sum += std::exp(logit - max);
      const size_t label = static_cast<size_t>(points.labels[s]);
      loss += (std::log(sum) + max - delta[label]) / static_cast<double>(count);
      for (size_t c = 0; c < delta.size(); ++c) {
        const double p = std::exp(delta[c] - max) / sum;
        delta[c] = (Twins::stored(p, twin_) - (c == label)) / static_cast<double>(count);
      }
      for (size_t l = layers; l-- > 0;) delta = backward(l, values[l], delta, grad);
    }
    optimizers::step_cpu(kind, hyper, t, std::vector<float>(grad.begin(), grad.end()), elements_);
    Twins::move(elements_, twin_, t);
    return loss;
  }
  const std::vector<double>& gradient() const { return gradient_; }  // of the last step

 private:
  // Where the weights of layer l begin.
  size_t begin(size_t l) const {
    size_t at = 0;
    for (size_t k = 0; k < l; ++k) at += (widths_[k] + 1) * widths_[k + 1];
    return at;
  }
  std::vector<double> forward(size_t l, const std::vector<double>& x) const {
    const size_t in = widths_[l], out = widths_[l + 1], w = begin(l);
    std::vector<double> y(out);
    for (size_t o = 0; o < out; ++o) {
      y[o] = elements_[w + in * out + o].w;
      for (size_t k = 0; k < in; ++k) y[o] += elements_[w + o * in + k].w * x[k];
      if (l + 2 < widths_.size()) y[o] = std::tanh(y[o]);
      y[o] = Twins::stored(y[o], twin_);
    }
    return y;
  }
  // Adds to the parameters' gradient; returns that of the sums whose tanh is x.
  std::vector<double> backward(size_t l, const std::vector<double>& x,
                               const std::vector<double>& delta, std::vector<double>& grad) const {
    const size_t in = widths_[l], out = widths_[l + 1], w = begin(l);
    std::vector<double> result(in);
    for (size_t o = 0; o < out; ++o) {
      grad[w + in * out + o] += delta[o];
      for (size_t k = 0; k < in; ++k) {
        grad[w + o * in + k] += delta[o] * x[k];
        result[k] += delta[o] * elements_[w + o * in + k].w;
      }
    }
    for (size_t k = 0; k < in; ++k) result[k] *= 1 - x[k] * x[k];
    return result;
  }

  std::vector<size_t> widths_;
  unsigned twin_;
  std::vector<optimizers::Element> elements_;
  std::vector<double> gradient_;
};

// The trajectory from these parameters. Ten times what the twins drift away is allowed, and 4 u: a
// loss near 0 is the logarithm of 1 + e, a sum that has lost what is below u. Long trainings drift
// apart for good: what can be compared then is the accuracy. It may end before `steps` steps.
inline Trajectory trajectory_cpu(const std::vector<size_t>& widths, const Points& points,
                                 const std::vector<float>& parameters, Kind kind,
                                 const Hyperparameters& hyper, size_t steps) {
  return follow(
      steps, 3, Twins(10, 4 * kFloatRoundoff),
      [&](unsigned twin) { return Reference(widths, Twins::beside(parameters, twin), twin); },
      [&](Reference& run, std::uint64_t t) { return run.step(points, kind, hyper, t); });
}

// ---- Tuning -----------------------------------------------------------------------------------

inline constexpr unsigned kStepsPerGraph = 50;      // captured together
inline constexpr unsigned kMaxThreads = 768;        // of the block that does a whole step
inline constexpr int kUnits = 4;                    // that a thread computes for a point at once
inline constexpr unsigned kStepsPerLaunch = 65536;  // of a persistent kernel
inline constexpr int kMaxLayers = 4;

// The network of the version `wave`.
inline constexpr int kWaveInputs = 2, kWaveHidden = 8, kWaveClasses = 2, kWavePoints = 4;

// ---- What the kernels of a whole step need ----------------------------------------------------

// A layer, and where its numbers lie. A bias is the weight of an input that is always 1.
struct Layer {
  int in, out;
  int w, bias;  // in the model's arena: weights (out, in), biases (out)
  int weights;  // in shared memory: (out, in + 1), a unit's bias behind its weights
  int inputs;   // its first row of inputs: in + 1 rows, the last one all ones
  int grads;    // its first row of gradients of its sums: out rows
};

// A row holds a number per point, and zeros up to its end.
struct Network {
  int layers, points, parameters;
  int rows, stride;    // of all rows: how many, and floats from one to the next
  int labels, losses;  // the rows of these
  Layer layer[kMaxLayers];

  size_t shared_bytes() const {
    const size_t floats = static_cast<size_t>(rows) * static_cast<size_t>(stride);
    return (floats + static_cast<size_t>(parameters)) * sizeof(float);
  }
};

// What is in global memory.
struct Arrays {
  const float* x;             // (points, inputs)
  const int* labels;          // (points)
  float *w, *m, *v;           // the model's arena; m and v are 0 at first
  const Schedule* schedules;  // of the steps to do
  Hyperparameters hyper;      // of all of them
  float* curve;               // [i]: the loss before step (i + 1) * every; steps count from 1
};

// Which steps a launch does.
struct Span {
  unsigned done, count;  // steps done before, steps to do
  unsigned every;        // so often a loss goes to the curve
};

// ---- A training -------------------------------------------------------------------------------

struct Settings {
  Kind kind = Kind::Momentum;
  Hyperparameters hyper;
  std::uint64_t seed = 1;
};

inline sequential::Sequential make_model(const std::vector<size_t>& widths) {
  if (widths.size() < 2) throw std::invalid_argument("train_toy: a network has two widths or more");
  std::vector<std::unique_ptr<sequential::Layer>> layers;
  for (size_t l = 0; l + 1 < widths.size(); ++l) {
    if (l > 0) layers.push_back(std::make_unique<sequential::Tanh>());
    layers.push_back(std::make_unique<sequential::Linear>(widths[l], widths[l + 1]));
  }
  return sequential::Sequential(std::move(layers));
}

// A model, its data and all memory of its training. Throws std::invalid_argument where the points
// don't fit the network, and std::out_of_range for a label that is no class.
class Trainer {
 public:
  Trainer(const std::vector<size_t>& widths, const Points& points, const Settings& settings)
      : model(make_model(widths)),
        x(points.x),
        labels(points.labels),
        logits_grad(points.labels.size() * widths.back()),
        loss(1),
        loss_buffers(points.labels.size()),
        widths_(widths),
        settings_(settings) {
    const size_t count = points.labels.size();
    if (count == 0 || points.x.size() != count * widths[0])
      throw std::invalid_argument("train_toy: " + std::to_string(points.x.size()) +
                                  " coordinates are not " + std::to_string(widths[0]) +
                                  " for each of " + std::to_string(count) + " points");
    for (size_t i = 0; i < count; ++i)
      if (points.labels[i] < 0 || static_cast<size_t>(points.labels[i]) >= widths.back())
        throw std::out_of_range("point " + std::to_string(i) + ": label " +
                                std::to_string(points.labels[i]) + " is not in [0, " +
                                std::to_string(widths.back()) + ")");
    model.reserve(count);
    HIP_CHECK(hipStreamCreate(&stream));
    reset(1, 1);
  }
  ~Trainer() { static_cast<void>(hipStreamDestroy(stream)); }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Back to the beginning, with room for the losses of `steps` steps, every so many of them.
  void reset(unsigned steps, unsigned every_steps) {
    model.initialize(settings_.seed);
    go_on(0, steps, every_steps);
  }
  // The model is one that has `steps_done` steps behind it.
  void go_on(unsigned steps_done, unsigned steps, unsigned every_steps) {
    done = steps_done, every = every_steps;
    schedule = optimizers::make_schedule(settings_.hyper, done);
    curve = DeviceBuffer<float>(steps / every);
    curve.poison();
    HIP_CHECK(hipDeviceSynchronize());
  }

  const std::vector<size_t>& widths() const { return widths_; }
  const Settings& settings() const { return settings_; }
  size_t points() const { return labels.size(); }

  // The layout of the step kernels. Throws std::invalid_argument for more than kMaxLayers layers.
  Network network() const {
    if (widths_.size() > kMaxLayers + 1)
      throw std::invalid_argument("train_toy: more than " + std::to_string(kMaxLayers) + " layers");
    Network n{};
    n.layers = static_cast<int>(widths_.size()) - 1;
    n.points = static_cast<int>(points());
    // A multiple of four floats by an odd number: lanes that read 16 bytes of neighbouring rows
    // find them in different banks.
    n.stride = 4 * ((n.points + 3) / 4 | 1);
    for (int l = 0; l < n.layers; ++l) {
      Layer& layer = n.layer[l];
      const size_t k = 2 * static_cast<size_t>(l);
      layer.in = static_cast<int>(widths_[static_cast<size_t>(l)]);
      layer.out = static_cast<int>(widths_[static_cast<size_t>(l) + 1]);
      layer.w = static_cast<int>(model.tensors()[k].w - model.arena().w);
      layer.bias = static_cast<int>(model.tensors()[k + 1].w - model.arena().w);
      layer.weights = n.parameters;
      n.parameters += layer.out * (layer.in + 1);
      layer.inputs = n.rows;
      layer.grads = n.rows + layer.in + 1;
      n.rows += layer.in + 1 + layer.out;
    }
    n.labels = n.rows++, n.losses = n.rows++;
    return n;
  }

  // For `count` steps from `done` on; computes their schedules first.
  Arrays arrays(unsigned count);
  // Throws std::invalid_argument where the curve has no room for the losses of so many more steps.
  void require_room(unsigned steps) const {
    if ((size_t{done} + steps) / every > curve.size())
      throw std::invalid_argument("train_toy: more steps than reset() was told of");
  }

  sequential::Sequential model;
  DeviceBuffer<float> x;
  DeviceBuffer<int> labels;
  DeviceBuffer<float> logits_grad, loss;
  losses::Buffers loss_buffers;
  DeviceBuffer<Schedule> schedule;  // of the steps that are launched one by one
  DeviceBuffer<float> curve;        // the losses before the steps every, 2 every, ...
  unsigned done = 0, every = 1;     // steps behind us; so often a loss goes to the curve
  hipStream_t stream = nullptr;

 private:
  std::vector<size_t> widths_;
  Settings settings_;
  DeviceBuffer<Schedule> schedules_;
};

// The model's parameters one behind the other, in the order of its tensors.
inline std::vector<float> parameters_of(const Trainer& t) {
  std::vector<float> parameters;
  for (const sequential::NamedTensor& tensor : t.model.tensors()) {
    parameters.resize(parameters.size() + tensor.n);
    HIP_CHECK(hipMemcpy(parameters.data() + parameters.size() - tensor.n, tensor.w,
                        tensor.n * sizeof(float), hipMemcpyDeviceToHost));
  }
  return parameters;
}

// The trajectory that a trainer's first steps must take from its present parameters.
inline Trajectory trajectory_cpu(const Trainer& t, const Points& points, size_t steps) {
  return trajectory_cpu(t.widths(), points, parameters_of(t), t.settings().kind, t.settings().hyper,
                        steps);
}

// ---- A kernel per operation -------------------------------------------------------------------

// Queues one step: five or six kernels per layer.
inline void launch_step(Trainer& t) {
  // exercise: forward, loss, backward, the optimizer's step (about 6 lines)
  const float* logits = t.model.forward(t.x.data(), t.points(), t.stream);
  losses::cross_entropy(t.loss.data(), t.logits_grad.data(), logits,
                        {t.labels.data(), t.points(), t.model.outputs()},
                        t.loss_buffers.workspace(), t.stream);
  t.model.backward(t.logits_grad.data(), t.stream);
  optimizers::step(t.settings().kind, t.model.arena(), t.schedule.data(), t.stream);
  // end exercise
}

// Calls run(n) for pieces of n steps, up to the next step whose loss goes to the curve.
template <class Run>
inline void run_in_pieces(Trainer& t, unsigned steps, Run run) {
  t.require_room(steps);
  while (steps > 0) {
    const unsigned piece = std::min(steps, t.every - t.done % t.every);
    run(piece);
    t.done += piece, steps -= piece;
    if (t.done % t.every == 0)
      HIP_CHECK(hipMemcpyAsync(t.curve.data() + t.done / t.every - 1, t.loss.data(), sizeof(float),
                               hipMemcpyDeviceToDevice, t.stream));
  }
}

inline void launch_operations(Trainer& t, unsigned steps) {
  run_in_pieces(t, steps, [&](unsigned piece) {
    for (unsigned i = 0; i < piece; ++i) launch_step(t);
  });
}

// ---- A graph ----------------------------------------------------------------------------------

// The kernels of `operations`, launched kStepsPerGraph steps at a time. Their arguments are frozen,
// and need not change: the optimizer's schedule counts its steps on the device.
inline void launch_graph(Trainer& t, unsigned steps) {
  const unsigned length = std::min({steps, t.every, kStepsPerGraph});
  if (length == 0) return;
  // exercise: capture `length` steps; replay them, and launch what is left one by one (about 8
  // lines)
  const gpu::Graph graph(t.stream, [&] {
    for (unsigned i = 0; i < length; ++i) launch_step(t);
  });
  run_in_pieces(t, steps, [&](unsigned piece) {
    for (; piece >= length; piece -= length) graph.launch(t.stream);
    for (; piece > 0; --piece) launch_step(t);
  });
  HIP_CHECK(hipStreamSynchronize(t.stream));  // the graph must live until it has run
  // end exercise
}

// ---- One kernel for a step --------------------------------------------------------------------

// schedules[i] = the schedule of step done + 1 + i    schedules (count).
// Fixes : a kernel that does many steps has no host or kernel in between that begins each of them,
//         and two powers in double take longer than a step.
// Idea  : what a step needs beside the gradients depends on its number only: all of them at once.
// Thread: t owns the step done + 1 + t.
// Costs : 48 bytes of global memory per step.
static __global__ void fill_schedules(Schedule* schedules, Hyperparameters hyper, unsigned done,
                                      unsigned count) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  Schedule schedule;
  schedule.hyper = hyper, schedule.step = std::uint64_t{done} + i;
  optimizers::advance(schedule);
  schedules[i] = schedule;
}

inline Arrays Trainer::arrays(unsigned count) {
  if (schedules_.size() < count) schedules_ = DeviceBuffer<Schedule>(count);
  const unsigned block = optimizers::kBlock;
  if (count > 0)
    LAUNCH_ON(stream, fill_schedules, static_cast<unsigned>(gpu::ceil_div(count, block)), block, 0,
              schedules_.data(), settings_.hyper, done, count);
  const optimizers::ParameterArena& arena = model.arena();
  return {x.data(), labels.data(),     arena.w,         arena.m,
          arena.v,  schedules_.data(), settings_.hyper, curve.data()};
}

// 1 / x for x >= 1, infinity too, to within 4 u. The operator would branch to round correctly.
__device__ inline float reciprocal(float x) { return __fdividef(1.0f, x); }

// tanh(z) = 2 / (1 + exp(-2 z)) - 1: an exponential and a reciprocal, without branch or sign. Where
// exp overflows, the reciprocal is the 0 that is wanted. Near 0 the terms cancel, and the result is
// off by a few u, not a few u times z; as a term of a sum it is as good.
__device__ inline float tangent(float z) {
  const float e = exp2f(-2.88539008f * z);  // 2 / ln 2
  return fmaf(2.0f, reciprocal(1.0f + e), -1.0f);
}

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
  if (loss != nullptr) {  // the logarithm needs the maximum: it must not overflow
    float max = logits[0], of_label = logits[0], sum = 0;
    for (int c = 1; c < kSize; ++c) {
      if (c < classes) max = fmaxf(max, logits[c]);
      if (c == label) of_label = logits[c];
    }
    for (int c = 0; c < kSize; ++c)
      if (c < classes) sum += softmax::exponential(logits[c] - max);
    *loss = logf(sum) + (max - of_label);
  }
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

// A whole step by one block. *loss becomes the mean loss before it, unless loss is null.
template <class Rule>
__device__ inline void train_step(const Network& n, float* rows, float* weights, Parameter& mine,
                                  const Schedule& schedule, float* loss) {
  const auto row = [&](int r) { return rows + r * n.stride; };
  for (int l = 0; l + 1 < n.layers; ++l) {
    const Layer& layer = n.layer[l];
    float* outputs = row(n.layer[l + 1].inputs);
    times_weights(n, row(layer.inputs), layer.in + 1, weights + layer.weights, layer.out,
                  layer.in + 1, 1, [&](int point, int first, const float(&sums)[kUnits]) {
                    for (int j = 0; j < kUnits; ++j)
                      if (first + j < layer.out)
                        outputs[(first + j) * n.stride + point] = tangent(sums[j]);
                  });
    __syncthreads();  // the inputs of the next layer are complete
  }

  const Layer& last = n.layer[n.layers - 1];
  times_weights(n, row(last.inputs), last.in + 1, weights + last.weights, last.out, last.in + 1, 1,
                [&](int point, int, float(&logits)[kUnits]) {
                  const int label = static_cast<int>(row(n.labels)[point]);
                  softmax_gradient(logits, last.out, label, 1.0f / static_cast<float>(n.points),
                                   loss == nullptr ? nullptr : row(n.losses) + point);
                  for (int c = 0; c < last.out; ++c) row(last.grads + c)[point] = logits[c];
                });
  __syncthreads();  // the gradients of the last layer's sums are complete

  for (int l = n.layers - 1; l > 0; --l) {
    const Layer& layer = n.layer[l];
    const float* inputs = row(layer.inputs);
    float* grads = row(n.layer[l - 1].grads);
    // exercise: grads = the transposed weights times this layer's grads, times 1 - tanh^2 (about 8
    // lines)
    times_weights(n, row(layer.grads), layer.out, weights + layer.weights, layer.in, 1,
                  layer.in + 1, [&](int point, int first, const float(&sums)[kUnits]) {
                    for (int j = 0; j < kUnits; ++j) {
                      if (first + j >= layer.in) continue;
                      const int at = (first + j) * n.stride + point;
                      grads[at] = sums[j] * fmaf(-inputs[at], inputs[at], 1.0f);
                    }
                  });
    // end exercise
    __syncthreads();  // the gradients of the sums of the layer before are complete
  }

  if (mine.shared != nullptr) {
    const float grad = dot_of_rows(mine.grad, mine.input, n.stride);
    Rule{}(mine.w, grad, mine.m, mine.v, schedule);
    *mine.shared = mine.w;
  }
  if (loss != nullptr && gpu::wave_id() == 0) {
    float sum = 0;
    for (int i = gpu::lane_id(); i < n.points; i += gpu::wave_size()) sum += row(n.losses)[i];
    sum = dot::wave_sum(sum);
    if (threadIdx.x == 0) *loss = sum / static_cast<float>(n.points);
  }
  __syncthreads();  // the weights are those of the next step, and the losses have been read
}

// Calls step(schedule, loss) for each step of the span, loss being where its loss goes, or null:
// null is a constant in the inner loop, where no code for losses remains. A schedule is read a step
// ahead, since global memory may take longer than a step; the hyperparameters never change.
template <class Step>
__device__ inline void for_each_step(const Span& span, const Arrays& arrays, Step step) {
  Schedule next = arrays.schedules[0];
  unsigned i = 0;
  const auto take_next = [&] {
    Schedule schedule = next;
    if (++i < span.count) next = arrays.schedules[i];
    schedule.hyper = arrays.hyper;
    return schedule;
  };
  while (i < span.count) {
    const unsigned slot = (span.done + i) / span.every;
    const unsigned recorded = (slot + 1) * span.every - span.done - 1;
    const unsigned end = recorded < span.count ? recorded : span.count;
    while (i < end) step(take_next(), nullptr);
    if (i < span.count) step(take_next(), arrays.curve + slot);
  }
}

// w, m, v after one step    x (points, inputs), all points in one block; see Network.
// Fixes : a graph's kernels take longer to begin and to end than to work, and hand everything to
//         the next one through global memory.
// Idea  : one block does it all. What all threads need is in shared memory, a barrier where a
//         kernel would end; gradient and state are in the registers of the parameter's thread.
// Thread: t owns parameter t; of each product the points t, t + blockDim.x, ... of its items.
// Costs : one multiprocessor works; 2 layers + 2 barriers; reads and writes the parameters once.
template <class Rule>
static __global__ void GPU_LAUNCH_BOUNDS(kMaxThreads, 1)
    step_in_one_kernel(Network n, Arrays arrays, Span span) {
  DYNAMIC_SHARED(float, rows);
  float* weights = rows + n.rows * n.stride;
  Parameter mine = load<Rule>(n, arrays, rows, weights);
  for_each_step({span.done, 1, span.every}, arrays, [&](const Schedule& schedule, float* loss) {
    train_step<Rule>(n, rows, weights, mine, schedule, loss);
  });
  store<Rule>(arrays, mine);
}

// w, m, v after span.count steps    x (points, inputs), all points in one block; see Network.
// Fixes : one_kernel loads data, parameters and state for each step, and waits for its launch.
// Idea  : the loop over the steps is in the kernel: everything stays where it is until the end.
// Thread: as in one_kernel.
// Costs : one multiprocessor works; 2 layers barriers per step, no global memory but the schedule.
template <class Rule>
static __global__ void GPU_LAUNCH_BOUNDS(kMaxThreads, 1)
    steps_in_one_kernel(Network n, Arrays arrays, Span span) {
  DYNAMIC_SHARED(float, rows);
  float* weights = rows + n.rows * n.stride;
  Parameter mine = load<Rule>(n, arrays, rows, weights);
  for_each_step(span, arrays, [&](const Schedule& schedule, float* loss) {
    train_step<Rule>(n, rows, weights, mine, schedule, loss);
  });
  store<Rule>(arrays, mine);
}

// Why one block can't do this training; empty where it can.
inline std::string why_not_block(const Trainer& t) {
  if (t.widths().size() > kMaxLayers + 1)
    return "more than " + std::to_string(kMaxLayers) + " layers";
  if (t.widths().back() > static_cast<size_t>(kUnits))
    return "more than " + std::to_string(kUnits) + " classes";
  if (t.model.parameter_count() > kMaxThreads)
    return "more than " + std::to_string(kMaxThreads) + " parameters";
  const double row = static_cast<double>(t.points()) + 8;
  const double rows = static_cast<double>(3 * t.model.parameter_count());  // surely enough
  if (row * rows > 1e9 || t.network().shared_bytes() > gpu::max_shared_bytes())
    return "more points than fit into shared memory";
  return "";
}

inline unsigned block_size(const Network& n) {
  int items = n.parameters;
  for (int l = 0; l < n.layers; ++l)
    items = std::max(items, n.points * ((n.layer[l].out + kUnits - 1) / kUnits));
  const unsigned wave = gpu::device_wave_size();
  const unsigned waves = static_cast<unsigned>(gpu::ceil_div(static_cast<size_t>(items), wave));
  return std::min(waves * wave, kMaxThreads);
}

// Calls launch_span(rule, arrays, span) for spans of at most `longest` steps. Their schedules are
// made for kStepsPerLaunch steps at a time.
template <class LaunchSpan>
inline void launch_spans(Trainer& t, unsigned steps, unsigned longest, LaunchSpan launch_span) {
  t.require_room(steps);
  while (steps > 0) {
    const unsigned prepared = std::min(steps, kStepsPerLaunch);
    Arrays arrays = t.arrays(prepared);
    for (unsigned begin = 0; begin < prepared; begin += longest) {
      const unsigned count = std::min(longest, prepared - begin);
      optimizers::visit_rule(t.settings().kind, [&](auto rule) {
        launch_span(rule, arrays, Span{t.done, count, t.every});
      });
      arrays.schedules += count, t.done += count;
    }
    steps -= prepared;
  }
}

template <class Kernel>
inline void launch_block(Trainer& t, Kernel kernel, const Network& n, const Arrays& arrays,
                         const Span& span) {
  const size_t bytes = n.shared_bytes();
  gpu::allow_shared_bytes(kernel, bytes);
  LAUNCH_ON(t.stream, kernel, 1, block_size(n), bytes, n, arrays, span);
}

inline void require(const std::string& refusal) {
  if (!refusal.empty()) throw std::invalid_argument("train_toy: " + refusal);
}

inline void launch_one_kernel(Trainer& t, unsigned steps) {
  require(why_not_block(t));
  const Network n = t.network();
  launch_spans(t, steps, 1, [&](auto rule, const Arrays& arrays, const Span& span) {
    launch_block(t, step_in_one_kernel<decltype(rule)>, n, arrays, span);
  });
}

inline void launch_persistent(Trainer& t, unsigned steps) {
  require(why_not_block(t));
  const Network n = t.network();
  launch_spans(t, steps, kStepsPerLaunch, [&](auto rule, const Arrays& arrays, const Span& span) {
    launch_block(t, steps_in_one_kernel<decltype(rule)>, n, arrays, span);
  });
}

// ---- One wave ---------------------------------------------------------------------------------

// Lane (point, unit) computes one hidden unit for one point:
//
//   lane    0 1 2 3 4 5 6 7 | 8 ...                15 | 16 ...            23 | 24 ...            31
//   point   0               | 1                       | 2                    | 3
//   unit    0 1 2 3 4 5 6 7 | 0 1 2 3 4 5 6 7         | 0 ...              7 | 0 ...              7
//
// and owns, as do the lanes of its unit for the other points, the weights into and out of its unit;
// the biases of the outputs are everybody's. Lanes beyond the last point repeat the first ones.
struct WaveParameters {
  static constexpr int kBias = kWaveInputs;                    // of the unit, behind its weights
  static constexpr int kOutputs = kBias + 1;                   // its weight in each output
  static constexpr int kOutputBias = kOutputs + kWaveClasses;  // of each output
  static constexpr int kCount = kOutputBias + kWaveClasses;

  // Where number i of a unit's parameters lies in the arena.
  __device__ static int index(const Network& n, int unit, int i) {
    const Layer &hidden = n.layer[0], &output = n.layer[1];
    if (i < kBias) return hidden.w + unit * kWaveInputs + i;
    if (i == kBias) return hidden.bias + unit;
    if (i < kOutputBias) return output.w + (i - kOutputs) * kWaveHidden + unit;
    return output.bias + i - kOutputBias;
  }

  float w[kCount] = {}, m[kCount] = {}, v[kCount] = {};
};

// A whole step by one wave. x are all points, `own` and `label` those of this lane's point. *loss
// becomes the mean loss before the step, unless loss is null.
template <class Rule>
__device__ inline void train_step(const float (&x)[kWavePoints][kWaveInputs],
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
    train_step<Rule>(x, own, label, mine, schedule, loss);
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

// Why one wave can't do this training; empty where it can.
inline std::string why_not_wave(const Trainer& t) {
  const std::vector<size_t> widths{kWaveInputs, kWaveHidden, kWaveClasses};
  if (t.widths() != widths || t.points() != kWavePoints)
    return "a wave holds 4 points and 8 hidden units";
  if (gpu::device_wave_size() < kWavePoints * kWaveHidden) return "the waves are too small";
  return "";
}

inline void launch_wave(Trainer& t, unsigned steps) {
  require(why_not_wave(t));
  const Network n = t.network();
  launch_spans(t, steps, kStepsPerLaunch, [&](auto rule, const Arrays& arrays, const Span& span) {
    LAUNCH_ON(t.stream, (steps_in_one_wave<decltype(rule)>), 1, gpu::device_wave_size(), 0, n,
              arrays, span);
  });
}

// ---- The versions -----------------------------------------------------------------------------

struct Launch {
  // Queues so many steps on the trainer's stream; the losses of every t.every-th go to its curve.
  // Throws std::invalid_argument for more steps than the trainer has room for, and where why_not
  // says anything.
  void (*run)(Trainer& t, unsigned steps);
  // Why the version can't do this training; empty where it can.
  std::string (*why_not)(const Trainer& t);
};

inline std::string nothing_against(const Trainer&) { return ""; }

inline constexpr Version<Launch> kVersions[] = {
    {"operations", {launch_operations, nothing_against}, "a kernel per operation"},
    {"graph", {launch_graph, nothing_against}, "the same kernels, 50 steps of them in a launch"},
    {"one_kernel", {launch_one_kernel, why_not_block}, "a whole step in one block of one kernel"},
    {"persistent", {launch_persistent, why_not_block}, "all steps in one launch"},
    {"wave", {launch_wave, why_not_wave}, "no barrier: the network in the registers of a wave"},
};

// The last version that can do this training.
inline const Version<Launch>& best(const Trainer& t) {
  const Version<Launch>* found = kVersions;
  for (const auto& version : kVersions)
    if (version.launch.why_not(t).empty()) found = &version;
  return *found;
}

}  // namespace train_toy
