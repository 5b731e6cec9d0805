// The convolution as a layer: steps 6.1 and 6.2.
#include <cmath>
#include <utility>

#include "common/rounding.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage4_forward/01_dense/dense.h"
#include "stage5_training/05_sequential/layers.h"
#include "stage5_training/05_sequential/reference.h"
#include "stage6_cnn/01_conv2d/conv2d.h"
#include "stage6_cnn/02_conv2d_backward/conv2d_backward.h"
#include "stage6_cnn/04_train_cnn/layers.h"

namespace train_cnn {

using sequential::Approximate;
using sequential::at;

Conv2d::Conv2d(const Image& in, size_t filters, size_t kernel, const Sliding& sliding,
               Initial initial)
    : in_(in),
      filters_(filters),
      kernel_(kernel),
      sliding_(sliding),
      initial_(initial),
      out_{filters, 0, 0} {
  sequential::checked_product({in.channels, in.height, in.width}, description());
  sequential::checked_product({filters, in.channels, kernel, kernel}, description());
  const conv2d::Extent extent = conv2d::output_of(problem(1));
  out_.height = extent.height, out_.width = extent.width;
}

std::string Conv2d::description() const {
  const bool plain = sliding_.stride == 1 && sliding_.padding == 0;
  return "Conv2d(" + text_of(in_) + ", " + std::to_string(filters_) + ", " +
         std::to_string(kernel_) + (plain ? ")" : ", " + text_of(sliding_) + ")");
}

size_t Conv2d::outputs(size_t inputs) const {
  check_values(*this, in_, inputs);
  return out_.values();
}

std::vector<Parameter> Conv2d::parameters() const {
  const size_t area = kernel_ * kernel_, fan_in = in_.channels * area, fan_out = filters_ * area;
  const Initial bias = initial_ == Initial::Torch ? Initial::Torch : Initial::Zeros;
  return {{"weight", {filters_, in_.channels, kernel_, kernel_}, initial_, fan_in, fan_out},
          {"bias", {filters_}, bias, fan_in, fan_out}};
}

void Conv2d::bind(std::vector<float*> values, std::vector<float*> gradients) {
  w_ = values[0], bias_ = values[1];
  grad_w_ = gradients[0], grad_bias_ = gradients[1];
}

void Conv2d::reserve(size_t max_batch) {
  forward_ = std::make_unique<conv2d::Workspace>(problem(max_batch));
  backward_ = std::make_unique<conv2d_backward::Workspace>(problem(max_batch));
}

bool Conv2d::fuse(Layer* next) {
  relu_ = dynamic_cast<const sequential::ReLU*>(next) != nullptr;
  return relu_;
}

conv2d::Problem Conv2d::problem(size_t batch) const {
  return {batch,   in_.channels,    in_.height,      in_.width,        filters_,        kernel_,
          kernel_, sliding_.stride, sliding_.stride, sliding_.padding, sliding_.padding};
}

void Conv2d::forward(float* y, const float* x, size_t batch, hipStream_t stream) {
  if (relu_)
    conv2d::forward<activations::Relu>(y, x, w_, bias_, problem(batch), *forward_, stream);
  else
    conv2d::forward<dense::Linear>(y, x, w_, bias_, problem(batch), *forward_, stream);
}

void Conv2d::backward(float* grad_x, const float* grad_y, const float* x, const float*,
                      size_t batch, hipStream_t stream) {
  conv2d_backward::backward({grad_w_, grad_bias_, grad_x}, grad_y, x, w_, problem(batch), 0,
                            *backward_, stream);
}

// ---- In double --------------------------------------------------------------------------------

template <class Visit>
void Conv2d::visit_window(size_t k, size_t pixel, Visit visit) const {
  const size_t top = pixel / out_.width * sliding_.stride,
               left = pixel % out_.width * sliding_.stride;
  for (size_t c = 0; c < in_.channels; ++c)
    for (size_t r = 0; r < kernel_; ++r) {
      const size_t h = top + r - sliding_.padding;  // what lies outside wraps around
      if (h >= in_.height) continue;
      for (size_t s = 0; s < kernel_; ++s) {
        const size_t w = left + s - sliding_.padding;
        if (w < in_.width)
          visit(((k * in_.channels + c) * kernel_ + r) * kernel_ + s,
                (c * in_.height + h) * in_.width + w);
      }
    }
}

// The addition of the bias rounds once more.
Values Conv2d::forward_cpu(HostPass& pass) const {
  const Values& x = pass.x;
  const std::vector<Values>& parameters = pass.parameters;
  const size_t batch = pass.batch;
  const size_t pixels = out_.height * out_.width;
  const double products = static_cast<double>(in_.channels * kernel_ * kernel_);
  Values y;
  y.value.reserve(batch * out_.values()), y.error.reserve(x.error.empty() ? 0 : y.value.capacity());
  for (size_t i = 0; i < batch * out_.values(); ++i) {
    const size_t first = i / out_.values() * in_.values(), k = i / pixels % filters_;
    const Approximate bias = at(parameters[1], k);
    if (x.error.empty()) {
      double sum = bias.value;
      visit_window(k, i % pixels, [&](size_t weight, size_t element) {
        sum += parameters[0].value[weight] * x.value[first + element];
      });
      y.value.push_back(sum);
    } else {
      rounding::ApproximateSum sum;
      visit_window(k, i % pixels, [&](size_t weight, size_t element) {
        sum.add(at(parameters[0], weight), at(x, first + element));
      });
      const Approximate total = sum.worst_case(products, products);
      const double error = total.error + bias.error;
      y.value.push_back(total.value + bias.value);
      y.error.push_back(error + kFloatRoundoff * (std::fabs(y.value.back()) + error));
    }
  }
  return y;
}

namespace {

// Sums of products that come in any order, with their errors or without.
class ErrorSums {
 public:
  ErrorSums(size_t size, bool with_errors) : value_(size), of_(with_errors ? size : 0) {}
  void add(size_t i, Approximate a, Approximate b) {
    value_[i] += a.value * b.value;
    if (!of_.empty()) of_[i].add(a, b);
  }
  // No element is the sum of more than `terms` products.
  Values values(size_t terms) const {
    const double n = static_cast<double>(terms);
    Values result{value_, {}};
    for (const rounding::ApproximateSum& sum : of_)
      result.error.push_back(sum.worst_case(n, n).error);
    return result;
  }

