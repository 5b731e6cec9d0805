// 6.3  train_cnn: a convolutional network learns to read handwritten digits.
//
//   image       1 x 28 x 28   pixels / 255
//   Conv2d      8 x 28 x 28   3x3, padding 1; ReLU
//   MaxPool2d   8 x 14 x 14   2x2
//   Conv2d     16 x 14 x 14   3x3, padding 1; ReLU
//   MaxPool2d  16 x  7 x  7   2x2
//   Linear     64             of the 784 values; ReLU
//   Linear     10             logits, cross-entropy
//
// The layers are those of steps 5.5, 6.1 and 6.2, the loss is 3.3's, the optimizers are 5.4's, and
// all that is not the network is step 5.8's: the images on the device, their order, checkpoints and
// graphs (mnist_training.h). A step of 64 images is 120 million operations, two microseconds of a
// large GPU, in some thirty kernels: the ladder takes them together.
//
//   operations   a kernel per operation, launched by the host
//   fused        ReLU with the convolution before it and with its gradient, loss with its gradient
//   graph        the same kernels, replayed from a graph
//
// All versions are deterministic: the same bits on every run of one device, from the same seed.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/gpu.h"
#include "common/program.h"
#include "common/random.h"
#include "stage3_ml_ops/03_losses/losses.h"
#include "stage5_training/04_optimizers/detail/rules.h"
#include "stage5_training/04_optimizers/optimizers.h"
#include "stage5_training/04_optimizers/reference.h"
#include "stage5_training/05_sequential/checkpoint.h"
#include "stage5_training/05_sequential/sequential.h"
#include "stage5_training/08_train_mnist/mnist_program.h"
#include "stage5_training/08_train_mnist/mnist_training.h"
#include "stage6_cnn/03_train_cnn/cnn_layers.h"

namespace train_cnn {

using mnist::DeviceDigits;
using mnist::kClasses;
using mnist::kPixels;
using mnist::kSide;
using mnist::Sampler;
using mnist::Samples;
using mnist::Trajectory;
using optimizers::Schedule;
using random_numbers::Permutation;
using sequential::Sequential;

// ---- The network ------------------------------------------------------------------------------

inline constexpr unsigned kChannels1 = 8, kChannels2 = 16;          // that the convolutions make
inline constexpr unsigned kSide1 = kSide / 2, kSide2 = kSide1 / 2;  // behind the pools
inline constexpr unsigned kFeatures = kChannels2 * kSide2 * kSide2;
inline constexpr unsigned kTaps = 3 * 3;  // of a filter
inline constexpr unsigned kFilters1 = kTaps * kChannels1, kFilters2 = kFilters1 * kChannels2;
inline constexpr size_t kHidden = 64;  // units, unless asked for others
static_assert(kFeatures == 784);

struct Settings : mnist::Settings {
  Settings() { hidden = kHidden; }
  explicit Settings(const mnist::Settings& asked_for) : mnist::Settings(asked_for) {}
};

// What a training of kDefaults reaches (mnist_program.h).
inline const TrainingDefaults kDefaults{10, 1, 1, 64, 1e-3, "adam", true, true};
inline constexpr mnist::Promise kPromises[] = {{10000, 0.9}, {600000, 0.983}};

// The layers, of which the first `count` are wanted.
inline constexpr size_t kLayers = 10;
inline std::vector<std::unique_ptr<sequential::Layer>> make_layers(size_t hidden, size_t count) {
  constexpr Sliding kSame{1, 1};  // the image keeps its size
  std::vector<std::unique_ptr<sequential::Layer>> layers;
  // exercise: the ten layers, each with what its input is (about 10 lines)
  layers.push_back(std::make_unique<Conv2d>(Image{1, kSide, kSide}, kChannels1, 3, kSame));
  layers.push_back(std::make_unique<sequential::ReLU>());
  layers.push_back(std::make_unique<MaxPool2d>(Image{kChannels1, kSide, kSide}, 2));
  layers.push_back(
      std::make_unique<Conv2d>(Image{kChannels1, kSide1, kSide1}, kChannels2, 3, kSame));
  layers.push_back(std::make_unique<sequential::ReLU>());
  layers.push_back(std::make_unique<MaxPool2d>(Image{kChannels2, kSide1, kSide1}, 2));
  layers.push_back(std::make_unique<Flatten>());
  layers.push_back(std::make_unique<sequential::Linear>(kFeatures, hidden));
  layers.push_back(std::make_unique<sequential::ReLU>());
  layers.push_back(std::make_unique<sequential::Linear>(hidden, kClasses));
  // end exercise
  layers.resize(count);
  return layers;
}
inline Sequential make_model(size_t hidden) { return Sequential(make_layers(hidden, kLayers)); }

// What steps of the network must multiply and add: forward, backward to the weights, and backward
// to the inputs of all layers but the first. Two operations each.
inline double operations_of(const mnist::Settings& settings, double steps) {
  constexpr double kFirst = double{kTaps} * kChannels1 * kSide * kSide;
  constexpr double kSecond = double{kTaps} * kChannels1 * kChannels2 * kSide1 * kSide1;
  const double dense = static_cast<double>(settings.hidden) * (kFeatures + kClasses);
  return steps * static_cast<double>(settings.batch) * 2 * (2 * kFirst + 3 * (kSecond + dense));
}

// Roughly the bytes of device memory of a training: parameters with gradients, m and v, and what a
// batch makes on its way.
inline double memory_of(const mnist::Settings& settings) {
  constexpr double kOutputs = 2.5 * kChannels1 * kSide * kSide + 2.5 * kChannels2 * kSide1 * kSide1;
  const double hidden = static_cast<double>(settings.hidden);
  const double batch = static_cast<double>(std::max(settings.batch, mnist::kEvaluationBatch));
  return sizeof(float) * (4 * hidden * kFeatures + batch * (2 * kOutputs + hidden * kClasses));
}

// ---- Reference and bound ----------------------------------------------------------------------

// The network in double, written as plainly as can be. Parameters in the order of the model's.
class Reference {
 public:
  using Array = std::vector<double>;

