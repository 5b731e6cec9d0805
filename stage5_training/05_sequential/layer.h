// A layer of a model, its parameters, and what a model asks of it.
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/gpu_runtime.h"
#include "common/sizes.h"
#include "stage4_forward/01_dense/reference.h"
#include "stage5_training/01_dense_backward/branches.h"

namespace sequential {

using dense::Values;

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

// The product of the extents; throws where it can't be addressed, or where one of them is 0.
inline size_t checked_product(const std::vector<size_t>& extents, const std::string& what) {
  const std::optional<size_t> product = sizes::product(extents, kMostFloats);
  check_addressable(product.has_value(), what);
  if (*product == 0) throw std::invalid_argument(what + ": every size must be at least 1");
  return *product;
}

// A pass of a layer on the host: x (batch, inputs), its parameters, and what the way there leaves
// for the way back. Where x has no errors nobody asks for them.
struct HostPass {
  Values x;
  std::vector<Values> parameters;
  size_t batch = 0;
  std::vector<Values> kept = {};
};

// A layer in double on host arrays, with how far a float version may be off: of these a DoubleModel
// is made (reference.h). Its results have errors where pass.x has some.
class DoubleLayer {
 public:
  virtual ~DoubleLayer() = default;

  // As it is written in the code: "Linear(4, 16)".
  virtual std::string description() const = 0;
  virtual std::vector<Parameter> parameters() const { return {}; }

  // y (batch, outputs).
  virtual Values forward_cpu(HostPass& pass) const = 0;
  // grad_x (batch, inputs) of grad_y (batch, outputs), behind forward_cpu() of the same pass;
  // appends the parameters' gradients.
  virtual Values backward_cpu(std::vector<Values>& gradients, const Values& grad_y,
                              const HostPass& pass) const = 0;
  // Where a decision hangs on a value of x that is nearer to the other side than `share` of its
  // error, moves it there: a float version may decide so (Deviation in reference.h).
  virtual void decide_otherwise(Values& /*x*/, double /*share*/) const {}
};

// One layer of a model. What a sample's values mean beyond their number, an image's rows and
// columns for example, is the layer's own matter.
class Layer : public DoubleLayer {
 public:
  // Values per sample that the layer takes; 0: as many as come.
  virtual size_t inputs() const { return 0; }
  // Values per sample that it makes of so many. Throws std::invalid_argument where they don't fit.
  virtual size_t outputs(size_t inputs) const { return inputs; }
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

  // A layer that has no reference throws std::logic_error.
  Values forward_cpu(HostPass& pass) const override;
  Values backward_cpu(std::vector<Values>& gradients, const Values& grad_y,
                      const HostPass& pass) const override;
};

}  // namespace sequential
