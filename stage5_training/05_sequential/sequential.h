// 5.5  Sequential: layers one after the other, trained as one model.
//
//   Sequential model{Linear(4, 16), ReLU(), Linear(16, 3)};
//   model.initialize(seed);
//   const float* y = model.forward(x, batch);             x (batch, 4)  ->  y (batch, 3)
//   model.backward(grad_y);                               the gradients of all parameters
//   optimizers::step(kind, model.arena(), schedule);      step 5.4: all parameters, one launch
//
// A layer is what steps 4.1, 5.1 and 3.1 have taught, behind one interface; no kernel is written
// here. What is left to learn is who owns which memory, for how long: all parameters lie in one
// arena and their gradients in another, each output is kept until the backward pass has read it,
// and the gradients of the outputs need no more than two buffers in turn. The ladder runs the same
// step with memory from the driver in every step, with memory kept, and with what lies between two
// products done in their neighbours' launches.
//
// All arrays are float, row-major and without gaps, a sample per row; inputs and gradients that are
// passed in lie in device memory, aligned to 4 bytes. A step of a model whose memory is reserved
// waits for nothing and allocates nothing, so that a graph can capture it, and gives the same bits
// on every run of one device. A model is used by one thread and one stream at a time.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/gpu.h"
#include "common/printable.h"
#include "common/program.h"
#include "common/random.h"
#include "common/rounding.h"
#include "common/safetensors.h"
#include "common/training.h"
#include "stage0_infra/04_device_matrix/device_matrix.h"
#include "stage1_vector/02_axpy/axpy.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage3_ml_ops/01_matrix_activations/matrix_activations.h"
#include "stage4_forward/01_dense/dense.h"
#include "stage4_forward/01_dense/reference.h"
#include "stage5_training/01_dense_backward/dense_backward.h"
#include "stage5_training/02_activation_backward/activation_backward.h"
#include "stage5_training/04_optimizers/optimizers.h"

namespace sequential {

using dense::Values;
using device_matrix::DeviceBuffer;

// ---- Parameters -------------------------------------------------------------------------------

// The numbers a parameter begins with: all alike, or uniform in [-bound, bound). The variance of
// such numbers is bound^2 / 3, and each rule chooses the bound such that the values keep their size
// from layer to layer.
enum class Initial {
  Zeros,
  Ones,
  Xavier,  // sqrt(6 / (fan_in + fan_out)): for tanh, sigmoid and outputs (Glorot and Bengio:
           // Understanding the difficulty of training deep feedforward neural networks, 2010)
  He,      // sqrt(6 / fan_in): twice the variance, since ReLU drops one half (He, Zhang, Ren, Sun:
           // Delving deep into rectifiers, arXiv:1502.01852)
  Torch,   // 1 / sqrt(fan_in): what torch.nn.Linear begins with
  ByNext   // He where the next layer rectifies, else Xavier
};

struct Parameter {
  std::string name;           // "weight"
  std::vector<size_t> shape;  // {out, in}
  Initial initial = Initial::Zeros;
  size_t fan_in = 0, fan_out = 0;  // how many values an output is made of, and an input goes to
};

// A parameter in device memory: n values, their gradients, and the optimizer's states.
struct NamedTensor {
  std::string name;  // "0.weight": the layer's number and the parameter's name, as PyTorch has it
  std::vector<size_t> shape;
  float* w;
  float* grad;
  float* m;
  float* v;
  size_t n;
};

// Throws std::invalid_argument that names `what` where so many floats, a few times over, can't be
// addressed.
inline constexpr size_t kMostFloats = std::numeric_limits<size_t>::max() / (16 * sizeof(float));
inline void check_addressable(bool addressable, const std::string& what) {
  if (!addressable) throw std::invalid_argument(what + " needs more memory than can be addressed");
}

// The product of the sizes; throws where it can't be addressed, or where one of them is 0.
inline size_t checked_product(const std::vector<size_t>& sizes, const std::string& what) {
  size_t product = 1;
  for (const size_t size : sizes) {
    if (size == 0) throw std::invalid_argument(what + ": every size must be at least 1");
    check_addressable(size <= kMostFloats / product, what);
    product *= size;
  }
  return product;
}

// ---- A layer ----------------------------------------------------------------------------------

// One layer of a model. What a sample's values mean beyond their number, an image's rows and
// columns for example, is the layer's own matter.
class Layer {
 public:
  virtual ~Layer() = default;

  // As it is written in the code: "Linear(4, 16)".
  virtual std::string description() const = 0;
  // Values per sample that the layer takes; 0: as many as come.
  virtual size_t inputs() const { return 0; }
  // Values per sample that it makes of so many. Throws std::invalid_argument where they don't fit.
  virtual size_t outputs(size_t inputs) const { return inputs; }
  virtual std::vector<Parameter> parameters() const { return {}; }
  // Whether negative values are (nearly) lost in it: what Initial::ByNext asks.
  virtual bool rectifies() const { return false; }

  // What the model tells the layer before the first step: how many values come in, where each of
  // its parameters and gradients lies, and the largest batch (again, when it grows).
  virtual void connect(size_t /*inputs*/) {}
  virtual void bind(std::vector<float*> /*values*/, std::vector<float*> /*gradients*/) {}
  virtual void reserve(size_t /*max_batch*/) {}
  // Whether gradients that do not need one another may be computed at the same time, and on which
  // branches of the stream; nullptr: one after the other.
  virtual void use_branches(const dense_backward::Branches* /*branches*/) {}

