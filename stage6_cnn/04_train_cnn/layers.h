// The layers of a convolutional network for step 5.5's Sequential:
//
//   Sequential model{Conv2d({1, 28, 28}, 8, 3, {1, 1}), ReLU(), MaxPool2d({8, 28, 28}, 2),
//                    Flatten(), Linear(8 * 14 * 14, 10)};
//
// To the model a sample is a row of values. What they are beyond their number, the pixels of one
// channel after the other, is said to each layer when it is made. No kernel is written here: a
// layer is what steps 6.1 to 6.3 have taught, with the memory that it needs between the way there
// and the way back.
//
// In a fused model ReLU goes into the convolution before it, and its way back into the pooling
// behind it: the one cell of a window that gets a gradient is the window's largest, so that ReLU's
// slope there is that at y. Flatten costs nothing on either way.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "common/device_buffer.h"
#include "stage5_training/05_sequential/layer.h"
#include "stage6_cnn/01_conv2d/conv2d.h"
#include "stage6_cnn/02_conv2d_backward/conv2d_backward.h"
#include "stage6_cnn/03_maxpool/maxpool.h"

namespace train_cnn {

using sequential::HostPass;
using sequential::Initial;
using sequential::Layer;
using sequential::Parameter;
using sequential::Values;

// A sample's values: (channels, height, width), row-major.
struct Image {
  size_t channels, height, width;
  size_t values() const { return channels * height * width; }
};

// How a window moves over an image, down as across.
struct Sliding {
  size_t stride = 1, padding = 0;
};

class MaxPool2d;

// y = x: images become plain values, which they are in memory already. The pooling's backward()
// does not ask for its x, and its y is what Flatten gets as x: called from here it reads grad_y as
// it is, and no copy is made.
class Flatten : public Layer {
 public:
  std::string description() const override { return "Flatten()"; }
  void connect(size_t inputs) override { width_ = inputs; }
  bool fuse_backward(Layer* before) override;

  void forward(float* y, const float* x, size_t batch, hipStream_t stream) override;
  void backward(float* grad_x, const float* grad_y, const float* x, const float* y, size_t batch,
                hipStream_t stream) override;

  Values forward_cpu(HostPass& pass) const override { return pass.x; }
  Values backward_cpu(std::vector<Values>&, const Values& grad_y, const HostPass&) const override {
    return grad_y;
  }

 private:
  size_t width_ = 0;
  MaxPool2d* pool_ = nullptr;  // whose backward() is called here
};

// y = x * w + bias: step 6.1. What torch.nn.Conv2d is, whose names and shapes the parameters have.
class Conv2d : public Layer {
 public:
  // Filters of kernel x kernel over images `in`. Throws std::invalid_argument where a size is 0 or
  // too large, or the filters do not fit the image.
  Conv2d(const Image& in, size_t filters, size_t kernel, const Sliding& sliding = {},
         Initial initial = Initial::ByNext);

  // What a sample of y is.
  const Image& image() const { return out_; }

  std::string description() const override;
  size_t inputs() const override { return in_.values(); }
  size_t outputs(size_t inputs) const override;
  // A filter's output is made of C R S inputs, and an input goes to K R S outputs.
  std::vector<Parameter> parameters() const override;

  void bind(std::vector<float*> values, std::vector<float*> gradients) override;
  void reserve(size_t max_batch) override;
  bool fuse(Layer* next) override;

  void forward(float* y, const float* x, size_t batch, hipStream_t stream) override;
  void backward(float* grad_x, const float* grad_y, const float* x, const float*, size_t batch,
                hipStream_t stream) override;

  Values forward_cpu(HostPass& pass) const override;
  Values backward_cpu(std::vector<Values>& gradients, const Values& grad_y,
                      const HostPass& pass) const override;

 private:
  conv2d::Problem problem(size_t batch) const;
  // Calls visit(w, x) for each product in an image's output [k, pixel]: where its factors lie among
  // the filters and in the image.
  template <class Visit>
  void visit_window(size_t k, size_t pixel, Visit visit) const;

  Image in_;
  size_t filters_, kernel_;
  Sliding sliding_;
  Initial initial_;
  Image out_;
  const float *w_ = nullptr, *bias_ = nullptr;
  float *grad_w_ = nullptr, *grad_bias_ = nullptr;
  bool relu_ = false;  // forward() does the next layer's work
  std::unique_ptr<conv2d::Workspace> forward_;
  std::unique_ptr<conv2d_backward::Workspace> backward_;
};

// y = the largest of each window: step 6.3. What torch.nn.MaxPool2d is.
class MaxPool2d : public Layer {
 public:
  // Windows of size x size, side by side. Throws std::invalid_argument where a size is 0 or too
  // large, or the windows do not fit the image.
  MaxPool2d(const Image& in, size_t size) : MaxPool2d(in, size, {size, 0}) {}
  MaxPool2d(const Image& in, size_t size, const Sliding& sliding);

  // What a sample of y is.
  const Image& image() const { return out_; }

  std::string description() const override;
  size_t inputs() const override { return in_.values(); }
  size_t outputs(size_t inputs) const override;

  void reserve(size_t max_batch) override;
  // What it writes is flat already.
  bool fuse(Layer* next) override;
  // A ReLU that sums its gradients for the layer before it has to do so itself.
  bool fuse_backward(Layer* before) override;

  void forward(float* y, const float* x, size_t batch, hipStream_t stream) override;
  void backward(float* grad_x, const float* grad_y, const float*, const float* y, size_t batch,
                hipStream_t stream) override;

  // A maximum moves by no more than the value that moves most.
  Values forward_cpu(HostPass& pass) const override;
  // The gradient goes to the first of the largest cells in double. The float version may take
  // another one whose value, as far as both may be off, reaches that of the largest: then neither
  // is known to better than the gradient itself.
  Values backward_cpu(std::vector<Values>&, const Values& grad_y,
                      const HostPass& pass) const override;
  // The largest of a window, and one that is nearly as large, change places.
  void decide_otherwise(Values& x, double share) const override;

 private:
  maxpool::Problem problem(size_t batch) const;
  // Calls visit(output, cells) for every output of so many images, with the cells of x in its
  // window, in their order.
  template <class Visit>
  void for_each_window(size_t images, Visit visit) const;

  Image in_;
  size_t size_;
  Sliding sliding_;
  Image out_;
  gpu::DeviceBuffer<maxpool::Index> argmax_;
  bool relu_ = false;  // backward() does that of the ReLU before
};

// "{1, 28, 28}", and "Conv2d" with what it is made of: "Conv2d({1, 28, 28}, 8, 3, {1, 1})".
std::string text_of(const Image& image);
std::string text_of(const Sliding& sliding);

// Throws std::invalid_argument where the values that come are not those of such an image.
void check_values(const Layer& layer, const Image& image, size_t values);

}  // namespace train_cnn
