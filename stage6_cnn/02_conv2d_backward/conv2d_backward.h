// 6.2  conv2d_backward: the gradients of a convolution y = x * w + b, from grad_y, that of its
// output.
//
//   grad_w[k,c,r,s] = sum over n, p, q of grad_y[n,k,p,q] x[n,c,h,w]     h = p stride_h - pad_h + r
//   grad_x[n,c,h,w] = sum over k, r, s of grad_y[n,k,p,q] w[k,c,r,s]     where p, q are whole
//   grad_bias[k]    = sum over n, p, q of grad_y[n,k,p,q]                numbers and within y
//
//   x, grad_x (N,C,H,W)   w, grad_w (K,C,R,S)   grad_bias (K)   grad_y (N,K,P,Q)
//
// Each product w x of the forward pass (step 6.1) gives something back to both of its factors. The
// gradient of x is a convolution of grad_y again. The gradient of the filters is a matrix product
// with few elements and very long sums: the ladder is about how many multiprocessors work on it.
//
// Any problem of step 6.1, all arrays on the device and aligned to 4 bytes; gradients overlap no
// input. Every version gives the same bits on every run of one device. Errors: gpu::Error, and
// std::invalid_argument where a window does not fit, an array that is needed is null, or the
// workspace was made for another problem. A version may leave out terms that it knows to be 0:
// whether 0 times infinity counts is not said.
#pragma once

#include <cstddef>

#include "common/device_parts.h"
#include "common/version.h"
#include "stage6_cnn/01_conv2d/conv2d.h"

namespace conv2d_backward {

using conv2d::Problem;

// Where the gradients go. One that is null is not computed.
struct Gradients {
  float* w;     // (K, C, R, S)
  float* bias;  // (K)
  float* x;     // (N, C, H, W)
};

// The gradients that a workspace is for. That of the bias needs none.
struct Wanted {
  bool x = true, w = true;
};

// Device memory, of `parts` or its own, for `largest` and for problems that differ from it only in
// having fewer images. Two calls that may run at the same time need two.
struct Workspace {
  // What backward() needs.
  explicit Workspace(const Problem& largest, const Wanted& wanted = {},
                     gpu::DeviceParts* parts = nullptr);
  // What any version needs.
  static Workspace for_all_versions(const Problem& largest, const Wanted& wanted = {},
                                    gpu::DeviceParts* parts = nullptr);

  gpu::DeviceArray<float> tiles;   // of winograd, for grad_x
  gpu::DeviceArray<float> slices;  // the sums of each slice of the pixels, for grad_w
};

// Into how many slices `sliced` cuts the pixels of all images, the sums of grad_w: so many that
// each of the multiprocessors has blocks to run, but none of only a few tiles.
size_t count_slices(const Problem& p, unsigned multiprocessors = gpu::multiprocessors());

// The gradients that are wanted, queued on `stream`. grad_w and grad_bias become beta (0 or 1)
// times what they were, unread where it is 0, plus the gradient; grad_x is overwritten.
void launch_direct(const Gradients& to, const float* grad_y, const float* x, const float* w,
                   const Problem& problem, float beta, Workspace& workspace,
                   hipStream_t stream = nullptr);
void launch_implicit_gemm(const Gradients& to, const float* grad_y, const float* x, const float* w,
                          const Problem& problem, float beta, Workspace& workspace,
                          hipStream_t stream = nullptr);
void launch_sliced(const Gradients& to, const float* grad_y, const float* x, const float* w,
                   const Problem& problem, float beta, Workspace& workspace,
                   hipStream_t stream = nullptr);
void launch_winograd(const Gradients& to, const float* grad_y, const float* x, const float* w,
                     const Problem& problem, float beta, Workspace& workspace,
                     hipStream_t stream = nullptr);

// What later steps call: winograd where conv2d::use_winograd() says so, else sliced.
void backward(const Gradients& to, const float* grad_y, const float* x, const float* w,
              const Problem& problem, float beta, Workspace& workspace,
              hipStream_t stream = nullptr);

using Run = void (*)(const Gradients& to, const float* grad_y, const float* x, const float* w,
                     const Problem& problem, float beta, Workspace& workspace, hipStream_t stream);

struct Launch {
  Run run;
  bool (*transforms)(const Problem& p) = nullptr;  // whether it makes grad_x as winograd does
};

inline constexpr Version<Launch> kVersions[] = {
    {"direct", {launch_direct}, "one thread per element of a gradient"},
    {"implicit_gemm",
     {launch_implicit_gemm},
     "two matrix products whose columns are made where they are used"},
    {"sliced", {launch_sliced}, "the filters' sums in slices for all multiprocessors"},
    {"winograd",
     {launch_winograd, conv2d::fits_winograd},
     "3 x 3: the image's in a quarter of the multiplications"},
    {"best", {backward, conv2d::use_winograd}, "the faster of the last two"},
};

}  // namespace conv2d_backward