 private:
  std::vector<double> value_;
  std::vector<rounding::ApproximateSum> of_;
};

}  // namespace

// Behind a pooling three of four gradients are exactly 0: nothing comes of them.
Values Conv2d::backward_cpu(std::vector<Values>& gradients, const Values& grad_y,
                            const HostPass& pass) const {
  const Values& x = pass.x;
  const std::vector<Values>& parameters = pass.parameters;
  const size_t batch = pass.batch;
  const size_t pixels = out_.height * out_.width;
  const bool with_errors = !x.error.empty();
  ErrorSums grad_w(parameters[0].value.size(), with_errors), grad_bias(filters_, with_errors);
  ErrorSums grad_x(x.value.size(), with_errors);
  for (size_t i = 0; i < batch * out_.values(); ++i) {
    const Approximate grad = at(grad_y, i);
    if (grad.value == 0 && grad.error == 0) continue;
    const size_t first = i / out_.values() * in_.values(), k = i / pixels % filters_;
    grad_bias.add(k, grad, {1, 0});
    visit_window(k, i % pixels, [&](size_t weight, size_t element) {
      grad_w.add(weight, grad, at(x, first + element));
      grad_x.add(first + element, grad, at(parameters[0], weight));
    });
  }
  gradients.push_back(grad_w.values(batch * pixels));
  gradients.push_back(grad_bias.values(batch * pixels));
  return grad_x.values(filters_ * kernel_ * kernel_);
}

}  // namespace train_cnn
