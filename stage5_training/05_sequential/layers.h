// The layers of step 5.5: a linear one, and the activations. No kernel is written here.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage5_training/01_dense_backward/dense_backward.h"
#include "stage5_training/05_sequential/layer.h"

namespace sequential {

// y = x w^T + bias: steps 4.1 and 5.1.
class Linear : public Layer {
 public:
  // Throws std::invalid_argument where a size is 0 or too large.
  Linear(size_t in, size_t out, Initial initial = Initial::ByNext);

  std::string description() const override;
  size_t inputs() const override { return in_; }
  size_t outputs(size_t) const override { return out_; }
  std::vector<Parameter> parameters() const override;

  void bind(std::vector<float*> values, std::vector<float*> gradients) override;
  void reserve(size_t max_batch) override;
  void use_branches(const dense_backward::Branches* branches) override { branches_ = branches; }
  // ReLU goes into the kernel of step 4.1: its slope can be told from y as from x, both are above 0
  // or neither is, so the sums need not go to memory. (Step 5.2 has slopes of other functions from
  // y, of which the rounding of y has taken digits.) The bias's gradient is summed where the
  // gradient of the sums is made.
  bool fuse(Layer* next) override;

  void forward(float* y, const float* x, size_t batch, hipStream_t stream) override;
  void backward(float* grad_x, const float* grad_y, const float* x, const float* y, size_t batch,
                hipStream_t stream) override;

  Values forward_cpu(HostPass& pass) const override;
  Values backward_cpu(std::vector<Values>& gradients, const Values& grad_y,
                      const HostPass& pass) const override;

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

// f and its backward pass in double: reference.cpp.
template <class Function>
Values activation_cpu(const Values& x);
template <class Function>
Values activation_backward_cpu(const Values& grad_y, const Values& x);

// y = f(x) for each value: steps 3.1 and 5.2. Compiled in layers.cpp, for the functions below.
template <class Function>
class Activation : public Layer {
 public:
  std::string description() const override;  // "ReLU()"
  bool rectifies() const override;
  void connect(size_t inputs) override { width_ = inputs; }
  void reserve(size_t max_batch) override;
  bool leave_sums(float* grad_bias) override {
    grad_bias_ = grad_bias;
    return true;
  }
  bool leaves_sums() const { return grad_bias_ != nullptr; }

  void forward(float* y, const float* x, size_t batch, hipStream_t stream) override;
  void backward(float* grad_x, const float* grad_y, const float* x, const float* y, size_t batch,
                hipStream_t stream) override;

  Values forward_cpu(HostPass& pass) const override { return activation_cpu<Function>(pass.x); }
  Values backward_cpu(std::vector<Values>&, const Values& grad_y,
                      const HostPass& pass) const override {
    return activation_backward_cpu<Function>(grad_y, pass.x);
  }
  void decide_otherwise(Values& x, double share) const override;  // ReLU: a sum that is nearly 0

 private:
  size_t width_ = 0;
  float* grad_bias_ = nullptr;  // of the layer before
  std::unique_ptr<dense_backward::Workspace> workspace_;
};

extern template class Activation<activations::Relu>;
extern template class Activation<activations::Sigmoid>;
extern template class Activation<activations::Tanh>;
extern template class Activation<activations::GeluErf>;
extern template class Activation<activations::Softplus>;

using ReLU = Activation<activations::Relu>;
using Sigmoid = Activation<activations::Sigmoid>;
using Tanh = Activation<activations::Tanh>;
using GELU = Activation<activations::GeluErf>;  // with erf: what torch.nn.GELU() is
using Softplus = Activation<activations::Softplus>;

}  // namespace sequential