  // True if from now on forward() does the work of `next`, too: next's forward pass is left out,
  // and its backward pass gets y as its x. nullptr: it shall do its own work only.
  virtual bool fuse(Layer* /*next*/) { return false; }
  // True if from now on backward() also leaves the sum of grad_x's rows in grad_bias: the gradient
  // of a bias that the layer before has added to x. nullptr: no longer.
  virtual bool leave_sums(float* /*grad_bias*/) { return false; }
  // True if from now on backward() does the work of `before`, a layer without parameters, too: its
  // backward pass is left out, and grad_x is the gradient of its x. nullptr: its own work only.
  virtual bool fuse_backward(Layer* /*before*/) { return false; }

  // y (batch, outputs) from x (batch, inputs), queued on `stream`; overwrites y.
  virtual void forward(float* y, const float* x, size_t batch, hipStream_t stream) = 0;
  // From grad_y, the gradient of y: overwrites the parameters' gradients, and grad_x unless it is
  // nullptr. x and y are those of the forward pass.
  virtual void backward(float* grad_x, const float* grad_y, const float* x, const float* y,
                        size_t batch, hipStream_t stream) = 0;

  // The same in double, with how far the float versions may be off: y of x, and grad_x of grad_y
  // and x with the parameters' gradients appended to `gradients`. `values` are the parameters.
  virtual Values forward_cpu(const Values& x, const std::vector<std::vector<float>>& values,
                             size_t batch) const;
  virtual Values backward_cpu(std::vector<Values>& gradients, const Values& grad_y, const Values& x,
                              const std::vector<std::vector<float>>& values, size_t batch) const;
};

inline Values Layer::forward_cpu(const Values&, const std::vector<std::vector<float>>&,
                                 size_t) const {
  throw std::logic_error(description() + " has no reference");
}
inline Values Layer::backward_cpu(std::vector<Values>&, const Values&, const Values&,
                                  const std::vector<std::vector<float>>&, size_t) const {
  throw std::logic_error(description() + " has no reference");
}

// ---- Reference and bound ----------------------------------------------------------------------

// A number in double, and how far a float version's may be from it.
struct Approximate {
  double value, error;
};
inline Approximate at(const Values& values, size_t i) { return {values.value[i], values.error[i]}; }

// (rows, cols) sums over `terms` products a(row, k) b(k, col). What comes in wrong is multiplied by
// the other factor, and the sum itself is off by rounding::worst_case, as in dense::dense_cpu.
template <class A, class B>
Values product_cpu(size_t rows, size_t cols, size_t terms, A a, B b) {
  Values product{std::vector<double>(rows * cols), std::vector<double>(rows * cols)};
  const double n = static_cast<double>(terms);
  for (size_t i = 0; i < rows * cols; ++i) {
    double sum = 0, absolute = 0, inherited = 0;
    for (size_t k = 0; k < terms; ++k) {
      const Approximate left = a(i / cols, k), right = b(k, i % cols);
      const double size_left = std::fabs(left.value), size_right = std::fabs(right.value);
      sum += left.value * right.value;
      absolute += (size_left + left.error) * (size_right + right.error);
      inherited += size_left * right.error + left.error * (size_right + right.error);
    }
    product.value[i] = sum;
    product.error[i] = inherited + rounding::worst_case(n, n, absolute);
  }
  return product;
}

// No activation of step 1.4 but ReLU has a derivative that moves faster than this (tanh's, 0.77,
// and GELU's, 0.80).
inline constexpr double kSharpest = 0.8;

// How far f' may move where x is off by `error`. ReLU's jumps at 0.
template <class Function>
double derivative_moves(double x, double error) {
  if (!std::is_same_v<Function, activations::Relu>) return kSharpest * error;
  return Function::derivative_cpu(x - error) == Function::derivative_cpu(x + error) ? 0 : 1;
}

// ---- Linear -----------------------------------------------------------------------------------

// y = x w^T + bias: steps 4.1 and 5.1.
class Linear : public Layer {
 public:
  // Throws std::invalid_argument where a size is 0 or too large.
  Linear(size_t in, size_t out, Initial initial = Initial::ByNext)
      : in_(in), out_(out), initial_(initial) {
    checked_product({in, out}, description());
  }

  std::string description() const override {
    return "Linear(" + std::to_string(in_) + ", " + std::to_string(out_) + ")";
  }
  size_t inputs() const override { return in_; }
  size_t outputs(size_t) const override { return out_; }
  std::vector<Parameter> parameters() const override {
    const Initial bias = initial_ == Initial::Torch ? Initial::Torch : Initial::Zeros;
    return {{"weight", {out_, in_}, initial_, in_, out_}, {"bias", {out_}, bias, in_, out_}};
  }

  void bind(std::vector<float*> values, std::vector<float*> gradients) override {
    weights_ = {in_, out_, values[0], values[1]};
    grad_w_ = gradients[0], grad_bias_ = gradients[1];
  }
  void reserve(size_t max_batch) override {
    workspace_ = std::make_unique<dense_backward::Workspace>(max_batch, in_, out_);
  }
  void use_branches(const dense_backward::Branches* branches) override { branches_ = branches; }
  bool fuse(Layer* next) override;

