// What the kernels know of a problem: its numbers in 32 bits, and how they divide by them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/gpu_runtime.h"
#include "stage6_cnn/01_conv2d/detail/divisor.h"
#include "stage6_cnn/03_maxpool/maxpool.h"

namespace maxpool {

using conv2d::Divisor;

// A problem in numbers of 32 bits. A plane is one channel of one image.
struct Shape {
  unsigned planes, H, W, P, Q, R, S, stride_h, stride_w, pad_h, pad_w;
  Divisor by_H, by_P, by_stride_h, by_stride_w;
};

inline Shape shape_of(const Problem& p) {
  const Extent out = output_of(p);
  const auto narrow = [](size_t n) { return static_cast<unsigned>(n); };
  Shape shape{};
  shape.H = narrow(p.H), shape.W = narrow(p.W);
  shape.P = narrow(out.height), shape.Q = narrow(out.width);
  shape.R = narrow(p.R), shape.S = narrow(p.S);
  shape.stride_h = narrow(p.stride_h), shape.stride_w = narrow(p.stride_w);
  shape.pad_h = narrow(p.pad_h), shape.pad_w = narrow(p.pad_w);
  shape.by_H = Divisor(p.H), shape.by_P = Divisor(out.height);
  shape.by_stride_h = Divisor(p.stride_h), shape.by_stride_w = Divisor(p.stride_w);
  return shape;
}

// Calls launch(first, planes) for all planes: once, unless `items` per plane are more than 32 bits
// can count.
template <class Launch>
inline void for_planes(const Problem& p, size_t items, Launch&& launch) {
  const size_t all = p.N * p.C, most = std::max(((size_t{1} << 31) - 1) / items, size_t{1});
  for (size_t first = 0; first < all; first += most)
    launch(first, static_cast<unsigned>(std::min(most, all - first)));
}

}  // namespace maxpool
