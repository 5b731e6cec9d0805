// The loader for windows whose shape the compiler knows.
#pragma once

#include "common/gpu.h"
#include "stage6_cnn/01_conv2d/detail/any_window.h"

namespace conv2d {

// A window whose shape is a constant: a tile is the window of one channel. Which of its elements
// lie in the image is the same for every channel, and is computed once, a bit for each. An
// element's distance from the window's corner is a constant plus a multiple of the image's width.
template <class Shape, int kRows, int kCols>
class Loader<Shape, Window<kRows, kCols>> : public Held<Shape> {
  using Base = Held<Shape>;
  static constexpr int kTaps = kRows * kCols;
  static_assert(kTaps == Shape::kTileK && kTaps <= 31, "a tile is a window");

 public:
  __device__ Loader(const Windows& p, int first_map, int first_pixel, int thread)
      : filter_(p.filter + size_t(first_map) * p.filter_map),
        channels_(p.channels),
        width_(p.width),
        area_(p.height * p.width),
        filter_channel_(p.filter_channel) {
    GPU_UNROLL
    for (int round = 0; round < Base::kRounds; ++round) {
      const int e = thread + round * Shape::kThreads;
      const int tap = e % Shape::kTileK, map = e / Shape::kTileK;
      offset_[round] = kOutside;
      if (map < Shape::kTileM && first_map + map < p.maps)
        offset_[round] =
            map * p.filter_map + tap / kCols * p.filter_row + tap % kCols * p.filter_col;
    }
    GPU_UNROLL
    for (int i = 0; i < Base::kPixels; ++i) {
      const Windows::Corner corner = p.corner_of(first_pixel + thread + i * Shape::kThreads);
      corner_[i] = corner.image + (corner.h == kOutside ? 0 : corner.h * width_ + corner.w);
      inside_[i] = 0;
      for (int tap = 0; tap < kTaps; ++tap)
        if (is_inside(corner.h + tap / kCols, p.height, corner.w + tap % kCols, p.width))
          inside_[i] |= 1u << tap;
    }
  }
  __device__ int tiles() const { return channels_; }

  // The next channel.
  __device__ void load() {
    GPU_UNROLL
    for (int round = 0; round < Base::kRounds; ++round)
      this->filter[round] = offset_[round] != kOutside ? filter_[offset_[round]] : 0;
    filter_ += filter_channel_;
    GPU_UNROLL
    for (int i = 0; i < Base::kPixels; ++i) {
      GPU_UNROLL
      for (int tap = 0; tap < kTaps; ++tap)
        this->from[i][tap] =
            inside_[i] >> tap & 1u ? corner_[i][tap / kCols * width_ + tap % kCols] : 0;
      corner_[i] += area_;
    }
  }

 private:
  const float* filter_;  // of the first map, the next channel
  const float* corner_[Base::kPixels];
  unsigned inside_[Base::kPixels];
  int offset_[Base::kRounds];
  int channels_, width_, area_, filter_channel_;
};

}  // namespace conv2d