  void forward(float* y, const float* x, size_t batch, hipStream_t stream) override {
    if (relu_)
      dense::forward<activations::Relu>(y, x, batch, weights_, stream);
    else
      dense::forward<dense::Linear>(y, x, batch, weights_, stream);
  }
  void backward(float* grad_x, const float* grad_y, const float* x, const float*, size_t batch,
                hipStream_t stream) override {
    dense_backward::backward({grad_w_, bias_is_summed_ ? nullptr : grad_bias_, grad_x}, grad_y, x,
                             batch, weights_, 0, *workspace_, {stream, branches_});
  }

  Values forward_cpu(const Values& x, const std::vector<std::vector<float>>& values,
                     size_t batch) const override {
    return dense::dense_cpu<dense::Linear>(x, values[0], values[1], batch);
  }
  Values backward_cpu(std::vector<Values>& gradients, const Values& grad_y, const Values& x,
                      const std::vector<std::vector<float>>& values, size_t batch) const override {
    const auto grad = [&](size_t sample, size_t unit) { return at(grad_y, sample * out_ + unit); };
    const auto transposed = [&](size_t unit, size_t sample) { return grad(sample, unit); };
    const auto input = [&](size_t sample, size_t k) { return at(x, sample * in_ + k); };
    const auto one = [](size_t, size_t) { return Approximate{1, 0}; };
    const auto weight = [&](size_t unit, size_t k) {
      return Approximate{static_cast<double>(values[0][unit * in_ + k]), 0};
    };
    gradients.push_back(product_cpu(out_, in_, batch, transposed, input));
    gradients.push_back(product_cpu(out_, 1, batch, transposed, one));
    return product_cpu(batch, in_, out_, grad, weight);
  }

 private:
  size_t in_, out_;
  Initial initial_;
  dense::Layer weights_{};
  float *grad_w_ = nullptr, *grad_bias_ = nullptr;
  bool relu_ = false;            // forward() does the next layer's work
  bool bias_is_summed_ = false;  // by the next layer's backward()
  std::unique_ptr<dense_backward::Workspace> workspace_;
  const dense_backward::Branches* branches_ = nullptr;
};

// ---- Activations ------------------------------------------------------------------------------

// y = f(x) for each value: steps 3.1 and 5.2.
template <class Function>
class Activation : public Layer {
 public:
  std::string description() const override { return name_; }
  void connect(size_t inputs) override { width_ = inputs; }
  void reserve(size_t max_batch) override {
    if (grad_bias_ != nullptr) workspace_ = std::make_unique<dense_backward::Workspace>(max_batch);
  }
  bool leave_sums(float* grad_bias) override {
    grad_bias_ = grad_bias;
    return true;
  }
  bool leaves_sums() const { return grad_bias_ != nullptr; }

  void forward(float* y, const float* x, size_t batch, hipStream_t stream) override {
    matrix_activations::launch_activation<Function>(y, x, batch, width_, stream);
  }
  void backward(float* grad_x, const float* grad_y, const float* x, const float*, size_t batch,
                hipStream_t stream) override {
    if (grad_x == nullptr) return;
    if (grad_bias_ == nullptr)
      activation_backward::launch_without_bias<Function>(grad_x, grad_y, x, batch, width_, stream);
    else
      activation_backward::backward<Function>(grad_x, grad_bias_, grad_y, x, batch, width_, 0,
                                              *workspace_, stream);
  }

  Values forward_cpu(const Values& x, const std::vector<std::vector<float>>&,
                     size_t) const override {
    Values y = x;
    for (size_t i = 0; i < y.value.size(); ++i) {
      const auto [value, error] = at(x, i);
      y.value[i] = Function::cpu(value);
      y.error[i] = dense::kSteepest * error +
                   std::max(Function::bound(value - error), Function::bound(value + error));
    }
    return y;
  }
  Values backward_cpu(std::vector<Values>&, const Values& grad_y, const Values& x,
                      const std::vector<std::vector<float>>&, size_t) const override {
    Values grad_x = grad_y;
    for (size_t i = 0; i < grad_x.value.size(); ++i) {
      const auto [value, error] = at(x, i);
      const Approximate grad = at(grad_y, i);
      const double slope = Function::derivative_cpu(value);
      const double slope_error = derivative_moves<Function>(value, error) +
                                 std::max(Function::derivative_bound(value - error),
                                          Function::derivative_bound(value + error));
      const double inherited =
          std::fabs(grad.value) * slope_error + grad.error * (std::fabs(slope) + slope_error);
      grad_x.value[i] = grad.value * slope;
      grad_x.error[i] = inherited + activations::kTiny +
                        kFloatRoundoff * (std::fabs(grad_x.value[i]) + inherited);
    }
    return grad_x;
  }

 protected:
  explicit Activation(const char* name) : name_(name) {}