  // The first twin decides otherwise where a float version might: which value of a window is the
  // largest, and whether a sum is above 0.
  explicit Reference(const std::vector<std::vector<float>>& parameters, unsigned twin = 0)
      : twin_(twin) {
    for (const std::vector<float>& values : parameters) {
      parameters_.emplace_back(values.size());
      for (size_t i = 0; i < values.size(); ++i)
        parameters_.back()[i].w = static_cast<double>(values[i]);
    }
  }

  // The mean loss of a batch (rows of `digits`), leaving the gradients of all parameters.
  double differentiate(const mnist::Digits& digits, const std::vector<size_t>& rows) {
    gradients_.clear();
    for (const auto& tensor : parameters_) gradients_.emplace_back(tensor.size());
    double loss = 0;
    for (const size_t row : rows) loss += image(digits, row, 1 / static_cast<double>(rows.size()));
    return loss;
  }
  // One step of the optimizer, number t (the first is 1).
  void update(const mnist::Settings& settings, std::uint64_t t) {
    for (size_t k = 0; k < parameters_.size(); ++k) {
      optimizers::step_cpu(settings.kind, settings.hyper, t,
                           std::vector<float>(gradients_[k].begin(), gradients_[k].end()),
                           parameters_[k]);
      train_toy::Twins::move(parameters_[k], twin_, t, static_cast<std::uint32_t>(k));
    }
  }

  const std::vector<Array>& gradients() const { return gradients_; }
  Array gradient() const { return train_toy::flat(gradients_); }
  const std::vector<std::vector<optimizers::Element>>& parameters() const { return parameters_; }

 private:
  // A sum, and how far that of a float version usually is off: rounding errors of n additions come
  // to some sqrt(n) u of the terms' size (Higham and Mary: A new approach to probabilistic rounding
  // error analysis, SIAM J. Sci. Comput. 41, 2019). What is exactly equal is so in float, too.
  struct Sum {
    double value, doubt;
    bool in_doubt(double from) const { return value != from && std::fabs(value - from) <= doubt; }
  };
  // What ReLU makes of sums, and through which of them the gradient goes.
  struct Outputs {
    Array values;
    std::vector<bool> passes;
    std::vector<size_t> place;  // of a pool: which of the convolution's outputs each of it is
  };

  double weight(size_t tensor, size_t i) const { return parameters_[tensor][i].w; }

  // A unit's sum: begin(), add() each product, finish().
  Sum begin(size_t tensor, size_t unit) const {
    return {weight(tensor + 1, unit), std::fabs(weight(tensor + 1, unit))};
  }
  void add(Sum& sum, double product) const {
    sum.value += product, sum.doubt += std::fabs(product);
  }
  static void finish(Sum& sum, size_t terms) {
    sum.doubt *= 2 * std::sqrt(static_cast<double>(terms)) * kFloatRoundoff;
  }
  bool passes(const Sum& sum) const { return (sum.value > 0) != (twin_ == 1 && sum.in_doubt(0)); }

  // Calls visit(index in the filters, index in x) for each product in the sum that is output
  // `place`: what lies outside of the image is 0 and left out.
  template <class Visit>
  static void visit_window(size_t in, size_t side, size_t place, Visit visit) {
    const size_t k = place / (side * side), y = place / side % side, x = place % side;
    const size_t top = y == 0 ? 1 : 0, bottom = y + 1 == side ? 2 : 3;
    const size_t left = x == 0 ? 1 : 0, right = x + 1 == side ? 2 : 3;
    for (size_t c = 0; c < in; ++c)
      for (size_t r = top; r < bottom; ++r)
        for (size_t s = left; s < right; ++s)
          visit((k * in + c) * kTaps + r * 3 + s, (c * side + y + r - 1) * side + x + s - 1);
  }

  // A convolution, ReLU, and the first of the largest of each 2 x 2.
  Outputs convolve(size_t tensor, const Array& x, size_t in, size_t out, size_t side) const {
    std::vector<Sum> sums(out * side * side);
    for (size_t place = 0; place < sums.size(); ++place) {
      Sum sum = begin(tensor, place / (side * side));
      visit_window(in, side, place,
                   [&](size_t w, size_t i) { add(sum, weight(tensor, w) * x[i]); });
      finish(sum, in * kTaps);
      sums[place] = sum;
    }
    Outputs pooled;
    const size_t half = side / 2;
    for (size_t i = 0; i < out * half * half; ++i) {
      const size_t corner = (i / half * side + i % half) * 2;  // rows of all channels follow on
      const size_t window[] = {corner, corner + 1, corner + side, corner + side + 1};
      size_t best = corner;
      for (const size_t other : window)
        if (sums[other].value > sums[best].value) best = other;
      const Sum largest = sums[best];
      if (twin_ == 1)
        for (const size_t other : window)
          if (sums[other].in_doubt(largest.value)) best = other;
      pooled.values.push_back(std::fmax(largest.value, 0.0));
      pooled.passes.push_back(passes(largest));
      pooled.place.push_back(best);
    }
    return pooled;
  }
  // From the gradient of the pool's outputs. Adds to the parameters' gradients; returns that of x.
  Array convolve_backward(size_t tensor, const Array& x, size_t in, size_t side,
                          const Outputs& pooled, const Array& grad) {
    Array grad_x(x.size());
    for (size_t i = 0; i < grad.size(); ++i) {
      if (!pooled.passes[i]) continue;
      gradients_[tensor + 1][pooled.place[i] / (side * side)] += grad[i];
      visit_window(in, side, pooled.place[i], [&](size_t w, size_t k) {
        gradients_[tensor][w] += grad[i] * x[k];
        grad_x[k] += grad[i] * weight(tensor, w);
      });
    }
    return grad_x;
  }

