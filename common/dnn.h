// The vendor's convolutions, as a peer to hold the course's kernels against: cuDNN where CMake
// found one (COURSE_HAVE_CUDNN; -DCUDNN_ROOT=... says where to look first), else nothing is linked
// and available() is false.
//
// All arrays are float and on the device, in the order of their sizes (N,C,H,W), (K,C,R,S) and
// (N,K,P,Q) without gaps; the work is queued on `stream`, a hipStream_t, in IEEE float: no tf32. A
// failed call, or a call where there is no library, throws std::runtime_error. The library's handle
// is made at the first call and belongs to the device that is current then.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace dnn {

const char* name();  // "cuDNN", or "" where there is none
bool available();

struct Shape {
  std::size_t N, C, H, W, K, R, S, stride_h, stride_w, pad_h, pad_w;
};

// What a convolution of one shape and its gradients need. The first call of each function times all
// of the library's algorithms and keeps the fastest, with the memory that it wants.
class Convolution {
 public:
  explicit Convolution(const Shape& shape);
  ~Convolution();
  Convolution(const Convolution&) = delete;
  Convolution& operator=(const Convolution&) = delete;

  // y = x * w, without a bias.
  void forward(float* y, const float* x, const float* w, void* stream = nullptr);
  // y += bias, which has an element for each channel of y.
  void add_bias(float* y, const float* bias, void* stream = nullptr);
  void backward_data(float* grad_x, const float* grad_y, const float* w, void* stream = nullptr);
  void backward_filter(float* grad_w, const float* grad_y, const float* x, void* stream = nullptr);
  void backward_bias(float* grad_bias, const float* grad_y, void* stream = nullptr);

  // The algorithms that were kept so far, as the library names them: "fft".
  std::string forward_algorithm() const, data_algorithm() const, filter_algorithm() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dnn