 private:
  const char* name_;
  size_t width_ = 0;
  float* grad_bias_ = nullptr;  // of the layer before
  std::unique_ptr<dense_backward::Workspace> workspace_;
};

struct ReLU : Activation<activations::Relu> {
  ReLU() : Activation("ReLU()") {}
  bool rectifies() const override { return true; }
};
struct Sigmoid : Activation<activations::Sigmoid> {
  Sigmoid() : Activation("Sigmoid()") {}
};
struct Tanh : Activation<activations::Tanh> {
  Tanh() : Activation("Tanh()") {}
};
struct GELU : Activation<activations::GeluErf> {  // with erf: what torch.nn.GELU() is
  GELU() : Activation("GELU()") {}
  bool rectifies() const override { return true; }
};
struct Softplus : Activation<activations::Softplus> {
  Softplus() : Activation("Softplus()") {}
  bool rectifies() const override { return true; }
};

// ReLU goes into the kernel of step 4.1: its slope can be told from y as from x, both are above 0
// or neither is, so the sums need not go to memory. (Step 5.2 has slopes of other functions from y,
// of which the rounding of y has taken digits.) The bias's gradient is summed where the gradient of
// the sums is made.
inline bool Linear::fuse(Layer* next) {
  relu_ = dynamic_cast<const ReLU*>(next) != nullptr;
  bias_is_summed_ = next != nullptr && next->leave_sums(grad_bias_);
  return relu_;
}

// ---- How a model runs its steps ---------------------------------------------------------------

struct Mode {
  bool keep_memory;  // from one step to the next
  bool fuse;         // layers do some of their neighbours' work
};

inline constexpr Version<Mode> kVersions[] = {
    {"allocating", {false, false}, "memory from the driver in every step"},
    {"reserved", {true, false}, "memory kept from the first step on: a step only launches"},
    {"fused", {true, true}, "ReLU in the layer before it, a bias's gradient in the one behind it"},
};

// ---- The model --------------------------------------------------------------------------------

// Four arrays of the same length in one piece of memory, parameter behind parameter; each begins at
// a multiple of 16 bytes, with zeros in the gaps:
//
//   w     | 0.weight |0.bias  0| 2.weight ... | 2.bias 0 |
//   grad  | ...                                            what one backward pass overwrites
//   m, v  | ...                                            what the optimizer keeps
//
// A step's own memory, for Linear, ReLU, Linear: an output per layer until the backward pass has
// read it, and the gradients of two outputs, of which one is read while the other is written.
//
//   forward    x -> Linear -> [0] -> ReLU -> [1] -> Linear -> [2] = y
//   backward        Linear <- <A> <- ReLU <- <B> <- Linear <- grad_y
class Sequential {
 public:
  // Sequential{Linear(4, 16), ReLU(), Linear(16, 3)}. Throws std::invalid_argument where there is
  // no layer, a layer takes another number of values than the one before it makes, or the first
  // takes as many as come.
  template <class... Layers, class = std::enable_if_t<(std::is_base_of_v<Layer, Layers> && ...)>>
  explicit Sequential(Layers... layers) : Sequential(list(std::move(layers)...)) {}
  explicit Sequential(std::vector<std::unique_ptr<Layer>> layers);

  // It can be moved, and what has been moved away from can only be destroyed or assigned to.

  size_t inputs() const { return widths_.front(); }
  size_t outputs() const { return widths_.back(); }
  size_t layers() const { return layers_.size(); }
  const Layer& layer(size_t i) const { return *layers_[i]; }
  size_t width(size_t i) const { return widths_[i + 1]; }  // values that layer i makes per sample
  size_t parameter_count() const;
  // "Sequential{Linear(4, 16), ReLU(), Linear(16, 3)}"
  std::string description() const;

  // Begins a training: parameter k of the model becomes random_numbers::uniform(seed, k, i) times
  // the bound of its Initial, the same bits on every backend; gradients, m and v become 0. Waits
  // for the device.
  void initialize(std::uint64_t seed);

  // Allocates what a step of up to so many samples needs. Graphs that were captured before a model
  // has grown must be captured anew. Throws std::invalid_argument where the sizes overflow.
  void reserve(size_t max_batch);

  // x (batch, inputs) to y (batch, outputs), queued on `stream`. y is the model's memory, there
  // until the next forward pass; x must be left as it is until the backward pass has run.
  // reserve()s where the batch is larger than ever before.
  const float* forward(const float* x, size_t batch, hipStream_t stream = nullptr);

  // The gradients of the last forward pass: overwrites those of all parameters, and of x where
  // grad_x (batch, inputs) is not nullptr. Throws std::logic_error where there was no such pass.
  void backward(const float* grad_y, hipStream_t stream = nullptr) {
    backward(grad_y, nullptr, stream);
  }
  void backward(const float* grad_y, float* grad_x, hipStream_t stream);

  // From now on the layers compute gradients that do not need one another at the same time, on
  // these branches of the stream; nullptr: one after the other, as at first. In a graph a fork
  // costs nothing; launched one by one, small layers take longer with it.
  void use_branches(const dense_backward::Branches* branches) {
    for (const auto& layer : layers_) layer->use_branches(branches);
  }

  // All parameters as one, with zeros in the gaps; for optimizers::step.
  const optimizers::ParameterArena& arena() const { return arena_; }
  const std::vector<NamedTensor>& tensors() const { return tensors_; }

  // Bytes of device memory: of parameters, gradients, m and v; and of a step's outputs and
  // gradients as far as they are reserved.
  size_t parameter_bytes() const { return parameters_.bytes(); }
  size_t step_bytes() const { return step_memory_.bytes(); }

  // One of kVersions' modes; a new model has the last. Ends a step that has begun.
  void set_mode(const Mode& mode);

