// What the kernels know of a problem, and what they do with a finished sum.
#pragma once

#include <algorithm>

#include "common/gpu_runtime.h"
#include "stage6_cnn/01_conv2d/conv2d.h"

namespace conv2d {

inline constexpr unsigned kBlock = 256;

// A problem in ints. A place within an image is an int, which takes half the registers of a size_t.
struct Geometry {
  int C, H, W, K, R, S, P, Q, stride_h, stride_w, pad_h, pad_w;

  __host__ __device__ int pixels() const { return P * Q; }
  __host__ __device__ int taps() const { return R * S; }
  __host__ __device__ size_t image_of_x() const { return size_t(C) * size_t(H * W); }
  __host__ __device__ size_t image_of_y() const { return size_t(K) * size_t(P * Q); }
};

inline Geometry geometry_of(const Problem& p) {
  const Extent out = output_of(p);
  const auto number = [](size_t size) { return static_cast<int>(size); };
  // A stride that leads out of the padded image is never taken: a shorter one stands for it.
  return {number(p.C),
          number(p.H),
          number(p.W),
          number(p.K),
          number(p.R),
          number(p.S),
          number(out.height),
          number(out.width),
          number(std::min(p.stride_h, p.H + 2 * p.pad_h)),
          number(std::min(p.stride_w, p.W + 2 * p.pad_w)),
          number(p.pad_h),
          number(p.pad_w)};
}

// Whether i is one of [0, length): as an unsigned number a negative one is large.
__device__ inline bool is_inside(int i, int length) {
  return static_cast<unsigned>(i) < static_cast<unsigned>(length);
}
// Whether [h, w] lies in an image of height x width. Both are computed: && would branch.
__device__ inline bool is_inside(int h, int height, int w, int width) {
  return (static_cast<int>(is_inside(h, height)) & static_cast<int>(is_inside(w, width))) != 0;
}

// y = f(sum + bias[k]) while the sum of filter k is still in a register. As an epilogue of step 2.3
// the filter is the row.
template <class Activation>
struct BiasActivation {
  const float* bias;  // null: none
  __device__ float operator()(float sum, size_t k, size_t = 0, const float* = nullptr) const {
    return Activation{}(bias == nullptr ? sum : sum + bias[k]);
  }
};

inline unsigned grid_of(size_t threads, size_t block = kBlock) {
  return static_cast<unsigned>(gpu::ceil_div(threads, block));
}

// Images that one launch takes, so that what it numbers of them in an int stays below `most`.
inline constexpr size_t kMostPlaces = size_t{1} << 30;
inline size_t images_of_launch(size_t per_image, size_t most) {
  return std::max(most / std::max(per_image, size_t{1}), size_t{1});
}

}  // namespace conv2d