  Sum multiply(size_t tensor, const Array& x, size_t unit) const {
    Sum sum = begin(tensor, unit);
    for (size_t k = 0; k < x.size(); ++k) add(sum, weight(tensor, unit * x.size() + k) * x[k]);
    finish(sum, x.size());
    return sum;
  }
  Array multiply_backward(size_t tensor, const Array& x, const Array& grad) {
    Array grad_x(x.size());
    for (size_t o = 0; o < grad.size(); ++o) {
      gradients_[tensor + 1][o] += grad[o];
      for (size_t k = 0; k < x.size(); ++k) {
        gradients_[tensor][o * x.size() + k] += grad[o] * x[k];
        grad_x[k] += grad[o] * weight(tensor, o * x.size() + k);
      }
    }
    return grad_x;
  }

  // Its share in the loss, `share` of its own; adds to the gradients.
  double image(const mnist::Digits& digits, size_t row, double share) {
    Array x(kPixels);
    for (size_t k = 0; k < kPixels; ++k) x[k] = digits.pixels[row * kPixels + k] / 255.0;
    const Outputs first = convolve(0, x, 1, kChannels1, kSide);
    const Outputs second = convolve(2, first.values, kChannels1, kChannels2, kSide1);
    Outputs h;
    for (size_t unit = 0; unit < parameters_[5].size(); ++unit) {
      const Sum sum = multiply(4, second.values, unit);
      h.values.push_back(std::fmax(sum.value, 0.0));
      h.passes.push_back(passes(sum));
    }
    Array grad;  // first the logits
    for (size_t c = 0; c < kClasses; ++c) grad.push_back(multiply(6, h.values, c).value);

    const double max = *std::max_element(grad.begin(), grad.end());
    double sum = 0;
    for (const double logit : grad) sum += std::exp(logit - max);
    const size_t label = digits.labels[row];
    const double loss = share * (std::log(sum) + max - grad[label]);
    for (size_t c = 0; c < kClasses; ++c) {
      const double p = std::exp(grad[c] - max) / sum;
      grad[c] = share * (train_toy::Twins::stored(p, twin_) - (c == label ? 1 : 0));
    }

    grad = multiply_backward(6, h.values, grad);
    for (size_t i = 0; i < grad.size(); ++i)
      if (!h.passes[i]) grad[i] = 0;
    grad = multiply_backward(4, second.values, grad);
    grad = convolve_backward(2, first.values, kChannels1, kSide1, second, grad);
    convolve_backward(0, x, 1, kSide, first, grad);
    return loss;
  }

  unsigned twin_;
  std::vector<std::vector<optimizers::Element>> parameters_;
  std::vector<Array> gradients_;
};

// The images of a step.
inline std::vector<size_t> rows_of(const Sampler& sampler, std::uint64_t step) {
  std::vector<size_t> rows;
  const Permutation order = sampler.order(step);
  for (size_t i = 0; i < sampler.batch; ++i) rows.push_back(order(sampler.place(step, i)));
  return rows;
}

inline constexpr size_t kCheckedSteps = 20;

// What the first `steps` steps must do from these parameters; it may end before. Two values of a
// window may be so close to one another, or a sum to 0, that float versions do not agree on the
// larger: a gradient then takes another way, and the loss is off by a thousandth for the next
// steps. The first twin takes all those ways. Three times what the twins drift away is allowed.
inline Trajectory trajectory_cpu(const mnist::Settings& settings, const mnist::Digits& digits,
                                 const std::vector<std::vector<float>>& parameters, size_t steps) {
  const Sampler sampler{digits.count(), settings.batch, settings.seed};
  return train_toy::follow(
      steps, 2, train_toy::Twins(3),
      [&](unsigned twin) { return Reference(train_toy::Twins::beside(parameters, twin), twin); },
      [&](Reference& run, std::uint64_t t) {
        const double loss = run.differentiate(digits, rows_of(sampler, t - 1));
        run.update(settings, t);
        return loss;
      });
}

// ---- A training -------------------------------------------------------------------------------

inline constexpr sequential::Mode kSeparate{true, false}, kFused{true, true};

// The gradients that an image leaves, one behind the other: those of w1, b1, w2, b2, b3, w4, b4.
struct Row {
  unsigned hidden;
  static constexpr unsigned b1 = kFilters1, w2 = b1 + kChannels1, b2 = w2 + kFilters2;
  static constexpr unsigned b3 = b2 + kChannels2;
  __host__ __device__ unsigned w4() const { return b3 + hidden; }
  __host__ __device__ unsigned b4() const { return w4() + hidden * kClasses; }
  __host__ __device__ unsigned end() const { return b4() + kClasses; }
};

struct Training : mnist::Training {
  Training(const mnist::Settings& wanted, const Samples& images)
      : mnist::Training(wanted, images, make_model(wanted.hidden)),
        rows(wanted.batch),
        features(wanted.batch * kFeatures),
        parts(wanted.batch * Row{static_cast<unsigned>(wanted.hidden)}.end()),
        row_losses(wanted.batch) {}

  // How the model runs its layers from now on, and what takes its loss. Waits for the device where
  // that is new.
  void use(const sequential::Mode& mode, mnist::LaunchLoss loss_of_mode = losses::cross_entropy) {
    launch_loss = loss_of_mode;
    if (mode.fuse == fuses_) return;
    HIP_CHECK(hipStreamSynchronize(stream));
    model.set_mode(mode);
    reserve();
    fuses_ = mode.fuse;
  }

