// What the layers launch. (Their references: reference.cpp.)
#include "stage5_training/05_sequential/layers.h"

#include <utility>

#include "stage3_ml_ops/01_matrix_activations/matrix_activations.h"
#include "stage4_forward/01_dense/dense.h"
#include "stage5_training/02_activation_backward/activation_backward.h"

namespace sequential {

// ---- Linear -----------------------------------------------------------------------------------

Linear::Linear(size_t in, size_t out, Initial initial) : in_(in), out_(out), initial_(initial) {
  checked_product({in, out}, description());
}

std::string Linear::description() const {
  return "Linear(" + std::to_string(in_) + ", " + std::to_string(out_) + ")";
}

std::vector<Parameter> Linear::parameters() const {
  const Initial bias = initial_ == Initial::Torch ? Initial::Torch : Initial::Zeros;
  return {{"weight", {out_, in_}, initial_, in_, out_}, {"bias", {out_}, bias, in_, out_}};
}

void Linear::bind(std::vector<float*> values, std::vector<float*> gradients) {
  weights_ = {in_, out_, values[0], values[1]};
  grad_w_ = gradients[0], grad_bias_ = gradients[1];
}

void Linear::reserve(size_t max_batch) {
  workspace_ = std::make_unique<dense_backward::Workspace>(max_batch, in_, out_);
}

bool Linear::fuse(Layer* next) {
  relu_ = dynamic_cast<const ReLU*>(next) != nullptr;
  bias_is_summed_ = next != nullptr && next->leave_sums(grad_bias_);
  return relu_;
}

void Linear::forward(float* y, const float* x, size_t batch, hipStream_t stream) {
  if (relu_)
    dense::forward<activations::Relu>(y, x, batch, weights_, stream);
  else
    dense::forward<dense::Linear>(y, x, batch, weights_, stream);
}

void Linear::backward(float* grad_x, const float* grad_y, const float* x, const float*,
                      size_t batch, hipStream_t stream) {
  dense_backward::backward({grad_w_, bias_is_summed_ ? nullptr : grad_bias_, grad_x}, grad_y, x,
                           batch, weights_, 0, *workspace_, {stream, branches_});
}

// ---- Activations ------------------------------------------------------------------------------

namespace {

// PyTorch's name, and whether negative values are (nearly) lost.
struct Traits {
  const char* description;
  bool rectifies;
};
constexpr Traits traits(activations::Relu) { return {"ReLU()", true}; }
constexpr Traits traits(activations::Sigmoid) { return {"Sigmoid()", false}; }
constexpr Traits traits(activations::Tanh) { return {"Tanh()", false}; }
constexpr Traits traits(activations::GeluErf) { return {"GELU()", true}; }
constexpr Traits traits(activations::Softplus) { return {"Softplus()", true}; }

}  // namespace

template <class Function>
std::string Activation<Function>::description() const {
  return traits(Function{}).description;
}
template <class Function>
bool Activation<Function>::rectifies() const {
  return traits(Function{}).rectifies;
}

template <class Function>
void Activation<Function>::reserve(size_t max_batch) {
  if (grad_bias_ != nullptr) workspace_ = std::make_unique<dense_backward::Workspace>(max_batch);
}

template <class Function>
void Activation<Function>::forward(float* y, const float* x, size_t batch, hipStream_t stream) {
  matrix_activations::launch_activation<Function>(y, x, batch, width_, stream);
}

template <class Function>
void Activation<Function>::backward(float* grad_x, const float* grad_y, const float* x,
                                    const float*, size_t batch, hipStream_t stream) {
  if (grad_x == nullptr) return;
  if (grad_bias_ == nullptr)
    activation_backward::launch_without_bias<Function>(grad_x, grad_y, x, batch, width_, stream);
  else
    activation_backward::backward<Function>(grad_x, grad_bias_, grad_y, x, batch, width_, 0,
                                            *workspace_, stream);
}

template class Activation<activations::Relu>;
template class Activation<activations::Sigmoid>;
template class Activation<activations::Tanh>;
template class Activation<activations::GeluErf>;
template class Activation<activations::Softplus>;

}  // namespace sequential