 private:
  template <class... Layers>
  static std::vector<std::unique_ptr<Layer>> list(Layers... layers) {
    std::vector<std::unique_ptr<Layer>> result;
    (result.push_back(std::make_unique<Layers>(std::move(layers))), ...);
    return result;
  }
  static size_t aligned(size_t floats) { return gpu::ceil_div(floats, 4) * 4; }
  void connect();
  void lay_out_parameters();
  void clear();    // parameters_
  void release();  // step_memory_
  const float* input(size_t i) const { return i == 0 ? x_ : outputs_[i - 1]; }

  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<size_t>
      widths_;  // values per sample: into layer 0, out of layer 0, out of layer 1...
  std::vector<Parameter> specifications_;  // of tensors_, ByNext resolved
  std::vector<NamedTensor> tensors_;
  size_t first_trained_ = 0;  // the first layer with parameters
  DeviceBuffer<float> parameters_;
  optimizers::ParameterArena arena_;

  Mode mode_{};
  std::vector<char> fused_;      // whether layer i does the work of layer i + 1
  std::vector<size_t> back_to_;  // layer i's backward() does that of the layers from here on
  DeviceBuffer<float> step_memory_;
  std::vector<float*> outputs_;  // of the layers
  float* gradients_[2] = {};
  size_t max_batch_ = 0, max_batch_of_layers_ = 0;  // reserved here, and in the layers

