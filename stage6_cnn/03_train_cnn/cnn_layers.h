// The layers of a convolutional network for step 5.5's Sequential:
//
//   Sequential model{Conv2d({1, 28, 28}, 8, 3, {1, 1}), ReLU(), MaxPool2d({8, 28, 28}, 2),
//                    Flatten(), Linear(8 * 14 * 14, 10)};
//
// To the model a sample is a row of values. What they are beyond their number, the pixels of one
// channel after the other, is said to each layer when it is made. No kernel is written here: a
// layer is what steps 6.1 and 6.2 have taught, with the memory that it needs between the way there
// and the way back.
//
// In a fused model ReLU goes into the convolution before it, and its way back into the pooling
// behind it: the one cell of a window that gets a gradient is the window's largest, so that ReLU's
// slope there is that at y. Flatten costs nothing on either way.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/gpu.h"
#include "common/rounding.h"
#include "stage0_infra/04_device_matrix/device_matrix.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage4_forward/01_dense/dense.h"
#include "stage5_training/05_sequential/reference.h"
#include "stage5_training/05_sequential/sequential.h"
#include "stage6_cnn/01_conv2d/conv2d.h"
#include "stage6_cnn/02_maxpool/maxpool.h"

namespace train_cnn {

using dense::Values;
using device_matrix::DeviceBuffer;
using sequential::Approximate;
using sequential::at;
using sequential::Initial;
using sequential::Layer;
using sequential::Parameter;

// A sample's values: (channels, height, width), row-major.
struct Image {
  size_t channels, height, width;
  size_t values() const { return channels * height * width; }
};

// How a window moves over an image, down as across.
struct Sliding {
  size_t stride = 1, padding = 0;
};

inline std::string text_of(const Image& image) {
  return "{" + std::to_string(image.channels) + ", " + std::to_string(image.height) + ", " +
         std::to_string(image.width) + "}";
}

// Throws std::invalid_argument where the values that come are not those of such an image.
inline void check_values(const Layer& layer, const Image& image, size_t values) {
  if (values != image.values())
    throw std::invalid_argument(layer.description() + " takes images of " +
                                std::to_string(image.values()) + " values, not of " +
                                std::to_string(values));
}

// ---- Flatten ----------------------------------------------------------------------------------

class MaxPool2d;

// y = x: images become plain values, which they are in memory already. What a MaxPool2d before it
// makes of that is said there.
class Flatten : public Layer {
 public:
  std::string description() const override { return "Flatten()"; }
  void connect(size_t inputs) override { width_ = inputs; }
  bool fuse_backward(Layer* before) override;

  void forward(float* y, const float* x, size_t batch, hipStream_t stream) override {
    copy(y, x, batch, stream);
  }
  void backward(float* grad_x, const float* grad_y, const float* x, const float* y, size_t batch,
                hipStream_t stream) override;

  Values forward_cpu(const Values& x, const std::vector<std::vector<float>>&,
                     size_t) const override {
    return x;
  }
  Values backward_cpu(std::vector<Values>&, const Values& grad_y, const Values&,
                      const std::vector<std::vector<float>>&, size_t) const override {
    return grad_y;
  }

 private:
  void copy(float* to, const float* from, size_t batch, hipStream_t stream) const {
    if (to != nullptr && batch > 0)
      HIP_CHECK(hipMemcpyAsync(to, from, batch * width_ * sizeof(float), hipMemcpyDeviceToDevice,
                               stream));
  }

  size_t width_ = 0;
  MaxPool2d* pool_ = nullptr;  // whose backward() is called here
};

// ---- Conv2d -----------------------------------------------------------------------------------

// Products a b that add up to elements, in double, and how far a float version's sums may be off:
// what comes in wrong is multiplied by the other factor, and the sum itself is off by
// rounding::worst_case.
class Sums {
 public:
  explicit Sums(size_t size) : sum_(size), absolute_(size), inherited_(size) {}

