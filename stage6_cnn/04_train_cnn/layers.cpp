// The layers without parameters: Flatten and MaxPool2d.
#include "stage6_cnn/04_train_cnn/layers.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "common/rounding.h"
#include "stage5_training/05_sequential/layers.h"
#include "stage5_training/05_sequential/reference.h"

namespace train_cnn {

using sequential::Approximate;
using sequential::at;

std::string text_of(const Image& image) {
  return "{" + std::to_string(image.channels) + ", " + std::to_string(image.height) + ", " +
         std::to_string(image.width) + "}";
}

std::string text_of(const Sliding& sliding) {
  return "{" + std::to_string(sliding.stride) + ", " + std::to_string(sliding.padding) + "}";
}

void check_values(const Layer& layer, const Image& image, size_t values) {
  if (values != image.values())
    throw std::invalid_argument(layer.description() + " takes images of " +
                                std::to_string(image.values()) + " values, not of " +
                                std::to_string(values));
}

// ---- Flatten ----------------------------------------------------------------------------------

namespace {

void copy(float* to, const float* from, size_t n, hipStream_t stream) {
  if (to != nullptr && n > 0)
    HIP_CHECK(hipMemcpyAsync(to, from, n * sizeof(float), hipMemcpyDeviceToDevice, stream));
}

}  // namespace

bool Flatten::fuse_backward(Layer* before) {
  pool_ = dynamic_cast<MaxPool2d*>(before);
  return pool_ != nullptr;
}

void Flatten::forward(float* y, const float* x, size_t batch, hipStream_t stream) {
  copy(y, x, batch * width_, stream);
}

void Flatten::backward(float* grad_x, const float* grad_y, const float* x, const float*,
                       size_t batch, hipStream_t stream) {
  if (pool_ != nullptr)
    pool_->backward(grad_x, grad_y, nullptr, x, batch, stream);
  else
    copy(grad_x, grad_y, batch * width_, stream);
}

// ---- MaxPool2d --------------------------------------------------------------------------------

MaxPool2d::MaxPool2d(const Image& in, size_t size, const Sliding& sliding)
    : in_(in), size_(size), sliding_(sliding), out_{in.channels, 0, 0} {
  sequential::checked_product({in.channels, in.height, in.width}, description());
  const maxpool::Extent extent = maxpool::output_of(problem(1));
  out_.height = extent.height, out_.width = extent.width;
}

std::string MaxPool2d::description() const {
  const bool plain = sliding_.stride == size_ && sliding_.padding == 0;
  return "MaxPool2d(" + text_of(in_) + ", " + std::to_string(size_) +
         (plain ? ")" : ", " + text_of(sliding_) + ")");
}

size_t MaxPool2d::outputs(size_t inputs) const {
  check_values(*this, in_, inputs);
  return out_.values();
}

void MaxPool2d::reserve(size_t max_batch) {
  argmax_ = gpu::DeviceBuffer<maxpool::Index>(max_batch * out_.values());
}

bool MaxPool2d::fuse(Layer* next) { return dynamic_cast<const Flatten*>(next) != nullptr; }

bool MaxPool2d::fuse_backward(Layer* before) {
  const auto* relu = dynamic_cast<const sequential::ReLU*>(before);
  relu_ = relu != nullptr && !relu->leaves_sums();
  return relu_;
}

void MaxPool2d::forward(float* y, const float* x, size_t batch, hipStream_t stream) {
  maxpool::forward(y, argmax_.data(), x, problem(batch), stream);
}

void MaxPool2d::backward(float* grad_x, const float* grad_y, const float*, const float* y,
                         size_t batch, hipStream_t stream) {
  if (grad_x == nullptr) return;
  if (relu_)
    maxpool::backward_through_relu(grad_x, grad_y, y, argmax_.data(), problem(batch), stream);
  else
    maxpool::backward(grad_x, grad_y, argmax_.data(), problem(batch), stream);
}

maxpool::Problem MaxPool2d::problem(size_t batch) const {
  return {batch, in_.channels,    in_.height,      in_.width,        size_,
          size_, sliding_.stride, sliding_.stride, sliding_.padding, sliding_.padding};
}

template <class Visit>
void MaxPool2d::for_each_window(size_t images, Visit visit) const {
  const size_t pixels = out_.height * out_.width;
  std::vector<size_t> cells;
  for (size_t output = 0; output < images * out_.values(); ++output) {
    const size_t plane = output / pixels, p = output % pixels / out_.width, q = output % out_.width;
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

namespace {

// The first of the largest.
size_t largest_of(const Values& x, const std::vector<size_t>& cells) {
  size_t largest = cells[0];
  for (const size_t cell : cells)
    if (x.value[cell] > x.value[largest]) largest = cell;
  return largest;
}

}  // namespace

Values MaxPool2d::forward_cpu(HostPass& pass) const {
  const Values& x = pass.x;
  Values y;
  for_each_window(pass.batch, [&](size_t, const std::vector<size_t>& cells) {
    y.value.push_back(x.value[largest_of(x, cells)]);
    if (x.error.empty()) return;
    double most = 0;
    for (const size_t cell : cells) most = std::max(most, x.error[cell]);
    y.error.push_back(most);
  });
  return y;
}

Values MaxPool2d::backward_cpu(std::vector<Values>&, const Values& grad_y,
                               const HostPass& pass) const {
  const Values& x = pass.x;
  Values grad_x{std::vector<double>(x.value.size()), std::vector<double>(x.error.size())};
  std::vector<double> terms(x.error.size()), absolute(x.error.size());
  for_each_window(pass.batch, [&](size_t output, const std::vector<size_t>& cells) {
    const Approximate grad = at(grad_y, output);
    const size_t chosen = largest_of(x, cells);
    grad_x.value[chosen] += grad.value;
    if (x.error.empty()) return;
    double reach = x.value[chosen] - x.error[chosen];
    for (const size_t cell : cells) reach = std::max(reach, x.value[cell] - x.error[cell]);
    const auto may_win = [&](size_t cell) {
      const double most = x.value[cell] + x.error[cell];
      return most > reach || (most == reach && cell < chosen);  // of equal ones the first wins
    };
    bool in_doubt = false;
    for (const size_t cell : cells) in_doubt = in_doubt || (cell != chosen && may_win(cell));
    for (const size_t cell : cells) {
      if (cell != chosen && !may_win(cell)) continue;
      grad_x.error[cell] += grad.error + (in_doubt ? std::fabs(grad.value) : 0);
      absolute[cell] += std::fabs(grad.value) + grad.error, ++terms[cell];
    }
  });
  for (size_t i = 0; i < terms.size(); ++i)
    if (terms[i] > 1) grad_x.error[i] += rounding::worst_case(terms[i] - 1, terms[i], absolute[i]);
  return grad_x;
}

void MaxPool2d::decide_otherwise(Values& x, double share) const {
  if (x.error.empty()) return;
  for_each_window(x.value.size() / in_.values(), [&](size_t, const std::vector<size_t>& cells) {
    const size_t largest = largest_of(x, cells);
    for (const size_t cell : cells) {
      const double smaller = x.value[largest] - x.value[cell];
      if (smaller > 0 && smaller <= share * (x.error[largest] + x.error[cell]))
        return std::swap(x.value[largest], x.value[cell]);
    }
  });
}

}  // namespace train_cnn