  const float* x_ = nullptr;  // of the last forward pass
  size_t batch_ = 0;
  bool forward_done_ = false;
};

// ---- Building it ------------------------------------------------------------------------------

inline Sequential::Sequential(std::vector<std::unique_ptr<Layer>> layers)
    : layers_(std::move(layers)) {
  connect();
  lay_out_parameters();
  set_mode(kVersions[std::size(kVersions) - 1].launch);
}

inline void Sequential::connect() {
  if (layers_.empty()) throw std::invalid_argument("Sequential: a model has at least one layer");
  widths_.push_back(layers_[0]->inputs());
  if (widths_[0] == 0)
    throw std::invalid_argument("Sequential: " + layers_[0]->description() +
                                " comes first and does not say how many values the model takes");
  size_t maker = 0;  // the layer that has decided how many values come
  for (size_t i = 0; i < layers_.size(); ++i) {
    Layer& layer = *layers_[i];
    const size_t width = widths_.back(), wanted = layer.inputs();
    if (wanted != 0 && wanted != width)
      throw std::invalid_argument(
          "Sequential: layer " + std::to_string(i) + ", " + layer.description() + ", takes " +
          std::to_string(wanted) + " values and layer " + std::to_string(maker) + ", " +
          layers_[maker]->description() + ", makes " + std::to_string(width));
    layer.connect(width);
    widths_.push_back(layer.outputs(width));
    if (widths_.back() != width || wanted != 0) maker = i;
  }
}

inline void Sequential::lay_out_parameters() {
  std::vector<size_t> offsets;  // in the arena
  size_t end = 0;
  first_trained_ = layers_.size();
  for (size_t i = 0; i < layers_.size(); ++i) {
    for (Parameter& parameter : layers_[i]->parameters()) {
      const std::string name = std::to_string(i) + "." + parameter.name;
      const size_t n = checked_product(parameter.shape, layers_[i]->description());
      if (parameter.initial == Initial::ByNext) {
        const bool rectified = i + 1 < layers_.size() && layers_[i + 1]->rectifies();
        parameter.initial = rectified ? Initial::He : Initial::Xavier;
      }
      first_trained_ = std::min(first_trained_, i);
      offsets.push_back(end);
      end += aligned(n);
      check_addressable(end <= kMostFloats, description());
      tensors_.push_back({name, parameter.shape, nullptr, nullptr, nullptr, nullptr, n});
      specifications_.push_back(std::move(parameter));
    }
  }

  parameters_ = DeviceBuffer<float>(4 * end);
  clear();
  float* const begin = parameters_.data();
  arena_ = {begin, begin + end, begin + 2 * end, begin + 3 * end, end};
  for (size_t k = 0; k < tensors_.size(); ++k) {
    NamedTensor& tensor = tensors_[k];
    tensor.w = begin + offsets[k], tensor.grad = tensor.w + end;
    tensor.m = tensor.w + 2 * end, tensor.v = tensor.w + 3 * end;
  }

  size_t k = 0;
  for (const auto& layer : layers_) {
    std::vector<float*> values, gradients;
    for (size_t left = layer->parameters().size(); left > 0; --left, ++k)
      values.push_back(tensors_[k].w), gradients.push_back(tensors_[k].grad);
    layer->bind(std::move(values), std::move(gradients));
  }
}

inline size_t Sequential::parameter_count() const {
  size_t count = 0;
  for (const NamedTensor& tensor : tensors_) count += tensor.n;
  return count;
}

inline std::string Sequential::description() const {
  std::string text;
  for (const auto& layer : layers_) text += (text.empty() ? "" : ", ") + layer->description();
  return "Sequential{" + text + "}";
}

// The bound of the uniform distribution; 0 where the rule is none.
inline float initial_bound(const Parameter& parameter) {
  const double in = static_cast<double>(parameter.fan_in);
  const double out = static_cast<double>(parameter.fan_out);
  switch (parameter.initial) {
    case Initial::Xavier:
      return static_cast<float>(std::sqrt(6 / (in + out)));
    case Initial::He:
      return static_cast<float>(std::sqrt(6 / in));
    case Initial::Torch:
      return static_cast<float>(1 / std::sqrt(in));
    default:
      break;
  }
  return 0;
}

inline void Sequential::clear() {
  if (parameters_.size() > 0) HIP_CHECK(hipMemset(parameters_.data(), 0, parameters_.bytes()));
  HIP_CHECK(hipDeviceSynchronize());
}

inline void Sequential::initialize(std::uint64_t seed) {
  clear();
  for (size_t k = 0; k < tensors_.size(); ++k) {
    const NamedTensor& tensor = tensors_[k];
    const float bound = initial_bound(specifications_[k]);
    if (specifications_[k].initial == Initial::Ones)
      device_matrix::launch_fill_flat(tensor.w, 1, tensor.n, 1.0f);
    if (bound == 0) continue;
    random_numbers::launch_fill_uniform(tensor.w, tensor.n, seed, static_cast<std::uint32_t>(k));
    axpy::launch_vectorized_scale(tensor.w, bound, tensor.w, tensor.n);
  }
  HIP_CHECK(hipDeviceSynchronize());  // a stream that does not wait for the default one comes next
}

// ---- A step -----------------------------------------------------------------------------------

inline void Sequential::set_mode(const Mode& mode) {
  mode_ = mode;
  fused_.assign(layers_.size(), false);
  for (const auto& layer : layers_) layer->leave_sums(nullptr);
  for (size_t i = 0; i < layers_.size(); ++i) {
    const bool possible = mode.fuse && i + 1 < layers_.size();
    fused_[i] = layers_[i]->fuse(possible ? layers_[i + 1].get() : nullptr);
  }
  back_to_.resize(layers_.size());
  for (size_t i = 0; i < layers_.size(); ++i) {  // who leaves sums is settled now
    const bool possible = mode.fuse && i > 0 && layers_[i - 1]->parameters().empty();
    const bool fused = layers_[i]->fuse_backward(possible ? layers_[i - 1].get() : nullptr);
    back_to_[i] = fused ? back_to_[i - 1] : i;
  }
  release();
  max_batch_of_layers_ = 0;  // what they need has changed
}

inline void Sequential::release() {
  step_memory_ = {};
  max_batch_ = 0;
  forward_done_ = false;
}

inline void Sequential::reserve(size_t max_batch) {
  max_batch = std::max(max_batch, size_t{1});
  if (max_batch <= max_batch_) return;
  const std::string what = "a batch of " + std::to_string(max_batch) + " for " + description();
  size_t end = 0, widest = 0;
  std::vector<size_t> begins(layers_.size());  // of the outputs
  for (size_t i = 0; i < layers_.size(); ++i) {
    const size_t output = aligned(checked_product({max_batch, width(i)}, what));
    widest = std::max(widest, output);
    begins[i] = end;
    if (!fused_[i]) end += output;
    check_addressable(end <= kMostFloats, what);
  }

  release();  // first: old and new memory together might not fit
  step_memory_ = DeviceBuffer<float>(end + 2 * widest);
  if (max_batch > max_batch_of_layers_) {
    for (const auto& layer : layers_) layer->reserve(max_batch);
    max_batch_of_layers_ = max_batch;
    HIP_CHECK(hipDeviceSynchronize());  // what they have written there
  }
  outputs_.resize(layers_.size());
  // exercise: where in step_memory_ each output lies, that of a fused layer where the next layer's
  // does; and behind them two buffers for gradients, each for the widest output (about 4 lines)
  for (size_t i = layers_.size(); i-- > 0;)
    outputs_[i] = fused_[i] ? outputs_[i + 1] : step_memory_.data() + begins[i];
  gradients_[0] = step_memory_.data() + end;
  gradients_[1] = gradients_[0] + widest;
  // end exercise
  max_batch_ = max_batch;
}

inline const float* Sequential::forward(const float* x, size_t batch, hipStream_t stream) {
  if (x == nullptr && batch > 0) throw std::invalid_argument("Sequential: x is null");
  if (!mode_.keep_memory) release();
  reserve(batch);
  x_ = x, batch_ = batch, forward_done_ = true;
  // exercise: one layer after the other, each from the output of the one before (about 3 lines)
  for (size_t i = 0; i < layers_.size(); ++i)
    if (i == 0 || !fused_[i - 1])  // else the layer before has done its work
      layers_[i]->forward(outputs_[i], input(i), batch, stream);
  // end exercise
  return outputs_.back();
}

inline void Sequential::backward(const float* grad_y, float* grad_x, hipStream_t stream) {
  if (!forward_done_)
    throw std::logic_error("Sequential: there is no forward pass that backward could belong to");
  if (grad_y == nullptr && batch_ > 0) throw std::invalid_argument("Sequential: grad_y is null");
  // Layers before the first one with parameters are asked only where grad_x is wanted.
  const size_t first = grad_x != nullptr ? 0 : first_trained_;
  // exercise: the layers in reverse, each from the gradient of its output, to the gradient of the
  // input of layer back_to_[i], with which it goes on: the buffer that grad_y is not in, or grad_x
  // for layer 0; the first one asked makes none but that (about 8 lines)
  for (size_t i = layers_.size(); i-- > first;) {
    const size_t end = back_to_[i];
    float* const free = gradients_[grad_y == gradients_[0] ? 1 : 0];
    float* to = end == 0 ? grad_x : end <= first ? nullptr : free;
    layers_[i]->backward(to, grad_y, input(i), outputs_[i], batch_, stream);
    grad_y = to, i = end;
  }
  // end exercise
}

// ---- The reference of a step ------------------------------------------------------------------

struct Reference {
  Values y, grad_x;
  std::vector<Values> gradients;  // of tensors(), in their order
};

// Forward and backward of the model's present parameters in double, from layer to layer with what
// the float step may be off so far. x (batch, inputs), grad_y (batch, outputs). Waits for the
// default stream.
inline Reference step_cpu(const Sequential& model, const std::vector<float>& x,
                          const std::vector<float>& grad_y, size_t batch) {
  std::vector<std::vector<std::vector<float>>> parameters(model.layers());
  size_t k = 0;
  for (size_t i = 0; i < model.layers(); ++i)
    for (size_t left = model.layer(i).parameters().size(); left > 0; --left, ++k) {
      const NamedTensor& tensor = model.tensors()[k];
      parameters[i].emplace_back(tensor.n);
      HIP_CHECK(hipMemcpy(parameters[i].back().data(), tensor.w, tensor.n * sizeof(float),
                          hipMemcpyDeviceToHost));
    }

  std::vector<Values> inputs{dense::exactly(x)};  // of the layers, and what the last one makes
  for (size_t i = 0; i < model.layers(); ++i)
    inputs.push_back(model.layer(i).forward_cpu(inputs[i], parameters[i], batch));
  Reference reference{inputs.back(), dense::exactly(grad_y), {}};
  std::vector<std::vector<Values>> gradients(model.layers());
  for (size_t i = model.layers(); i-- > 0;)
    reference.grad_x = model.layer(i).backward_cpu(gradients[i], reference.grad_x, inputs[i],
                                                   parameters[i], batch);
  for (std::vector<Values>& of_layer : gradients)
    for (Values& gradient : of_layer) reference.gradients.push_back(std::move(gradient));
  return reference;
}

// ---- Checkpoints ------------------------------------------------------------------------------

// What a training that goes on needs beside the model's tensors.
struct TrainingState {
  std::uint64_t steps = 0, epochs = 0, seed = 0;  // steps and epochs are those behind it
  std::string optimizer;                          // optimizers::name(kind)
  std::map<std::string, std::string> more;        // what else the program wants to find again
};

// Throws std::runtime_error where what a checkpoint says of its training is not what the training
// that shall go on from it wants. `has` is empty where the checkpoint does not say.
inline void require_same(const std::string& path, const char* what, const std::string& has,
                         const std::string& wants) {
  constexpr size_t kMostPlain = 60;  // characters; a longer text, or one that steers, is quoted
  const auto shown = [](const std::string& text) {
    const bool plain = text.size() <= kMostPlain && printable(text) == text;
    return plain ? text : safetensors::quoted(text);
  };
  if (has != wants)
    throw std::runtime_error(path + " is of a training with " + what + " " +
                             (has.empty() ? "unknown" : shown(has)) + ", not " + shown(wants));
}

inline bool all_finite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(),
                     [](float value) { return std::isfinite(value); });
}