  void add(size_t i, Approximate a, Approximate b) {
    const double size_a = std::fabs(a.value), size_b = std::fabs(b.value);
    sum_[i] += a.value * b.value;
    absolute_[i] += (size_a + a.error) * (size_b + b.error);
    inherited_[i] += size_a * b.error + a.error * (size_b + b.error);
  }
  // No element is the sum of more than `terms` products.
  Values values(size_t terms) const {
    const double n = static_cast<double>(terms);
    Values result{sum_, inherited_};
    for (size_t i = 0; i < sum_.size(); ++i)
      result.error[i] += rounding::worst_case(n, n, absolute_[i]);
    return result;
  }

 private:
  std::vector<double> sum_, absolute_, inherited_;
};

// y = x * w + bias: step 6.1. What torch.nn.Conv2d is, whose names and shapes the parameters have.
class Conv2d : public Layer {
 public:
  // Filters of kernel x kernel over images `in`. Throws std::invalid_argument where a size is 0 or
  // too large, or the filters do not fit the image.
  Conv2d(const Image& in, size_t filters, size_t kernel, const Sliding& sliding = {},
         Initial initial = Initial::ByNext)
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

  // What a sample of y is.
  const Image& image() const { return out_; }

  std::string description() const override {
    const bool plain = sliding_.stride == 1 && sliding_.padding == 0;
    return "Conv2d(" + text_of(in_) + ", " + std::to_string(filters_) + ", " +
           std::to_string(kernel_) +
           (plain ? ")"
                  : ", {" + std::to_string(sliding_.stride) + ", " +
                        std::to_string(sliding_.padding) + "})");
  }
  size_t inputs() const override { return in_.values(); }
  size_t outputs(size_t inputs) const override {
    check_values(*this, in_, inputs);
    return out_.values();
  }
  // A filter's output is made of C R S inputs, and an input goes to K R S outputs.
  std::vector<Parameter> parameters() const override {
    const size_t area = kernel_ * kernel_, fan_in = in_.channels * area, fan_out = filters_ * area;
    const Initial bias = initial_ == Initial::Torch ? Initial::Torch : Initial::Zeros;
    return {{"weight", {filters_, in_.channels, kernel_, kernel_}, initial_, fan_in, fan_out},
            {"bias", {filters_}, bias, fan_in, fan_out}};
  }

  void bind(std::vector<float*> values, std::vector<float*> gradients) override {
    w_ = values[0], bias_ = values[1];
    grad_w_ = gradients[0], grad_bias_ = gradients[1];
  }
  void reserve(size_t max_batch) override {
    workspace_ = std::make_unique<conv2d::Workspace>(problem(max_batch));
  }
  bool fuse(Layer* next) override {
    relu_ = dynamic_cast<const sequential::ReLU*>(next) != nullptr;
    return relu_;
  }

  void forward(float* y, const float* x, size_t batch, hipStream_t stream) override {
    if (relu_)
      conv2d::forward<activations::Relu>(y, x, w_, bias_, problem(batch), stream);
    else
      conv2d::forward<dense::Linear>(y, x, w_, bias_, problem(batch), stream);
  }
  void backward(float* grad_x, const float* grad_y, const float* x, const float*, size_t batch,
                hipStream_t stream) override {
    conv2d::backward({grad_w_, grad_bias_, grad_x}, grad_y, x, w_, problem(batch), 0, *workspace_,
                     stream);
  }

  Values forward_cpu(const Values& x, const std::vector<std::vector<float>>& values,
                     size_t batch) const override {
    return conv2d::conv2d_cpu<dense::Linear>(x, values[0], values[1], problem(batch),
                                             conv2d::all_planes(batch * filters_));
  }
  Values backward_cpu(std::vector<Values>& gradients, const Values& grad_y, const Values& x,
                      const std::vector<std::vector<float>>& values, size_t batch) const override {
    const size_t pixels = out_.height * out_.width, area = in_.height * in_.width;
    const size_t taps = kernel_ * kernel_;
    Sums grad_w(values[0].size()), grad_bias(filters_), grad_x(x.value.size());
    for (size_t n = 0; n < batch; ++n)
      for (size_t k = 0; k < filters_; ++k) {
        const size_t of_y = (n * filters_ + k) * pixels;
        for (size_t i = 0; i < pixels; ++i) grad_bias.add(k, at(grad_y, of_y + i), {1, 0});
        for (size_t c = 0; c < in_.channels; ++c) {
          const size_t of_x = (n * in_.channels + c) * area, of_w = (k * in_.channels + c) * taps;
          conv2d::for_each_meeting(
              problem(batch), [&](size_t p, size_t q, size_t r, size_t s, size_t h, size_t w) {
                const Approximate grad = at(grad_y, of_y + p * out_.width + q);
                const size_t element = of_x + h * in_.width + w, weight = of_w + r * kernel_ + s;
                grad_w.add(weight, grad, at(x, element));
                grad_x.add(element, grad, {static_cast<double>(values[0][weight]), 0});
              });
        }
      }
    gradients.push_back(grad_w.values(batch * pixels));
    gradients.push_back(grad_bias.values(batch * pixels));
    return grad_x.values(filters_ * taps);
  }

