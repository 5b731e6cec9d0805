// How a block of the implicit product brings its tiles to shared memory: elements of the filters,
// and elements of x where the columns would have them.
#pragma once

#include "common/gpu.h"
#include "stage2_matrix/03_gemm/detail/tile_loader.h"
#include "stage6_cnn/01_conv2d/detail/windows.h"

namespace conv2d {

// The shape of the window, as the compiler knows it: Window<3, 3>, or AnyWindow where it does not.
template <int rows, int cols>
struct Window {
  static constexpr int kTaps = rows * cols;
};
struct AnyWindow {};

// What one thread carries of a tile of lines: elements of the filters, and its pixels' elements of
// `from`. A loader's load() takes the next tile into these registers; store() puts them into shared
// memory.
template <class Shape>
struct Held {
  static constexpr int kElements = Shape::kTileM * Shape::kTileK;
  static constexpr int kRounds = (kElements + Shape::kThreads - 1) / Shape::kThreads;
  static constexpr int kPixels = Shape::kTileN / Shape::kThreads;
  static_assert(kPixels * Shape::kThreads == Shape::kTileN, "whole pixels for every thread");

  float filter[kRounds];               // element thread + round * kThreads, lines side by side
  float from[kPixels][Shape::kTileK];  // pixel thread + p * kThreads

  __device__ void store(gemm::Tiles<Shape>& tiles, int thread) const {
    GPU_UNROLL
    for (int round = 0; round < kRounds; ++round) {
      const int e = thread + round * Shape::kThreads;
      if (kElements % Shape::kThreads == 0 || e < kElements)
        tiles.a[e % Shape::kTileK][e / Shape::kTileK] = filter[round];
    }
    GPU_UNROLL
    for (int p = 0; p < kPixels; ++p) {
      GPU_UNROLL
      for (int line = 0; line < Shape::kTileK; ++line)
        tiles.b[line][thread + p * Shape::kThreads] = from[p][line];
    }
  }
};

// Any window: each line's channel, row and column are computed where they are needed, and each
// element's place is compared with the image's borders.
template <class Shape, class Window>
class Loader : public Held<Shape> {
  using Base = Held<Shape>;

 public:
  __device__ Loader(const Windows& windows, int first_map, int first_pixel, int thread)
      : p_(windows), first_map_(first_map), thread_(thread) {
    GPU_UNROLL
    for (int p = 0; p < Base::kPixels; ++p)
      corner_[p] = p_.corner_of(first_pixel + thread + p * Shape::kThreads);
  }
  __device__ int tiles() const { return (p_.lines() + Shape::kTileK - 1) / Shape::kTileK; }

  // The next tile. Behind the last line there are only zeros.
  __device__ void load() {
    static_assert(Shape::kThreads % Shape::kTileK == 0, "a thread's elements are of one line");
    const Line own = line(first_line_ + thread_ % Shape::kTileK);
    GPU_UNROLL
    for (int round = 0; round < Base::kRounds; ++round) {
      const int map = first_map_ + (thread_ + round * Shape::kThreads) / Shape::kTileK;
      const bool inside = own.inside && map < p_.maps;
      this->filter[round] = inside ? p_.filter[map * p_.filter_map + own.in_filter] : 0;
    }
    GPU_UNROLL
    for (int k = 0; k < Shape::kTileK; ++k) {
      const Line shared = line(first_line_ + k);
      GPU_UNROLL
      for (int p = 0; p < Base::kPixels; ++p) {
        const int h = corner_[p].h + shared.r, w = corner_[p].w + shared.s;
        const bool inside = shared.inside && is_inside(h, p_.height, w, p_.width);
        this->from[p][k] = inside ? corner_[p].image[(shared.c * p_.height + h) * p_.width + w] : 0;
      }
    }
    first_line_ += Shape::kTileK;
  }

 private:
  struct Line {
    int c, r, s, in_filter;
    bool inside;
  };
  __device__ Line line(int number) const {
    const bool inside = number < p_.lines();
    if (!inside) number = 0;
    const int c = p_.by_taps.quotient(number), tap = p_.by_taps.remainder(number, c);
    const int r = p_.by_taps_w.quotient(tap), s = p_.by_taps_w.remainder(tap, r);
    return {c, r, s, c * p_.filter_channel + r * p_.filter_row + s * p_.filter_col, inside};
  }

  const Windows& p_;
  int first_map_, thread_, first_line_ = 0;
  typename Windows::Corner corner_[Base::kPixels];
};

}  // namespace conv2d