// m and v of a parameter, in a file.
inline std::string name_of_m(const NamedTensor& tensor) { return "optimizer.m." + tensor.name; }
inline std::string name_of_v(const NamedTensor& tensor) { return "optimizer.v." + tensor.name; }

// How many arrays of state the optimizer of this name keeps. "" keeps none. Throws
// std::invalid_argument for a name that no optimizer has.
inline int states_of(const std::string& optimizer) {
  if (optimizer.empty()) return 0;
  for (const optimizers::Kind kind : optimizers::kKinds)
    if (optimizer == optimizers::name(kind)) return optimizers::states(kind);
  throw std::invalid_argument("there is no optimizer " + safetensors::quoted(optimizer));
}

// Throws training::Diverged where a parameter, or what the optimizer of this kind keeps of it, is
// not finite after `steps` steps; `kept` is what the training leaves. Waits for the device.
template <class Model>
void require_finite(const Model& model, optimizers::Kind kind, std::uint64_t steps,
                    const training::Kept& kept) {
  HIP_CHECK(hipDeviceSynchronize());
  std::vector<float> values;
  const auto check = [&](const std::string& name, const NamedTensor& tensor, const float* from) {
    values.resize(tensor.n);
    HIP_CHECK(hipMemcpy(values.data(), from, tensor.n * sizeof(float), hipMemcpyDeviceToHost));
    if (!all_finite(values))
      training::stop_diverged("\"" + name + "\" after step " + std::to_string(steps), kept);
  };
  for (const NamedTensor& tensor : model.tensors()) {
    check(tensor.name, tensor, tensor.w);
    if (optimizers::states(kind) >= 1) check(name_of_m(tensor), tensor, tensor.m);
    if (optimizers::states(kind) >= 2) check(name_of_v(tensor), tensor, tensor.v);
  }
}