 private:
  conv2d::Problem problem(size_t batch) const {
    return {batch,   in_.channels,    in_.height,      in_.width,        filters_,        kernel_,
            kernel_, sliding_.stride, sliding_.stride, sliding_.padding, sliding_.padding};
  }

  Image in_;
  size_t filters_, kernel_;
  Sliding sliding_;
  Initial initial_;
  Image out_;
  const float *w_ = nullptr, *bias_ = nullptr;
  float *grad_w_ = nullptr, *grad_bias_ = nullptr;
  bool relu_ = false;  // forward() does the next layer's work
  std::unique_ptr<conv2d::Workspace> workspace_;
};

// ---- MaxPool2d --------------------------------------------------------------------------------

// y = the largest of each window: step 6.2. What torch.nn.MaxPool2d is.
class MaxPool2d : public Layer {
 public:
  // Windows of size x size, side by side. Throws std::invalid_argument where a size is 0 or too
  // large, or the windows do not fit the image.
  MaxPool2d(const Image& in, size_t size) : MaxPool2d(in, size, {size, 0}) {}
  MaxPool2d(const Image& in, size_t size, const Sliding& sliding)
      : in_(in), size_(size), sliding_(sliding), out_{in.channels, 0, 0} {
    sequential::checked_product({in.channels, in.height, in.width}, description());
    const maxpool::Extent extent = maxpool::output_of(problem(1));
    out_.height = extent.height, out_.width = extent.width;
  }

  // What a sample of y is.
  const Image& image() const { return out_; }

  std::string description() const override {
    const bool plain = sliding_.stride == size_ && sliding_.padding == 0;
    return "MaxPool2d(" + text_of(in_) + ", " + std::to_string(size_) +
           (plain ? ")"
                  : ", {" + std::to_string(sliding_.stride) + ", " +
                        std::to_string(sliding_.padding) + "})");
  }
  size_t inputs() const override { return in_.values(); }
  size_t outputs(size_t inputs) const override {
    check_values(*this, in_, inputs);
    return out_.values();
  }

  void reserve(size_t max_batch) override {
    argmax_ = DeviceBuffer<maxpool::Index>(max_batch * out_.values());
  }
  // What it writes is flat already.
  bool fuse(Layer* next) override { return dynamic_cast<const Flatten*>(next) != nullptr; }
  // A ReLU that sums its gradients for the layer before it has to do so itself.
  bool fuse_backward(Layer* before) override {
    const auto* relu = dynamic_cast<const sequential::ReLU*>(before);
    relu_ = relu != nullptr && !relu->leaves_sums();
    return relu_;
  }

  void forward(float* y, const float* x, size_t batch, hipStream_t stream) override {
    maxpool::forward(y, argmax_.data(), x, problem(batch), stream);
  }
  void backward(float* grad_x, const float* grad_y, const float*, const float* y, size_t batch,
                hipStream_t stream) override {
    if (grad_x == nullptr) return;
    if (relu_)
      maxpool::backward_through_relu(grad_x, grad_y, y, argmax_.data(), problem(batch), stream);
    else
      maxpool::backward(grad_x, grad_y, argmax_.data(), problem(batch), stream);
  }

