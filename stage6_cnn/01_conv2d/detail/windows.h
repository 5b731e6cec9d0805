// Sums over windows, which a convolution is forwards and, for the gradient of x, backwards
// (step 6.2).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/gpu_runtime.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage4_forward/01_dense/dense.h"
#include "stage6_cnn/01_conv2d/detail/divisor.h"
#include "stage6_cnn/01_conv2d/detail/geometry.h"

namespace conv2d {

inline constexpr int kOutside = -(1 << 30);  // a row or column that no image has, + r too

// Each of `maps` filters slides over `from`: forwards `from` is x and `to` is y.
//
//   to[n, m, i, j] = sum over c, r, s of filter[m, c, r, s] *
//                    from[n, c, i step_h + first_h + r, j step_w + first_w + s]
//
// As a matrix product it has a row for each map and a column for each pixel (n, i, j), and sums
// over the lines (c, r, s). The distances between neighbours in `filter` and in `to` are numbers of
// their own, which may be negative.
struct Windows {
  const float* from;
  int channels, height, width;  // of from
  int rows, cols;               // of the sums
  int step_h, step_w, first_h, first_w;

  const float* filter;
  int maps, taps_h, taps_w;
  int filter_map, filter_channel, filter_row, filter_col;  // from one to the next

  float* to;
  int to_map, to_row, to_col;  // from one to the next
  bool whole;  // pixels of `to` are neighbours, fours of them begin at multiples of 16 bytes

  int images = 0;
  int pixels = 0;  // of all images
  Divisor by_pixels, by_cols, by_taps, by_taps_w;

  // The number of columns and all divisors, for some images.
  void prepare(int image_count) {
    images = image_count, pixels = images * rows * cols;
    by_pixels = Divisor(rows * cols), by_cols = Divisor(cols);
    by_taps = Divisor(taps_h * taps_w), by_taps_w = Divisor(taps_w);
  }
  __host__ __device__ int lines() const { return channels * taps_h * taps_w; }
  size_t image_of_from() const { return size_t(channels) * size_t(height * width); }

  // Where in `from` a pixel's window begins, of channel 0: a place that may lie outside.
  struct Corner {
    const float* image;
    int h, w;
  };
  __device__ Corner corner_of(int pixel) const {
    const bool is_pixel = pixel < pixels;
    const int number = is_pixel ? pixel : 0;
    const int n = by_pixels.quotient(number), place = by_pixels.remainder(number, n);
    const int i = by_cols.quotient(place), j = by_cols.remainder(place, i);
    return {from + size_t(n) * size_t(channels * height * width),
            is_pixel ? i * step_h + first_h : kOutside, j * step_w + first_w};
  }
  // Where a pixel's sum for map 0 goes.
  __device__ float* sum_of(int pixel) const {
    const int n = by_pixels.quotient(pixel), place = by_pixels.remainder(pixel, n);
    const int i = by_cols.quotient(place), j = by_cols.remainder(place, i);
    return to +
           (size_t(n) * size_t(maps) * size_t(to_map) + size_t(i) * to_row + size_t(j) * to_col);
  }
};

// The forward pass: windows of x, as y needs them.
inline Windows windows_of(float* y, const float* x, const float* w, const Problem& problem) {
  const Geometry g = geometry_of(problem);
  Windows p{};
  p.from = x, p.channels = g.C, p.height = g.H, p.width = g.W;
  p.rows = g.P, p.cols = g.Q;
  p.step_h = g.stride_h, p.step_w = g.stride_w, p.first_h = -g.pad_h, p.first_w = -g.pad_w;
  p.filter = w, p.maps = g.K, p.taps_h = g.R, p.taps_w = g.S;
  p.filter_map = g.C * g.taps(), p.filter_channel = g.taps(), p.filter_row = g.S, p.filter_col = 1;
  p.to = y, p.to_map = g.pixels(), p.to_row = g.Q, p.to_col = 1;
  p.whole = g.pixels() % 4 == 0 && reinterpret_cast<std::uintptr_t>(y) % sizeof(float4) == 0;
  return p;
}

// to = epilogue(sums), as versions/right_tile.hip and versions/winograd.hip compute them; compiled
// there for both epilogues. `winograd` takes `room` elements of device memory at `memory`, enough
// for the filters and one image (problem.h), and only windows that fits_winograd() takes.
using BiasLinear = BiasActivation<dense::Linear>;
using BiasRelu = BiasActivation<activations::Relu>;
template <class Epilogue>
void launch_right_tile(const Windows& windows, size_t images, const Epilogue& epilogue,
                       hipStream_t stream);
template <class Epilogue>
void launch_winograd(Windows windows, size_t images, const Epilogue& epilogue, float* memory,
                     size_t room, hipStream_t stream);

// A tile of maps x pixels that launch_right_tile can choose. `speed` is how fast a multiprocessor
// gets through many of them, relative to the first one.
template <class Epilogue>
struct WindowTile {
  int maps, pixels;
  double speed;
  void (*launch)(const Windows& windows, size_t images, const Epilogue& epilogue,
                 hipStream_t stream);
};
template <class Epilogue>
std::vector<WindowTile<Epilogue>> window_tiles();

// Whether these are windows of 3 x 3 that move by 1, and whose sums are neighbours.
inline bool fits_winograd(const Windows& p) {
  return p.taps_h == 3 && p.taps_w == 3 && p.step_h == 1 && p.step_w == 1 && p.to_row == p.cols &&
         p.to_col == 1;
}

}  // namespace conv2d