  // What images leave for one another: see "An image per block".
  DeviceBuffer<unsigned> rows;
  DeviceBuffer<float> features, parts, row_losses;

 private:
  bool fuses_ = true;  // as every new model does
};

// ---- A kernel per operation -------------------------------------------------------------------

inline void run_operations(Training& t, size_t steps) {
  t.use(kSeparate, losses::launch_from_logits);
  t.run_operations(steps);
}

// ---- Operations that belong together ----------------------------------------------------------

// What is computed is the same; what lay in memory between a convolution and its ReLU, a pool's
// gradient and ReLU's slope, is never written, and the loss comes with its gradient.
inline void run_fused(Training& t, size_t steps) {
  t.use(kFused);
  t.run_operations(steps);
}

// ---- The same from a graph --------------------------------------------------------------------

// Which images a step takes follows from the number of steps behind it, in device memory: one graph
// of kGraphSteps steps serves all of them.
inline void run_graph(Training& t, size_t steps) {
  t.use(kFused);
  t.replay(steps, "graph", [&] { t.queue_step(); });
}

// ---- An image per block -----------------------------------------------------------------------
// From here on kernels are written for this network. Between its layers an image is small: it goes
// all the way there and back in the shared memory of one block, and no other image is asked. Only
// the gradients of the weights are sums over images. So a step is two kernels:
//
//   differentiate_images    a block per image: from its pixels to its part of all gradients
//   update_parameters       a block per piece of the parameters: the sum of the parts, and the rule
//
// Of the 64 x 784 weights w3 an image's part would be its features times its 64 gradients, as many
// numbers as there are weights: those are left for the second kernel to multiply.
//
// Planes in shared memory have a border of zeros, so that no window asks where the image ends. A
// thread takes 2 x 2 neighbouring outputs of several channels: their four windows cover a patch of
// 4 x 4 values, of which each is loaded once and used up to nine times per channel; and the largest
// of the four is what the pool wants.
//
//   plane, 14 x 14 with its border         patch of the window (0, 1), and its four outputs
//    0 0 0 0 0 0 ...                        0 0 0 0
//    0 a b c d e ...                        b c d e        c d    <- c is the middle of the
//    0 f g h i j ...                        g h i j        h i       first of the four windows
//    0 k l m n o ...                        l m n o

struct Network {
  optimizers::ParameterArena w1, b1, w2, b2, w3, b3, w4, b4;
  unsigned hidden;
};

inline constexpr unsigned kThreads = 512;     // of differentiate_images
inline constexpr unsigned kMostHidden = 256;  // units, for their place in shared memory
inline constexpr unsigned kAtOnce = 4;        // channels of a thread
inline constexpr unsigned kRowsAtOnce = 4;    // of w3, by a wave
inline constexpr unsigned kWindows1 = kSide1 * kSide1, kWindows2 = kSide2 * kSide2;
inline constexpr unsigned kPitch0 = kSide + 2;  // of the image and its border
// Of planes of 14 x 14 with their border: lanes of neighbouring windows, and of windows in the row
// below, find their values in different banks; and so do lanes of neighbouring channels.
inline constexpr unsigned kPitch1 = 24, kPlane1 = (kSide1 + 2) * kPitch1 + 4;
inline constexpr std::uint8_t kNone = 4;  // in place of the largest of four: none gets a gradient
inline constexpr unsigned kWords3 = kFeatures / 4;  // float4s in a row of w3
// The last gradients of the filters: a thread for each tap of a channel, the tenth being the bias,
// and each of the parts.
inline constexpr unsigned kSums1 = (kTaps + 1) * kChannels1, kParts1 = kThreads / kSums1;
// The second convolution's: lanes of a part each, which add up what they have.
inline constexpr unsigned kParts2 = 8;
static_assert(kWindows1 * kChannels1 / kAtOnce <= kThreads && 2 * kWords3 <= kThreads);
static_assert(kChannels1 * kChannels2 / kAtOnce * kParts2 <= kThreads / 2);

// What the blocks of one kernel leave for those of the next, in global memory.
struct Exchange {
  unsigned* rows;   // (batch) the images of the next step
  float* features;  // (batch, 784)
  float* parts;     // (batch, Row::end())
  float* losses;    // (batch)
};

// The gradient of a pool's output, and where in x the window begins that it came from.
struct Routed {
  float grad;
  unsigned corner;
};

// The shared memory of an image.
struct ImageMemory {
  float x[kPitch0 * kPitch0];           // pixels, with a border
  float pooled1[kChannels1 * kPlane1];  // what the first pool makes, with borders
  union {
    float grads2[kChannels2 * kPlane1];  // gradients of the second convolution's sums, with borders
    struct {
      Routed grads1[kChannels1 * kWindows1];  // of the first convolution's
      float sums1[kParts1 * kSums1];          // and the parts of its parameters' gradients
    } first;
  };
  float4 features[kWords3];  // what the second pool makes; later its gradients
  float4 half[kWords3];      // of a sum over hidden units
  float4 w1[kFilters1 / 4],
      w2[kFilters2 / 4];         // (1, 9, 8) and (8, 9, 16): the channels that are made last
  float4 turned[kFilters2 / 4];  // (16, 9, 8) w2 for the way back
  float h[kMostHidden], grad_h[kMostHidden];
  float logits[kClasses + 2];
  std::uint8_t place1[kChannels1 * kWindows1], place2[kChannels2 * kWindows2];
};
static_assert(sizeof(ImageMemory) <= 64 * 1024, "AMD has no more");

// The 4 x 4 values from `corner` on.
__device__ inline void load_patch(float (&patch)[4][4], const float* corner, unsigned pitch) {
  GPU_UNROLL
  for (unsigned y = 0; y < 4; ++y) {
    const float2 left = *reinterpret_cast<const float2*>(corner + y * pitch);
    const float2 right = *reinterpret_cast<const float2*>(corner + y * pitch + 2);
    patch[y][0] = left.x, patch[y][1] = left.y, patch[y][2] = right.x, patch[y][3] = right.y;
  }
}

__device__ inline float dot4(float4 a, float4 b, float sum) {
  return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}
__device__ inline void multiply_add(float4& sum, float a, float4 b) {
  sum.x = fmaf(a, b.x, sum.x), sum.y = fmaf(a, b.y, sum.y);
  sum.z = fmaf(a, b.z, sum.z), sum.w = fmaf(a, b.w, sum.w);
}

// Adds the products of a patch with kAtOnce filters to their four outputs each. Tap t of the
// filters is at filters[t * stride].
__device__ inline void multiply_patch(float (&sums)[kAtOnce][4], const float (&patch)[4][4],
                                      const float4* filters, unsigned stride) {
  // exercise: the nine taps, each of them times four values of the patch, for every filter (about 9
  // lines)
  GPU_UNROLL
  for (unsigned tap = 0; tap < kTaps; ++tap) {
    const float4 weight = filters[tap * stride];
    const float weights[kAtOnce] = {weight.x, weight.y, weight.z, weight.w};
    GPU_UNROLL
    for (unsigned k = 0; k < kAtOnce; ++k)
      for (unsigned i = 0; i < 4; ++i)
        sums[k][i] = fmaf(weights[k], patch[tap / 3 + i / 2][tap % 3 + i % 2], sums[k][i]);
  }
  // end exercise
}

// The other way around: adds each filter's gradient, from those of its four outputs.
__device__ inline void multiply_grads(float (&sums)[kAtOnce][kTaps], const float (&patch)[4][4],
                                      const float (&grads)[kAtOnce][4]) {
  GPU_UNROLL
  for (unsigned tap = 0; tap < kTaps; ++tap) GPU_UNROLL
  for (unsigned k = 0; k < kAtOnce; ++k)
    for (unsigned i = 0; i < 4; ++i)
      sums[k][tap] = fmaf(grads[k][i], patch[tap / 3 + i / 2][tap % 3 + i % 2], sums[k][tap]);
}

// ReLU and pool: the largest of four sums, and where the first of the largest is; 0 and kNone where
// none is above 0. A NaN stays.
__device__ inline float largest(const float (&sums)[4], std::uint8_t& place) {
  float best = 0;
  place = kNone;
  for (unsigned i = 0; i < 4; ++i)
    if (sums[i] > best || sums[i] != sums[i]) best = sums[i], place = static_cast<std::uint8_t>(i);
  return best;
}

// features, parts and losses of the step's images    a block per image; see ImageMemory.
// Fixes : each layer of graph writes to memory what the next one reads, and hardly has the device
//         begun a kernel when it is over.
// Idea  : an image's values fit a block's shared memory, from the pixels to the gradients.
// Thread: of the convolutions a window of 2 x 2 outputs, of four channels; else see each part.
// Costs : every block reads w3 twice, 2 * 200 KB from the L2 cache; 12 barriers; 61 KB of shared
//         memory. With a batch of 64 half of an H200 is idle.
static __global__ void __launch_bounds__(kThreads)
    differentiate_images(Network network, Samples samples, unsigned batch, Schedule* schedule,
                         Exchange exchange) {
  DYNAMIC_SHARED(ImageMemory, memory);
  ImageMemory& m = *memory;
  const unsigned t = threadIdx.x, hidden = network.hidden;
  const Row row{hidden};
  const size_t image = exchange.rows[blockIdx.x];
  float* const part = exchange.parts + size_t{blockIdx.x} * row.end();
  float* const features = reinterpret_cast<float*>(m.features);
  const unsigned wave = static_cast<unsigned>(gpu::wave_id());
  const unsigned lane = static_cast<unsigned>(gpu::lane_id());
  const unsigned lanes = static_cast<unsigned>(gpu::wave_size()), waves = kThreads / lanes;

  if (blockIdx.x == 0 && t == kThreads - 1) optimizers::advance(*schedule);
  for (unsigned i = t; i < kPitch0 * kPitch0; i += kThreads) {
    const unsigned y = i / kPitch0 - 1, x = i % kPitch0 - 1;  // the border wraps around
    m.x[i] = y < kSide && x < kSide
                 ? mnist::kPixelScale *
                       static_cast<float>(samples.pixels[image * kPixels + y * kSide + x])
                 : 0.0f;
  }
  for (unsigned i = t; i < kFilters1; i += kThreads)
    reinterpret_cast<float*>(m.w1)[i % kTaps * kChannels1 + i / kTaps] = network.w1.w[i];
  for (unsigned i = t; i < kFilters2; i += kThreads) {
    const unsigned tap = i % kTaps, c = i / kTaps % kChannels1, k = i / kTaps / kChannels1;
    const float weight = network.w2.w[i];
    reinterpret_cast<float*>(m.w2)[(c * kTaps + tap) * kChannels2 + k] = weight;
    reinterpret_cast<float*>(m.turned)[(k * kTaps + kTaps - 1 - tap) * kChannels1 + c] = weight;
  }
  for (unsigned i = t; i < kChannels1 * kPlane1; i += kThreads) m.pooled1[i] = 0;
  for (unsigned i = t; i < kChannels2 * kPlane1; i += kThreads) m.grads2[i] = 0;
  __syncthreads();  // image and filters are there, all planes are 0

  if (t < kWindows1 * kChannels1 / kAtOnce) {
    const unsigned window = t % kWindows1, first = t / kWindows1 * kAtOnce;
    const unsigned y = window / kSide1, x = window % kSide1;
    float patch[4][4], sums[kAtOnce][4];
    load_patch(patch, m.x + 2 * y * kPitch0 + 2 * x, kPitch0);
    for (unsigned k = 0; k < kAtOnce; ++k)
      for (unsigned i = 0; i < 4; ++i) sums[k][i] = network.b1.w[first + k];
    multiply_patch(sums, patch, m.w1 + first / 4, kChannels1 / 4);
    for (unsigned k = 0; k < kAtOnce; ++k)
      m.pooled1[(first + k) * kPlane1 + (y + 1) * kPitch1 + x + 1] =
          largest(sums[k], m.place1[(first + k) * kWindows1 + window]);
  }
  __syncthreads();  // the first pool's outputs are there

  if (t < kWindows2 * kChannels2 / kAtOnce) {
    const unsigned window = t % kWindows2, first = t / kWindows2 * kAtOnce;
    const unsigned y = window / kSide2, x = window % kSide2;
    float sums[kAtOnce][4];
    for (unsigned k = 0; k < kAtOnce; ++k)
      for (unsigned i = 0; i < 4; ++i) sums[k][i] = network.b2.w[first + k];
    for (unsigned c = 0; c < kChannels1; ++c) {
      float patch[4][4];
      load_patch(patch, m.pooled1 + c * kPlane1 + 2 * y * kPitch1 + 2 * x, kPitch1);
      multiply_patch(sums, patch, m.w2 + (c * kTaps * kChannels2 + first) / 4, kChannels2 / 4);
    }
    for (unsigned k = 0; k < kAtOnce; ++k) {
      const unsigned i = (first + k) * kWindows2 + window;
      features[i] = largest(sums[k], m.place2[i]);
      exchange.features[size_t{blockIdx.x} * kFeatures + i] = features[i];
    }
  }
  __syncthreads();  // the second pool's outputs are there

  // Hidden units: a wave for several rows of w3, so that many loads are on their way.
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
  __syncthreads();  // h is there

  for (unsigned c = wave; c < kClasses; c += waves) {
    float sum = 0;
    for (unsigned unit = lane; unit < hidden; unit += lanes)
      sum = fmaf(network.w4.w[c * hidden + unit], m.h[unit], sum);
    sum = dot::wave_sum(sum);
    if (lane == 0) m.logits[c] = sum + network.b4.w[c];
  }
  __syncthreads();  // the logits are there

  if (t < kMostHidden) {  // every thread computes the same probabilities, and its own hidden units'
    const unsigned label = samples.labels[image];
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
    for (unsigned unit = t; unit < hidden; unit += kMostHidden) {
      const float h = m.h[unit];
      float grad = 0;
      GPU_UNROLL
      for (unsigned c = 0; c < kClasses; ++c) {
        grad = fmaf(grads[c], network.w4.w[c * hidden + unit], grad);
        part[row.w4() + c * hidden + unit] = grads[c] * h;
      }
      m.grad_h[unit] = grad * activations::Relu{}.derivative(h);
      part[row.b3 + unit] = m.grad_h[unit];
    }
    if (t == 0) {
      exchange.losses[blockIdx.x] = logf(sum) + (max - of_label);
      GPU_UNROLL
      for (unsigned c = 0; c < kClasses; ++c) part[row.b4() + c] = grads[c];
    }
  }
  __syncthreads();  // the gradients of the hidden units' sums are there

  // Their sums over the hidden units, the even ones and the odd ones: the gradients of features.
  float4 sum = make_float4(0, 0, 0, 0);
  const unsigned word = t % kWords3, odd = t / kWords3;
  if (odd < 2)
    for (unsigned unit = odd; unit < hidden; unit += 2)
      multiply_add(sum, m.grad_h[unit], w3[unit * kWords3 + word]);
  if (odd == 1) m.half[word] = sum;
  __syncthreads();  // the odd ones' sums are in half
  if (odd == 0) {
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
  __syncthreads();  // the gradients of the second convolution's sums are there; features has them
                    // too

  // The two ways back from there need nothing from each other: half of the threads takes each.
  float grads1[kAtOnce][4] = {};  // of the first pool's outputs
  const bool is_back = t < kWindows2 * kChannels1 / kAtOnce;
  const unsigned window = t % kWindows2, first = t / kWindows2 * kAtOnce;
  if (is_back) {  // the same convolution, with turned filters, from channels made to channels taken
    for (unsigned k = 0; k < kChannels2; ++k) {
      float patch[4][4];
      load_patch(patch,
                 m.grads2 + k * kPlane1 + window / kSide2 * 2 * kPitch1 + window % kSide2 * 2,
                 kPitch1);
      multiply_patch(grads1, patch, m.turned + (k * kTaps * kChannels1 + first) / 4,
                     kChannels1 / 4);
    }
  } else if (t >= kThreads / 2) {
    // A channel taken, four that are made, and every eighth window.
    const unsigned own = t - kThreads / 2, c = own / kParts2 % kChannels1;
    const unsigned made = own / kParts2 / kChannels1 * kAtOnce;
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
          part[row.w2 + ((made + k) * kChannels1 + c) * kTaps + tap] = sums[k][tap];
      }
  }
  __syncthreads();  // nobody reads the planes of gradients any more
  if (is_back) {
    for (unsigned k = 0; k < kAtOnce; ++k)
      for (unsigned i = 0; i < 4; ++i) {
        const unsigned y = window / kSide2 * 2 + i / 2, x = window % kSide2 * 2 + i % 2;
        const unsigned output = (first + k) * kWindows1 + y * kSide1 + x, place = m.place1[output];
        const unsigned chosen = place == kNone ? 0 : place;
        m.first.grads1[output] = {place == kNone ? 0.0f : grads1[k][i],
                                  (2 * y + chosen / 2) * kPitch0 + 2 * x + chosen % 2};
      }
  } else if (t >= kThreads / 2 && t < kThreads / 2 + kChannels2) {
    const unsigned k = t - kThreads / 2;
    float total = 0;
    for (unsigned w = 0; w < kWindows2; ++w) total += features[k * kWindows2 + w];
    part[row.b2 + k] = total;
  }
  __syncthreads();  // the gradients of the first convolution's sums are there

  const unsigned tap = t % kSums1 % (kTaps + 1), channel = t % kSums1 / (kTaps + 1);
  if (t < kParts1 * kSums1) {  // a bias is the weight of something that is always 1
    const unsigned place = tap / 3 * kPitch0 + tap % 3;
    float total = 0;
    for (unsigned w = t / kSums1; w < kWindows1; w += kParts1) {
      const Routed from = m.first.grads1[channel * kWindows1 + w];
      total = fmaf(from.grad, tap < kTaps ? m.x[from.corner + place] : 1.0f, total);
    }
    m.first.sums1[t] = total;
  }
  __syncthreads();  // the parts of the last sums are there
  if (t < kSums1) {
    float total = 0;
    for (unsigned p = 0; p < kParts1; ++p) total += m.first.sums1[p * kSums1 + t];
    part[tap < kTaps ? channel * kTaps + tap : row.b1 + channel] = total;
  }
}

// The second kernel's blocks: a thread for each of kColumns numbers and kGroups groups of images.
inline constexpr unsigned kColumns = 49, kGroups = 8, kUpdateThreads = kColumns * kGroups;
inline constexpr unsigned kPieces = kWords3 / kColumns;  // blocks side by side in a row of w3
static_assert(kPieces * kColumns == kWords3);

// The parameter whose gradient is at `column` of an image's parts: calls visit(tensor, offset).
template <class Visit>
__device__ inline void visit_column(const Network& network, const Row& row, unsigned column,
                                    Visit visit) {
  if (column < row.b1) return visit(network.w1, column);
  if (column < row.w2) return visit(network.b1, column - row.b1);
  if (column < row.b2) return visit(network.w2, column - row.w2);
  if (column < row.b3) return visit(network.b2, column - row.b2);
  if (column < row.w4()) return visit(network.b3, column - row.b3);
  if (column < row.b4()) return visit(network.w4, column - row.w4());
  visit(network.b4, column - row.b4());
}

// w, m, v of all parameters, the step's loss, and the images of the next step.
// Fixes : a product, a sum of rows for each bias, and the optimizer are as many kernels, and hand
//         gradients through memory that are read once.
// Idea  : the block that has summed a gradient over the images owns its parameter.
// Thread: (column, group) sums a column over every eighth image: of w3 four neighbouring weights of
//         four hidden units, of all others one parameter. Then the first ones add up the groups.
// Costs : reads the features 16 times and the parts once, 4 MB from the L2 cache; 1 barrier.
template <class Rule>
static __global__ void __launch_bounds__(kUpdateThreads)
    update_parameters(Network network, Sampler sampler, const Schedule* schedule, Exchange exchange,
                      float* curve) {
  __shared__ float4 sums[kGroups][kAtOnce][kColumns];
  const unsigned t = threadIdx.x, column = t % kColumns, group = t / kColumns;
  const unsigned batch = static_cast<unsigned>(sampler.batch), hidden = network.hidden;
  const Row row{hidden};
  const unsigned blocks3 = (hidden + kAtOnce - 1) / kAtOnce * kPieces;
  const Schedule now = *schedule;

  if (blockIdx.x < blocks3) {
    const unsigned first_unit = blockIdx.x / kPieces * kAtOnce;
    const unsigned word = blockIdx.x % kPieces * kColumns + column;
    const unsigned unit = first_unit + group;  // of the weights that this thread owns, if any
    const bool owns = group < kAtOnce && unit < hidden;
    const size_t at = owns ? size_t{unit} * kWords3 + word : 0;
    float4 w{}, m{}, v{};
    if (owns) {  // on their way from now on
      w = reinterpret_cast<const float4*>(network.w3.w)[at];
      m = reinterpret_cast<const float4*>(network.w3.m)[at];
      v = reinterpret_cast<const float4*>(network.w3.v)[at];
    }
    float4 parts[kAtOnce];
    for (unsigned k = 0; k < kAtOnce; ++k) parts[k] = make_float4(0, 0, 0, 0);
    for (unsigned image = group; image < batch; image += kGroups) {
      const float4 features =
          reinterpret_cast<const float4*>(exchange.features)[size_t{image} * kWords3 + word];
      const float* grads = exchange.parts + size_t{image} * row.end() + row.b3 + first_unit;
      for (unsigned k = 0; k < kAtOnce; ++k)  // beyond the last unit: w4's, used for nothing
        multiply_add(parts[k], grads[k], features);
    }
    for (unsigned k = 0; k < kAtOnce; ++k) sums[group][k][column] = parts[k];
    __syncthreads();  // the groups' sums are there
    if (!owns) return;
    float4 grad = make_float4(0, 0, 0, 0);
    for (unsigned g = 0; g < kGroups; ++g) multiply_add(grad, 1.0f, sums[g][group][column]);
    optimizers::apply(Rule{}, w, grad, m, v, now);
    reinterpret_cast<float4*>(network.w3.w)[at] = w;
    reinterpret_cast<float4*>(network.w3.m)[at] = m;
    reinterpret_cast<float4*>(network.w3.v)[at] = v;
  } else if (blockIdx.x < gridDim.x - 1) {
    const unsigned own = (blockIdx.x - blocks3) * kColumns + column;
    float part = 0;
    if (own < row.end())
      for (unsigned image = group; image < batch; image += kGroups)
        part += exchange.parts[size_t{image} * row.end() + own];
    sums[group][0][column].x = part;
    __syncthreads();  // the groups' sums are there
    if (group > 0 || own >= row.end()) return;
    float grad = 0;
    for (unsigned g = 0; g < kGroups; ++g) grad += sums[g][0][column].x;
    visit_column(network, row, own, [&](const optimizers::ParameterArena& tensor, unsigned i) {
      Rule{}(tensor.w[i], grad, tensor.m[i], tensor.v[i], now);
    });
  } else {
    const unsigned lanes = static_cast<unsigned>(gpu::wave_size());
    for (unsigned i = t; i < batch; i += kUpdateThreads)
      exchange.rows[i] = static_cast<unsigned>(sampler.order(now.step)(sampler.place(now.step, i)));
    if (gpu::wave_id() != 0) return;
    float loss = 0;
    for (unsigned i = t; i < batch; i += lanes) loss += exchange.losses[i];
    loss = dot::wave_sum(loss);
    if (t == 0)
      curve[(now.step - 1) % sampler.steps_per_epoch()] = loss / static_cast<float>(batch);
  }
}

// rows = the images of the step that begins.
// Fixes : each step's images are chosen at the end of the step before; the first has none.
// Idea  : the same once more.
// Thread: t chooses the images t, t + T, ...
// Costs : one launch for as many steps as are asked for.
static __global__ void choose_rows(unsigned* rows, Sampler sampler, const Schedule* schedule) {
  const std::uint64_t step = schedule->step;
  for (size_t i = threadIdx.x; i < sampler.batch; i += blockDim.x)
    rows[i] = static_cast<unsigned>(sampler.order(step)(sampler.place(step, i)));
}

inline Network network_of(const Training& t) {
  const auto tensor = [&](size_t k) {
    const sequential::NamedTensor& named = t.model.tensors()[k];
    return optimizers::ParameterArena{named.w, named.grad, named.m, named.v, named.n};
  };
  return {tensor(0), tensor(1), tensor(2),
          tensor(3), tensor(4), tensor(5),
          tensor(6), tensor(7), static_cast<unsigned>(t.hidden)};
}

inline void queue_per_image(Training& t) {
  const Network network = network_of(t);
  const Exchange exchange{t.rows.data(), t.features.data(), t.parts.data(), t.row_losses.data()};
  const unsigned batch = static_cast<unsigned>(t.batch);
  LAUNCH_ON(t.stream, differentiate_images, batch, kThreads, sizeof(ImageMemory), network,
            t.samples, batch, t.schedule.data(), exchange);
  const size_t blocks = gpu::ceil_div(network.hidden, kAtOnce) * kPieces +
                        gpu::ceil_div(Row{network.hidden}.end(), kColumns) + 1;
  optimizers::visit_rule(t.settings.kind, [&](auto rule) {
    LAUNCH_ON(t.stream, (update_parameters<decltype(rule)>), static_cast<unsigned>(blocks),
              kUpdateThreads, 0, network, t.sampler, t.schedule.data(), exchange, t.curve.data());
  });
}

inline void run_per_image(Training& t, size_t steps) {
  gpu::allow_shared_bytes(differentiate_images, sizeof(ImageMemory));
  LAUNCH_ON(t.stream, choose_rows, 1, kThreads, 0, t.rows.data(), t.sampler, t.schedule.data());
  t.replay(steps, "per_image", [&] { queue_per_image(t); });
}

// ---- The versions -----------------------------------------------------------------------------

// Empty, or why a version can't run this training on this device.
inline std::string takes_any(const Training&) { return ""; }

inline std::string takes_few_units(const Training& t) {
  return t.hidden <= kMostHidden ? "" : "takes up to " + std::to_string(kMostHidden) + " units";
}

using Launch = mnist::Launch<Training>;

inline constexpr Version<Launch> kVersions[] = {
    {"operations", {run_operations, takes_any}, "a kernel per operation, launched by the host"},
    {"fused", {run_fused, takes_any}, "ReLU and loss in their neighbours' kernels"},
    {"graph", {run_graph, takes_any}, "the same kernels, replayed from a graph of steps"},
    {"per_image",
     {run_per_image, takes_few_units},
     "two kernels: an image there and back; all sums"},
};

// The version to take where one is enough: the last that can run. A processor does not care how
// kernels are launched.
inline const Version<Launch>& best(const Training& t) {
  const Version<Launch>* chosen = &kVersions[1];
  if (std::string(gpu::kBackend) == "cpu") return *chosen;
  for (const auto& version : kVersions)
    if (version.launch.obstacle(t).empty()) chosen = &version;
  return *chosen;
}

// ---- What the layers see ----------------------------------------------------------------------

// What the first `count` layers of a model make of an image. (A model keeps the outputs that its
// backward pass needs, not all of them: a shorter model with the same parameters tells.)
inline std::vector<float> outputs_of(const Sequential& model, size_t hidden, size_t count,
                                     const std::vector<std::uint8_t>& pixels) {
  Sequential first(make_layers(hidden, count));
  for (size_t k = 0; k < first.tensors().size(); ++k)
    HIP_CHECK(hipMemcpy(first.tensors()[k].w, model.tensors()[k].w,
                        first.tensors()[k].n * sizeof(float), hipMemcpyDeviceToDevice));
  std::vector<float> x(kPixels);
  for (size_t i = 0; i < kPixels; ++i) x[i] = mnist::kPixelScale * static_cast<float>(pixels[i]);
  const device_matrix::DeviceBuffer<float> d_x(x);
  std::vector<float> y(first.outputs());
  HIP_CHECK(hipMemcpy(y.data(), first.forward(d_x.data(), 1), y.size() * sizeof(float),
                      hipMemcpyDeviceToHost));
  return y;
}

}  // namespace train_cnn