  // A maximum moves by no more than the value that moves most.
  Values forward_cpu(const Values& x, const std::vector<std::vector<float>>&,
                     size_t batch) const override {
    Values y;
    for_each_window(batch, [&](size_t, const std::vector<size_t>& cells) {
      Approximate largest = at(x, cells[0]);
      for (const size_t cell : cells) {
        largest.value = std::max(largest.value, x.value[cell]);
        largest.error = std::max(largest.error, x.error[cell]);
      }
      y.value.push_back(largest.value), y.error.push_back(largest.error);
    });
    return y;
  }
  // The gradient goes to the first of the largest cells in double. The float version may take
  // another one whose value, as far as both may be off, reaches that of the largest: then neither
  // is known to better than the gradient itself.
  Values backward_cpu(std::vector<Values>&, const Values& grad_y, const Values& x,
                      const std::vector<std::vector<float>>&, size_t batch) const override {
    Values grad_x{std::vector<double>(x.value.size()), std::vector<double>(x.value.size())};
    std::vector<double> terms(x.value.size()), absolute(x.value.size());
    for_each_window(batch, [&](size_t output, const std::vector<size_t>& cells) {
      const Approximate grad = at(grad_y, output);
      size_t chosen = cells[0];
      double reach = x.value[chosen] - x.error[chosen];
      for (const size_t cell : cells) {
        if (x.value[cell] > x.value[chosen]) chosen = cell;
        reach = std::max(reach, x.value[cell] - x.error[cell]);
      }
      const auto may_win = [&](size_t cell) {
        const double most = x.value[cell] + x.error[cell];
        return most > reach || (most == reach && cell < chosen);  // of equal ones the first wins
      };
      bool in_doubt = false;
      for (const size_t cell : cells) in_doubt = in_doubt || (cell != chosen && may_win(cell));
      for (const size_t cell : cells) {
        if (cell != chosen && !may_win(cell)) continue;
        grad_x.value[cell] += cell == chosen ? grad.value : 0;
        grad_x.error[cell] += grad.error + (in_doubt ? std::fabs(grad.value) : 0);
        absolute[cell] += std::fabs(grad.value) + grad.error, ++terms[cell];
      }
    });
    for (size_t i = 0; i < terms.size(); ++i)
      if (terms[i] > 1)
        grad_x.error[i] += rounding::worst_case(terms[i] - 1, terms[i], absolute[i]);
    return grad_x;
  }

 private:
  maxpool::Problem problem(size_t batch) const {
    return {batch, in_.channels,    in_.height,      in_.width,        size_,
            size_, sliding_.stride, sliding_.stride, sliding_.padding, sliding_.padding};
  }
  // Calls visit(output, cells) for every output with the cells of x in its window, in their order.
  template <class Visit>
  void for_each_window(size_t batch, Visit&& visit) const {
    const size_t pixels = out_.height * out_.width;
    std::vector<size_t> cells;
    for (size_t output = 0; output < batch * out_.values(); ++output) {
      const size_t plane = output / pixels, p = output % pixels / out_.width,
                   q = output % out_.width;
      cells.clear();
      for (size_t r = 0; r < size_; ++r)
        for (size_t s = 0; s < size_; ++s) {  // what lies outside wraps around to large numbers
          const size_t h = p * sliding_.stride + r - sliding_.padding;
          const size_t w = q * sliding_.stride + s - sliding_.padding;
          if (h < in_.height && w < in_.width)
            cells.push_back((plane * in_.height + h) * in_.width + w);
        }
      visit(output, cells);
    }
  }

  Image in_;
  size_t size_;
  Sliding sliding_;
  Image out_;
  DeviceBuffer<maxpool::Index> argmax_;
  bool relu_ = false;  // backward() does that of the ReLU before
};

// The pooling's backward() does not ask for its x, and its y is what Flatten gets as x: called from
// here it reads grad_y as it is, and no copy is made.
inline bool Flatten::fuse_backward(Layer* before) {
  pool_ = dynamic_cast<MaxPool2d*>(before);
  return pool_ != nullptr;
}

inline void Flatten::backward(float* grad_x, const float* grad_y, const float* x, const float*,
                              size_t batch, hipStream_t stream) {
  if (pool_ != nullptr)
    pool_->backward(grad_x, grad_y, nullptr, x, batch, stream);
  else
    copy(grad_x, grad_y, batch, stream);
}

}  // namespace train_cnn