// Writes the parameters to a safetensors file (common/safetensors.h says how) under their names in
// tensors(), and where there is a state also m and v, as far as its optimizer keeps them, as
// "optimizer.m.0.weight". The state and the model's description are metadata. Waits for the device.
// Throws std::runtime_error, one line that names the file, where it can't be written. A Model is a
// Sequential, or has the same description(), tensors() and arena().
template <class Model>
void save(const std::string& path, const Model& model, const TrainingState* state = nullptr) {
  HIP_CHECK(hipDeviceSynchronize());
  safetensors::File file;
  file.metadata["model"] = model.description();
  const auto add = [&](const std::string& name, const NamedTensor& tensor, const float* values) {
    file.tensors.push_back({name, tensor.shape, std::vector<float>(tensor.n)});
    HIP_CHECK(hipMemcpy(file.tensors.back().values.data(), values, tensor.n * sizeof(float),
                        hipMemcpyDeviceToHost));
  };
  for (const NamedTensor& tensor : model.tensors()) add(tensor.name, tensor, tensor.w);
  if (state != nullptr) {
    const int states = states_of(state->optimizer);
    for (const NamedTensor& tensor : model.tensors()) {
      if (states >= 1) add(name_of_m(tensor), tensor, tensor.m);
      if (states >= 2) add(name_of_v(tensor), tensor, tensor.v);
    }
    file.metadata["training.steps"] = std::to_string(state->steps);
    file.metadata["training.epochs"] = std::to_string(state->epochs);
    file.metadata["training.seed"] = std::to_string(state->seed);
    file.metadata["training.optimizer"] = state->optimizer;
    for (const auto& [key, text] : state->more) file.metadata["training.more." + key] = text;
  }
  safetensors::write(path, file);
}

// The state in a file's metadata, empty where there is none. Throws std::invalid_argument.
inline TrainingState state_of(const std::map<std::string, std::string>& metadata) {
  TrainingState state;
  if (metadata.count("training.optimizer") == 0) return state;
  const auto text = [&](const std::string& key) {
    const auto found = metadata.find("training." + key);
    if (found == metadata.end()) throw std::invalid_argument("it has no \"" + key + "\"");
    return found->second;
  };
  const auto number = [&](const std::string& key) {
    const std::string digits = text(key);
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size())
      throw std::invalid_argument("its \"" + key + "\" is " + safetensors::quoted(digits));
    return value;
  };
  state.steps = number("steps"), state.epochs = number("epochs"), state.seed = number("seed");
  state.optimizer = text("optimizer");
  states_of(state.optimizer);
  const std::string more = "training.more.";
  for (const auto& [key, value] : metadata)
    if (key.compare(0, more.size(), more) == 0) state.more[key.substr(more.size())] = value;
  return state;
}

// Reads such a file into the model. First everything is checked: a file that is damaged, of another
// model, or has a tensor too many or too few, of another shape or with values that are not finite
// throws std::runtime_error, one line that names the file, and leaves the model as it was. m and v
// become what the file has, else 0. A file of parameters alone, say from PyTorch, is right; its
// state is empty.
template <class Model>
TrainingState load(const std::string& path, Model& model) {
  const safetensors::File file = safetensors::read(path);
  const auto fail = [&](const std::string& what) { throw std::runtime_error(path + " " + what); };

  TrainingState state;
  try {
    state = state_of(file.metadata);
  } catch (const std::invalid_argument& error) {
    fail(std::string("holds no training that could go on: ") + error.what());
  }
  const auto described = file.metadata.find("model");
  if (described != file.metadata.end() && described->second != model.description())
    fail("holds a " + safetensors::quoted(described->second) + ", not a " + model.description());

  // Everything goes into arrays like the model's own first.
  const optimizers::ParameterArena& arena = model.arena();
  std::vector<float> w(arena.n), m(arena.n), v(arena.n);
  std::set<std::string> wanted;
  const auto take = [&](const std::string& name, const NamedTensor& tensor,
                        std::vector<float>& into) {
    const safetensors::Tensor* found = file.find(name);
    if (found == nullptr) return fail("has no tensor \"" + name + "\"");
    if (found->shape != tensor.shape)
      fail("has a tensor \"" + name + "\" of shape " + safetensors::shape_text(found->shape) +
           "; the model's is " + safetensors::shape_text(tensor.shape));
    if (!all_finite(found->values))
      fail("has a tensor \"" + name + "\" with values that are not finite");
    std::copy(found->values.begin(), found->values.end(), into.begin() + (tensor.w - arena.w));
    wanted.insert(name);
  };
  const int states = states_of(state.optimizer);
  for (const NamedTensor& tensor : model.tensors()) {
    take(tensor.name, tensor, w);
    if (states >= 1) take(name_of_m(tensor), tensor, m);
    if (states >= 2) take(name_of_v(tensor), tensor, v);
  }
  for (const safetensors::Tensor& tensor : file.tensors)
    if (wanted.count(tensor.name) == 0)
      fail("has a tensor " + safetensors::quoted(tensor.name) + " that the model does not have");

  HIP_CHECK(hipDeviceSynchronize());
  const size_t bytes = arena.n * sizeof(float);
  if (bytes == 0) return state;
  HIP_CHECK(hipMemcpy(arena.w, w.data(), bytes, hipMemcpyHostToDevice));
  HIP_CHECK(hipMemcpy(arena.m, m.data(), bytes, hipMemcpyHostToDevice));
  HIP_CHECK(hipMemcpy(arena.v, v.data(), bytes, hipMemcpyHostToDevice));
  HIP_CHECK(hipDeviceSynchronize());
  return state;
}

}  // namespace sequential
