// 6.1  conv2d: a layer that slides K small filters over every image of a batch, Y = f(X * W + b),
// and its gradients.
//
//   x (N, C, H, W)   w (K, C, R, S)   bias (K)   y (N, K, P, Q)          row-major, without gaps
//
//   y[n,k,p,q] = f(bias[k] + sum over c, r, s of
//                  w[k,c,r,s] * x[n, c, p stride_h - pad_h + r, q stride_w - pad_w + s])
//
// with zeros around the image. A sum has C R S products, and neighbouring sums share most of their
// numbers of x: as step 2.3's matrix product does, and a matrix product is what it becomes. The
// ladder is about where that matrix comes from: nowhere, a piece of the image in shared memory, a
// copy of the image that is R S times as large, or tiles of that copy that never leave the block.
// Its last rung makes a 3 x 3 filter's sums of fewer products.
//
// Any sizes (N, C and K may be 0) of which an image of x or of y has fewer than 2^30 elements, any
// strides and padding, all arrays on the device and aligned to 4 bytes; outputs overlap no input.
// Launchers throw std::invalid_argument where a window does not fit the padded image or an array
// that is needed is null. Every version gives the same bits on every run of one device.
//
// y is computed with the zeros around the image as with other numbers: where an infinite weight
// meets one, y is NaN. winograd's differences make NaN of an infinity anywhere, in a tile of y at
// most. For the gradients a version may leave out what it knows to be 0: there, whether 0 times
// infinity counts is not said.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/gpu.h"
#include "common/program.h"
#include "stage0_infra/04_device_matrix/device_matrix.h"
#include "stage1_vector/03_dot/detail/block_sum.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage2_matrix/03_gemm/detail/choose_tile.h"
#include "stage2_matrix/03_gemm/detail/epilogue.h"
#include "stage2_matrix/03_gemm/detail/product.h"
#include "stage2_matrix/03_gemm/detail/product_loop.h"
#include "stage2_matrix/03_gemm/detail/thread_tile.h"
#include "stage2_matrix/03_gemm/detail/tile_loader.h"
#include "stage2_matrix/03_gemm/gemm.h"
#include "stage4_forward/01_dense/dense.h"
#include "stage6_cnn/01_conv2d/conv2d_reference.h"

namespace conv2d {

using device_matrix::DeviceBuffer;

// ---- What all versions share ------------------------------------------------------------------

inline constexpr unsigned kBlock = 256;

// What kernels know of a problem. A place within an image is an int: that halves the registers.
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
  // No stride that leads out of the padded image is ever taken: a shorter one may stand for it.
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

// Is place i one of `length`? Unsigned, a negative number is a large one.
__device__ inline bool is_inside(int i, int length) {
  return static_cast<unsigned>(i) < static_cast<unsigned>(length);
}
// Is [h, w] in an image of height x width? Both questions at once: && would branch between them.
__device__ inline bool is_inside(int h, int height, int w, int width) {
  return (static_cast<int>(is_inside(h, height)) & static_cast<int>(is_inside(w, width))) != 0;
}

// What becomes of a sum of filter k while it is still in a register. As an epilogue of step 2.3 the
// filter is the row.
template <class Activation>
struct BiasActivation {
  const float* bias;  // null: none
  __device__ float operator()(float sum, size_t k, size_t = 0, const float* = nullptr) const {
    return Activation{}(bias == nullptr ? sum : sum + bias[k]);
  }
};

// Throws where an array of `size` elements is null or begins between two floats.
inline void require(const char* name, const float* data, size_t size) {
  if (size == 0) return;
  if (data == nullptr) throw std::invalid_argument(std::string("conv2d: ") + name + " is null");
  if (reinterpret_cast<std::uintptr_t>(data) % sizeof(float) != 0)
    throw std::invalid_argument(std::string("conv2d: ") + name + " is not aligned to 4 bytes");
}

inline void check_forward(const float* y, const float* x, const float* w, const Problem& p) {
  const size_t size = size_of_y(p);
  require("y", y, size);
  if (size == 0) return;
  require("x", x, size_of_x(p)), require("w", w, size_of_w(p));
}

inline unsigned grid_of(size_t threads, size_t block = kBlock) {
  return static_cast<unsigned>(gpu::ceil_div(threads, block));
}

// ---- One thread per output --------------------------------------------------------------------

// y = f(x * w + bias)    x (N,C,H,W)  w (K,C,R,S)  y (N,K,P,Q), any sizes.
// Fixes : a CPU core computes the elements of y one after the other.
// Idea  : every element is a sum of its own over a window of x; one thread for each.
// Thread: t owns element t of y; its neighbours' windows overlap its own.
// Costs : 2 loads per multiplication, which the caches must serve.
template <class Activation>
static __global__ void __launch_bounds__(kBlock)
    conv2d_direct(float* y, const float* x, const float* w, BiasActivation<Activation> epilogue,
                  Geometry g, size_t count) {
  const size_t i = size_t{blockIdx.x} * kBlock + threadIdx.x;
  if (i >= count) return;
  const size_t plane = i / static_cast<size_t>(g.pixels());
  const int pixel = static_cast<int>(i % static_cast<size_t>(g.pixels()));
  const int k = static_cast<int>(plane % static_cast<size_t>(g.K));
  const float* image = x + plane / static_cast<size_t>(g.K) * g.image_of_x();
  const float* filter = w + size_t(k) * size_t(g.C * g.taps());
  // exercise: the sum over this output's window, zeros around the image (about 10 lines)
  const int h0 = pixel / g.Q * g.stride_h - g.pad_h, w0 = pixel % g.Q * g.stride_w - g.pad_w;
  float sum = 0;
  for (int c = 0; c < g.C; ++c)
    for (int r = 0; r < g.R; ++r)
      for (int s = 0; s < g.S; ++s) {
        const int h = h0 + r, col = w0 + s;
        const float value = is_inside(h, g.H, col, g.W) ? image[(c * g.H + h) * g.W + col] : 0;
        sum += filter[(c * g.R + r) * g.S + s] * value;
      }
  y[i] = epilogue(sum, k);
  // end exercise
}

// Memory beside the arrays, for the versions that want some; below.
struct Workspace;

template <class Activation>
inline void launch_direct(float* y, const float* x, const float* w, const float* bias,
                          const Problem& problem, Workspace&, hipStream_t stream = nullptr) {
  check_forward(y, x, w, problem);
  const size_t count = size_of_y(problem);
  if (count == 0) return;
  LAUNCH_ON(stream, (conv2d_direct<Activation>), grid_of(count), kBlock, 0, y, x, w,
            BiasActivation<Activation>{bias}, geometry_of(problem), count);
}

// ---- A piece of the image in shared memory ----------------------------------------------------

inline constexpr int kTileSide = 16;    // of the square of outputs that a block computes
inline constexpr int kTileFilters = 8;  // filters that it computes them for
inline constexpr int kPiece = 8;        // rows and columns of a filter that are staged at a time
inline constexpr size_t kTiledBytes = 32 << 10;  // of shared memory

// A patch is what the windows of side x side outputs cover with a piece of the filter.
__host__ __device__ inline int patch_length(int side, int stride, int piece) {
  return (side - 1) * stride + piece;
}

// y = f(x * w + bias)    x (N,C,H,W)  w (K,C,R,S)  y (N,K,P,Q), any sizes.
// Fixes : direct reads an element of x for each window that covers it, and again for each filter.
// Idea  : the block stages the patch of a channel that its outputs see, and kTileFilters filters.
// Thread: (x, y) owns output [first row + y, first column + x] of kTileFilters filters.
// Costs : 1 + 1/kTileFilters loads from shared memory per multiplication; 2 barriers per channel
//         and piece of the filter.
template <class Activation>
static __global__ void __launch_bounds__(kTileSide* kTileSide)
    conv2d_tiled(float* y, const float* x, const float* w, BiasActivation<Activation> epilogue,
                 Geometry g) {
  const int side = static_cast<int>(blockDim.x), threads = side * side;
  const int thread = gpu::thread_rank();
  const int patch_width = patch_length(side, g.stride_w, min(kPiece, g.S));
  const int patch_height = patch_length(side, g.stride_h, min(kPiece, g.R));
  DYNAMIC_SHARED(float, patch);                               // (patch_height, patch_width)
  float* const filters = patch + patch_height * patch_width;  // (rows, cols, kTileFilters)

  const unsigned across = static_cast<unsigned>(gpu::ceil_div(g.Q, side));
  const unsigned down = static_cast<unsigned>(gpu::ceil_div(g.P, side));
  const unsigned groups = static_cast<unsigned>(gpu::ceil_div(g.K, kTileFilters));
  const int p0 = static_cast<int>(blockIdx.x / across % down) * side;
  const int q0 = static_cast<int>(blockIdx.x % across) * side;
  const int k0 = static_cast<int>(blockIdx.x / (across * down) % groups) * kTileFilters;
  const size_t n = blockIdx.x / (across * down * groups);
  const float* const image = x + n * g.image_of_x();
  const int p = p0 + static_cast<int>(threadIdx.y), q = q0 + static_cast<int>(threadIdx.x);

  float sums[kTileFilters] = {};
  for (int c = 0; c < g.C; ++c)
    for (int r0 = 0; r0 < g.R; r0 += kPiece)
      for (int s0 = 0; s0 < g.S; s0 += kPiece) {
        const int rows = min(kPiece, g.R - r0), cols = min(kPiece, g.S - s0);
        const int h0 = p0 * g.stride_h - g.pad_h + r0, w0 = q0 * g.stride_w - g.pad_w + s0;
        for (int e = thread; e < patch_height * patch_width; e += threads) {
          const int h = h0 + e / patch_width, col = w0 + e % patch_width;
          patch[e] = is_inside(h, g.H, col, g.W) ? image[(c * g.H + h) * g.W + col] : 0;
        }
        for (int e = thread; e < rows * cols * kTileFilters; e += threads) {
          const int k = k0 + e % kTileFilters, tap = e / kTileFilters;
          const int r = r0 + tap / cols, s = s0 + tap % cols;
          filters[e] = k < g.K ? w[(size_t(k) * size_t(g.C) + c) * g.taps() + r * g.S + s] : 0;
        }
        __syncthreads();  // the patch and the pieces of the filters are in shared memory
        // exercise: all products of this output's part of the patch (about 8 lines)
        const float* window = patch + static_cast<int>(threadIdx.y) * g.stride_h * patch_width +
                              static_cast<int>(threadIdx.x) * g.stride_w;
        for (int r = 0; r < rows; ++r)
          for (int s = 0; s < cols; ++s) {
            const float value = window[r * patch_width + s];
            const float* const weights = filters + (r * cols + s) * kTileFilters;
            GPU_UNROLL
            for (int k = 0; k < kTileFilters; ++k) sums[k] += weights[k] * value;
          }
        // end exercise
        __syncthreads();  // all threads are done with both
      }
  if (p >= g.P || q >= g.Q) return;
  GPU_UNROLL
  for (int k = 0; k < kTileFilters; ++k)
    if (k0 + k < g.K)
      y[n * g.image_of_y() + size_t(k0 + k) * g.pixels() + p * g.Q + q] = epilogue(sums[k], k0 + k);
}

// Images that one launch takes, so that what it numbers of them stays below `most`: in an int.
inline constexpr size_t kMostPlaces = size_t{1} << 30;
inline size_t images_of_launch(size_t per_image, size_t most) {
  return std::max(most / std::max(per_image, size_t{1}), size_t{1});
}

template <class Activation>
inline void launch_tiled(float* y, const float* x, const float* w, const float* bias,
                         const Problem& problem, Workspace&, hipStream_t stream = nullptr) {
  check_forward(y, x, w, problem);
  if (size_of_y(problem) == 0) return;
  const Geometry g = geometry_of(problem);
  const auto shared_bytes = [&](int side) {
    const size_t rows = std::min(kPiece, g.R), cols = std::min(kPiece, g.S);
    const size_t height = (side - 1) * problem.stride_h + rows;
    const size_t width = (side - 1) * problem.stride_w + cols;
    return sizeof(float) * (height * width + rows * cols * kTileFilters);
  };
  int side = kTileSide;  // long strides leave room for fewer outputs
  while (side > 1 && shared_bytes(side) > kTiledBytes) side /= 2;
  const size_t blocks =
      gpu::ceil_div(g.P, side) * gpu::ceil_div(g.Q, side) * gpu::ceil_div(g.K, kTileFilters);
  const size_t images = images_of_launch(blocks, kMostPlaces);
  for (size_t n = 0; n < problem.N; n += images) {
    const size_t grid = blocks * std::min(images, problem.N - n);
    LAUNCH_ON(stream, (conv2d_tiled<Activation>), static_cast<unsigned>(grid), dim3(side, side),
              shared_bytes(side), y + n * g.image_of_y(), x + n * g.image_of_x(), w,
              BiasActivation<Activation>{bias}, g);
  }
}

// ---- The image as a matrix --------------------------------------------------------------------

inline constexpr size_t kMostElements = size_t{1} << 26;  // of the columns at a time: 256 MiB

// Images out of `images` of which each takes `per_image` elements of `room`; one at least.
inline size_t fitting(size_t images, size_t per_image, size_t room = kMostElements) {
  return std::min(images, std::max(room / std::max(per_image, size_t{1}), size_t{1}));
}
inline size_t columns_per_image(const Problem& p) {
  const Extent out = output_of(p);
  return window_of(p) * out.height * out.width;
}

// columns[n, (c,r,s), (p,q)] = x[n, c, p stride_h - pad_h + r, q stride_w - pad_w + s] or 0 outside
// Fixes : tiled is a kernel of its own, and far from what step 2.3 has reached.
// Idea  : with each window laid out as a column, a convolution is the matrix product
//         y[n] = w columns[n], of (K, C R S) and (C R S, P Q).
// Thread: t owns element t of columns.
// Costs : columns is R S / (stride_h stride_w) times as large as x, is written and read.
static __global__ void __launch_bounds__(kBlock)
    conv2d_columns(float* columns, const float* x, Geometry g, size_t count) {
  const size_t i = size_t{blockIdx.x} * kBlock + threadIdx.x;
  if (i >= count) return;
  const size_t row = i / static_cast<size_t>(g.pixels());  // of all images' columns
  const int pixel = static_cast<int>(i % static_cast<size_t>(g.pixels()));
  const size_t window = static_cast<size_t>(g.C * g.taps());
  const int line = static_cast<int>(row % window);
  const float* image = x + row / window * g.image_of_x();
  // exercise: the channel and the place in it that this element shows (about 4 lines)
  const int c = line / g.taps(), r = line / g.S % g.R, s = line % g.S;
  const int h = pixel / g.Q * g.stride_h - g.pad_h + r;
  const int col = pixel % g.Q * g.stride_w - g.pad_w + s;
  columns[i] = is_inside(h, g.H, col, g.W) ? image[(c * g.H + h) * g.W + col] : 0;
  // end exercise
}

inline void launch_columns(float* columns, const float* x, const Geometry& g, size_t count,
                           hipStream_t stream) {
  if (count > 0) LAUNCH_ON(stream, conv2d_columns, grid_of(count), kBlock, 0, columns, x, g, count);
}

// Memory for one problem, or others like it that have fewer images. Two calls that may run at the
// same time need two.
struct Workspace {
  // What forward() and backward() want.
  explicit Workspace(const Problem& largest);
  // What every version wants.
  static Workspace for_all_versions(const Problem& largest);

  DeviceBuffer<float> columns;  // im2col's
  DeviceBuffer<float> tiles;    // winograd's
  DeviceBuffer<float> slices;   // of the sums of grad_w
};

// The columns of as many images as there is memory for, then a product of step 2.3 for each of
// them, all in one launch; until there are no more images.
template <class Activation>
inline void launch_im2col(float* y, const float* x, const float* w, const float* bias,
                          const Problem& problem, Workspace& workspace,
                          hipStream_t stream = nullptr) {
  check_forward(y, x, w, problem);
  const Geometry g = geometry_of(problem);
  const size_t per_image = columns_per_image(problem);
  const size_t room = per_image == 0 ? problem.N : workspace.columns.size() / per_image;
  if (size_of_y(problem) == 0) return;
  if (room == 0) throw std::invalid_argument("conv2d: no memory for the columns of an image");
  gemm::Product p;
  p.M = problem.K, p.N = static_cast<size_t>(g.pixels()), p.K = window_of(problem);
  p.a = w, p.lda = p.K;
  p.b = workspace.columns.data(), p.ldb = p.N, p.stride_b = per_image;
  p.ldc = p.N, p.stride_c = g.image_of_y();
  for (size_t n = 0; n < problem.N; n += room) {
    p.batch = std::min(room, problem.N - n);
    p.c = y + n * p.stride_c;
    launch_columns(workspace.columns.data(), x + n * g.image_of_x(), g, p.batch * per_image,
                   stream);
    gemm::best<gemm::Layouts<gemm::Layout::NN>>(p, BiasActivation<Activation>{bias}, stream);
  }
}

// ---- Tiles of that matrix, made where they are used -------------------------------------------

// n / value and n % value without a division, for 0 <= n < 2^31: the upper half of a product and a
// shift (Granlund and Montgomery: Division by invariant integers using multiplication, 1994).
struct Divisor {
  unsigned value = 1, factor = 1, shift = 0;

  Divisor() = default;
  explicit Divisor(int divisor) : value(static_cast<unsigned>(std::max(divisor, 1))) {
    while ((std::uint64_t{1} << shift) < value) ++shift;
    factor = static_cast<unsigned>(
        (std::uint64_t{1} << 32) * ((std::uint64_t{1} << shift) - value) / value + 1);
  }
  __host__ __device__ int quotient(int n) const {
    const unsigned number = static_cast<unsigned>(n);
    const unsigned upper = static_cast<unsigned>(std::uint64_t{number} * factor >> 32);
    return static_cast<int>((upper + number) >> shift);
  }
  __host__ __device__ int remainder(int n, int quotient) const {
    return n - quotient * static_cast<int>(value);
  }
};

inline constexpr int kOutside = -(1 << 30);  // a row or column that no image has, + r too

// Sums over windows of `from`, each weighed by one of `maps` filters. Forward makes y of x; the
// gradient of x is made of that of y in the same way (below).
//
//   to[n, m, i, j] = sum over c, r, s of filter[m, c, r, s] *
//                    from[n, c, i step_h + first_h + r, j step_w + first_w + s]
//
// As a matrix product: its rows are the maps, its columns the pixels (n, i, j), and it goes through
// the lines (c, r, s). Elements of `filter` and of `to` lie at a distance of their own.
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

// What a block brings to shared memory for a tile of lines, seen by one thread: its elements of the
// filters and its pixels' elements of `from`. load() takes them into registers, store() puts them
// where the block shares them.
//
// The shape of the window is known when the kernel is compiled, Window<3, 3>, or it is not,
// AnyWindow.
template <int rows, int cols>
struct Window {
  static constexpr int kTaps = rows * cols;
};
struct AnyWindow {};

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

// Any window: each line's channel, row and column are worked out where they are needed, and each
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

// Sums in registers go through the epilogue to where they belong.
template <class Shape, class Epilogue>
__device__ inline void store_sums(const Windows& p, const Epilogue& epilogue, int first_map,
                                  int first_pixel, const gemm::ThreadTile& place,
                                  const float (&sums)[Shape::kThreadM][Shape::kThreadN]) {
  const auto map_of = [&](int i) { return first_map + place.row + i / 4 * place.row_step + i % 4; };
  GPU_UNROLL
  for (int j = 0; j < Shape::kThreadN; j += 4) {
    const int pixel = first_pixel + place.col + j / 4 * place.col_step;
    if (p.whole && pixel < p.pixels) {
      float* const to = p.sum_of(pixel);
      GPU_UNROLL
      for (int i = 0; i < Shape::kThreadM; ++i) {
        const int map = map_of(i);
        if (map < p.maps)
          *reinterpret_cast<float4*>(to + size_t(map) * p.to_map) =
              make_float4(epilogue(sums[i][j], map), epilogue(sums[i][j + 1], map),
                          epilogue(sums[i][j + 2], map), epilogue(sums[i][j + 3], map));
      }
    } else {
      GPU_UNROLL
      for (int e = 0; e < 4; ++e) {
        if (pixel + e >= p.pixels) continue;
        float* const to = p.sum_of(pixel + e);
        GPU_UNROLL
        for (int i = 0; i < Shape::kThreadM; ++i) {
          const int map = map_of(i);
          if (map < p.maps) to[size_t(map) * p.to_map] = epilogue(sums[i][j + e], map);
        }
      }
    }
  }
}

// to = epilogue(sums over windows of from)    any sizes.
// Fixes : im2col writes and reads R S times what there is to read of x.
// Idea  : a block of the matrix product makes the tiles of columns that it needs from x itself, in
//         shared memory; while one is multiplied the next one is on its way, as in step 2.3.
// Thread: brings the lines of kTileN / kThreads pixels; owns the kThreadM x kThreadN sums (map,
//         pixel) that Places::of(t) names.
// Costs : 1 barrier per tile; two of them in shared memory. x is read once per R S / (strides)
//         uses, which the first-level cache serves.
template <class Shape, class Places, class Window, class Epilogue>
static __global__ void GPU_LAUNCH_BOUNDS(Shape::kThreads, Shape::kResidentBlocks)
    conv2d_implicit_gemm(Windows p, Epilogue epilogue) {
  __shared__ gemm::Tiles<Shape> tiles[2];
  const int thread = static_cast<int>(threadIdx.x);
  const unsigned down = static_cast<unsigned>(gpu::ceil_div(p.maps, Shape::kTileM));
  const int first_map = static_cast<int>(blockIdx.x % down) * Shape::kTileM;
  const int first_pixel = static_cast<int>(blockIdx.x / down) * Shape::kTileN;
  const gemm::ThreadTile place = Places::of(thread);
  Loader<Shape, Window> loader(p, first_map, first_pixel, thread);
  float sums[Shape::kThreadM][Shape::kThreadN] = {};
  const int steps = loader.tiles();
  if (steps > 0) {
    loader.load();
    loader.store(tiles[0], thread);
  }
  __syncthreads();  // the first tiles are in shared memory
  for (int step = 0; step < steps; ++step) {
    // exercise: fetch the next tiles, multiply these ones' lines (about 10 lines)
    const gemm::Tiles<Shape>& current = tiles[step % 2];
    const bool more = step + 1 < steps;
    if (more) loader.load();
    GPU_UNROLL
    for (int k = 0; k < Shape::kTileK; ++k) {
      float held_a[Shape::kThreadM], held_b[Shape::kThreadN];
      gemm::load_fragment(held_a, &current.a[k][place.row], place.row_step);
      gemm::load_fragment(held_b, &current.b[k][place.col], place.col_step);
      gemm::add_outer_product(sums, held_a, held_b);
    }
    if (more) loader.store(tiles[(step + 1) % 2], thread);
    __syncthreads();  // the next tiles are in shared memory, and all lines of these were read
    // end exercise
  }
  store_sums<Shape>(p, epilogue, first_map, first_pixel, place, sums);
}

template <class Shape, class Places, class Window, class Epilogue>
inline void launch_windows(Windows windows, size_t images, const Epilogue& epilogue,
                           hipStream_t stream, size_t most = kMostPlaces) {
  const size_t pixels = static_cast<size_t>(windows.rows) * static_cast<size_t>(windows.cols);
  if (images == 0 || pixels == 0 || windows.maps == 0) return;
  for (size_t n = 0, at_a_time = images_of_launch(pixels, most); n < images; n += at_a_time) {
    windows.prepare(static_cast<int>(std::min(at_a_time, images - n)));
    const size_t grid =
        gpu::ceil_div(windows.maps, Shape::kTileM) * gpu::ceil_div(windows.pixels, Shape::kTileN);
    LAUNCH_ON(stream, (conv2d_implicit_gemm<Shape, Places, Window, Epilogue>),
              static_cast<unsigned>(grid), Shape::kThreads, 0, windows, epilogue);
    windows.from += static_cast<size_t>(windows.images) * windows.image_of_from();
    windows.to += static_cast<size_t>(windows.images) * size_t(windows.maps) * windows.to_map;
  }
}

// Forward as sums over windows of x.
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

// How a block divides its maps and pixels among its threads. For any window a tile is 8 lines; for
// one of 3 x 3 it is the 9 lines of one channel.
template <int tile_maps, int tile_pixels, int thread_maps, int thread_pixels, int resident_blocks>
struct Tile {
  static constexpr int kMaps = tile_maps, kPixels = tile_pixels;
  template <int kLines>
  using Shape =
      gemm::Shape<tile_maps, tile_pixels, kLines, thread_maps, thread_pixels, resident_blocks>;
};

// Where waves have no tiles of their own to read (step 2.3), a thread's sums are one rectangle.
#if defined(GPU_BACKEND_CPU)
template <class Shape>
using Places = gemm::BlockedTiles<Shape>;
using Large = Tile<32, 128, 8, 16, 1>;
#else
template <class Shape>
using Places = std::conditional_t<Shape::kTileM % (gemm::kLanesM * Shape::kThreadM) == 0,
                                  gemm::WaveTiles<Shape>, gemm::BlockedTiles<Shape>>;
using Large = Tile<64, 128, 8, 8, 4>;
#endif

template <class Tile, class Window, int kLines, class Epilogue>
inline void launch_tile(const Windows& windows, size_t images, const Epilogue& epilogue,
                        hipStream_t stream) {
  using Shape = typename Tile::template Shape<kLines>;
  launch_windows<Shape, Places<Shape>, Window>(windows, images, epilogue, stream);
}

template <class Activation>
inline void launch_implicit_gemm(float* y, const float* x, const float* w, const float* bias,
                                 const Problem& problem, Workspace&, hipStream_t stream = nullptr) {
  check_forward(y, x, w, problem);
  launch_tile<Large, AnyWindow, 8>(windows_of(y, x, w, problem), problem.N,
                                   BiasActivation<Activation>{bias}, stream);
}

// ---- A window that the compiler knows ---------------------------------------------------------

// A tile is one channel's window. Which of its elements lie in the image is the same for every
// channel: a bit each, worked out once. An element's distance from the window's corner is a
// constant, or one plus a row or two.
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

// The launches below take this way for windows of 3 x 3 and the other for the rest.
using ThreeByThree = Window<3, 3>;

template <class Tile, class Epilogue>
inline void launch_known(const Windows& windows, size_t images, const Epilogue& epilogue,
                         hipStream_t stream) {
  if (windows.taps_h == 3 && windows.taps_w == 3)
    launch_tile<Tile, ThreeByThree, ThreeByThree::kTaps>(windows, images, epilogue, stream);
  else
    launch_tile<Tile, AnyWindow, 8>(windows, images, epilogue, stream);
}

// y = f(x * w + bias) as implicit_gemm makes it, which for each element that it loads from x works
// out a place and compares it with the borders: a fifth of its instructions multiply nothing.
template <class Activation>
inline void launch_known_window(float* y, const float* x, const float* w, const float* bias,
                                const Problem& problem, Workspace&, hipStream_t stream = nullptr) {
  check_forward(y, x, w, problem);
  launch_known<Large>(windows_of(y, x, w, problem), problem.N, BiasActivation<Activation>{bias},
                      stream);
}

// ---- The right tile for a shape ---------------------------------------------------------------

// Tiles to choose from. `speed` is how fast a multiprocessor gets through many of them, relative to
// the first.
template <class Epilogue>
struct Candidate {
  int maps, pixels;
  double speed;
  void (*launch)(const Windows& windows, size_t images, const Epilogue& epilogue,
                 hipStream_t stream);
};
template <class Tile, class Epilogue>
constexpr Candidate<Epilogue> candidate(double speed) {
  return {Tile::kMaps, Tile::kPixels, speed, launch_known<Tile, Epilogue>};
}

template <class Epilogue>
inline constexpr Candidate<Epilogue> kCandidates[] = {
#if defined(GPU_BACKEND_CPU)
    candidate<Large, Epilogue>(1.0),
    candidate<Tile<8, 128, 8, 16, 1>, Epilogue>(0.9),
#else
    candidate<Large, Epilogue>(1.0),
    candidate<Tile<32, 128, 4, 8, 4>, Epilogue>(0.75),
    candidate<Tile<16, 128, 4, 4, 6>, Epilogue>(0.45),
    candidate<Tile<8, 128, 4, 4, 8>, Epilogue>(0.25),
#endif
};

// The candidate that the multiprocessor with the most tiles is done with first.
template <class Epilogue>
inline const Candidate<Epilogue>& choose(const Windows& p, size_t images) {
  const double multiprocessors = gpu::multiprocessors();
  const double pixels =
      static_cast<double>(images) * static_cast<double>(p.rows) * static_cast<double>(p.cols);
  const auto cost = [&](const Candidate<Epilogue>& c) {
    const double tiles = static_cast<double>(gpu::ceil_div(p.maps, c.maps)) *
                         std::ceil(pixels / static_cast<double>(c.pixels));
    return std::ceil(tiles / multiprocessors) * static_cast<double>(c.maps * c.pixels) / c.speed;
  };
  return *std::min_element(std::begin(kCandidates<Epilogue>), std::end(kCandidates<Epilogue>),
                           [&](const auto& x, const auto& y) { return cost(x) < cost(y); });
}

template <class Epilogue>
void launch_right_tile(const Windows& windows, size_t images, const Epilogue& epilogue,
                       hipStream_t stream) {
  choose<Epilogue>(windows, images).launch(windows, images, epilogue, stream);
}
// Compiled once, in conv2d_instances.hip: the two functions that later stages use.
using BiasLinear = BiasActivation<dense::Linear>;
using BiasRelu = BiasActivation<activations::Relu>;
extern template void launch_right_tile(const Windows&, size_t, const BiasLinear&, hipStream_t);
extern template void launch_right_tile(const Windows&, size_t, const BiasRelu&, hipStream_t);

template <class Activation>
inline void launch_right_tile(float* y, const float* x, const float* w, const float* bias,
                              const Problem& problem, Workspace&, hipStream_t stream = nullptr) {
  check_forward(y, x, w, problem);
  launch_right_tile(windows_of(y, x, w, problem), problem.N, BiasActivation<Activation>{bias},
                    stream);
}

// ---- Fewer multiplications --------------------------------------------------------------------
//
// Neighbouring windows of 3 x 3 have two thirds of their numbers in common, and their sums share
// more than loads. Four sums of three products, of a row's numbers d0 ... d5 and a filter's g0 g1
// g2, can be had from six products of sums of the d with sums of the g (Winograd, 1980):
//
//   y = A ((G g) * (B d))      B d: 6 sums of d     G g: 6 sums of g     A: 4 sums of 6 products
//
// Down and across, a tile of 6 x 6 numbers makes 4 x 4 outputs with 36 products in place of 144
// (Lavin and Gray: Fast algorithms for convolutional neural networks, arXiv:1509.09308). As A, B
// and G are linear, A is applied once to what has been added up over the channels, and each of the
// 36 places is a matrix product of its own, filters times channels times tiles:
//
//   x  ->  B d B^T  ->  36 x (channels, tiles)  --+
//                                                 +--  36 products  ->  A m A^T  ->  bias, f  -> y
//   w  ->  G g G^T  ->  36 x (maps, channels)  ---+
//
// The price: sums that nearly cancel. Numbers of the tile are multiplied by up to 100 and products
// by up to 64 on the way to an output, and the rounding errors with them.
//
//       |  4  0 -5  0  1  0 |      |  1/4    0     0  |      | 1  1  1  1  1  0 |
//       |  0 -4 -4  1  1  0 |      | -1/6  -1/6  -1/6 |      | 0  1 -1  2 -2  0 |
//   B = |  0  4 -4 -1  1  0 |  G = | -1/6   1/6  -1/6 |  A = | 0  1  1  4  4  0 |
//       |  0 -2 -1  2  1  0 |      |  1/24  1/12  1/6 |      | 0  1 -1  8 -8  1 |
//       |  0  2 -1 -2  1  0 |      |  1/24 -1/12  1/6 |
//       |  0  4  0 -5  0  1 |      |   0     0     1  |
inline constexpr int kSideIn = 6, kSideOut = 4, kPlaces = kSideIn * kSideIn;

// B, G and A, applied to a row in registers.
__host__ __device__ inline void transform_numbers(float (&d)[kSideIn]) {
  const float d4_4d2 = d[4] - 4 * d[2], d3_4d1 = d[3] - 4 * d[1];
  const float d4_d2 = d[4] - d[2], d3_d1 = 2 * (d[3] - d[1]);
  d[0] = 4 * d[0] - 5 * d[2] + d[4];
  d[5] = 4 * d[1] - 5 * d[3] + d[5];
  d[1] = d4_4d2 + d3_4d1, d[2] = d4_4d2 - d3_4d1;
  d[3] = d4_d2 + d3_d1, d[4] = d4_d2 - d3_d1;
}
__host__ __device__ inline void transform_filter(const float (&g)[3], float (&u)[kSideIn]) {
  const float even = g[0] + g[2], even4 = g[0] + 4 * g[2];
  u[0] = g[0] / 4;
  u[1] = (even + g[1]) * (-1 / 6.0f), u[2] = (even - g[1]) * (-1 / 6.0f);
  u[3] = (even4 + 2 * g[1]) * (1 / 24.0f), u[4] = (even4 - 2 * g[1]) * (1 / 24.0f);
  u[5] = g[2];
}
__host__ __device__ inline void transform_products(const float (&m)[kSideIn],
                                                   float (&y)[kSideOut]) {
  const float sum = m[1] + m[2], difference = m[1] - m[2];
  const float sum2 = m[3] + m[4], difference2 = m[3] - m[4];
  y[0] = m[0] + sum + sum2;
  y[1] = difference + 2 * difference2;
  y[2] = sum + 4 * sum2;
  y[3] = difference + 8 * difference2 + m[5];
}

// The tiles of some images, numbered image by image and row by row; `count` of them with those that
// make it a multiple of 4, which are zeros.
struct TransformedTiles {
  int tiles, count;
  Divisor by_image, by_row, by_count;

  TransformedTiles(const Windows& p, int images) {
    const int down = static_cast<int>(gpu::ceil_div(p.rows, kSideOut));
    const int across = static_cast<int>(gpu::ceil_div(p.cols, kSideOut));
    tiles = images * down * across, count = static_cast<int>(gpu::ceil_div(tiles, 4)) * 4;
    by_image = Divisor(down * across), by_row = Divisor(across), by_count = Divisor(count);
  }
  struct Tile {
    int image, row, col;  // of its first output
  };
  __device__ Tile tile(int number) const {
    const int image = by_image.quotient(number), place = by_image.remainder(number, image);
    const int i = by_row.quotient(place);
    return {image, i * kSideOut, by_row.remainder(place, i) * kSideOut};
  }
};

// numbers[place, c, tile] = (B d B^T)[place] of tile's 6 x 6 numbers d of channel c, 0 outside.
// Fixes : -
// Idea  : neighbouring threads take neighbouring tiles, so that each of the 36 stores is one piece
//         of memory; all between is in registers.
// Thread: t owns tile t % count of channel t / count.
// Costs : 36/16 of the image written; what tiles share is read twice, from the cache.
static __global__ void __launch_bounds__(kBlock)
    winograd_transform_numbers(float* numbers, Windows p, TransformedTiles tiles) {
  const int t = static_cast<int>(blockIdx.x * kBlock + threadIdx.x);
  const int c = tiles.by_count.quotient(t), number = tiles.by_count.remainder(t, c);
  if (c >= p.channels) return;
  const TransformedTiles::Tile tile = tiles.tile(number < tiles.tiles ? number : 0);
  const int h0 = number < tiles.tiles ? tile.row + p.first_h : kOutside, w0 = tile.col + p.first_w;
  const float* const from = p.from + (size_t(tile.image) * p.channels + c) * p.height * p.width;
  float d[kSideIn][kSideIn];
  GPU_UNROLL
  for (int r = 0; r < kSideIn; ++r) {
    GPU_UNROLL
    for (int s = 0; s < kSideIn; ++s)
      d[r][s] =
          is_inside(h0 + r, p.height, w0 + s, p.width) ? from[(h0 + r) * p.width + w0 + s] : 0;
  }
  // exercise: apply B to the columns and to the rows of d (about 8 lines)
  GPU_UNROLL
  for (int s = 0; s < kSideIn; ++s) {
    float column[kSideIn];
    GPU_UNROLL
    for (int r = 0; r < kSideIn; ++r) column[r] = d[r][s];
    transform_numbers(column);
    GPU_UNROLL
    for (int r = 0; r < kSideIn; ++r) d[r][s] = column[r];
  }
  GPU_UNROLL
  for (int r = 0; r < kSideIn; ++r) transform_numbers(d[r]);
  // end exercise
  GPU_UNROLL
  for (int place = 0; place < kPlaces; ++place)
    numbers[(size_t(place) * p.channels + c) * tiles.count + number] =
        d[place / kSideIn][place % kSideIn];
}

inline void launch_transform_numbers(float* numbers, const Windows& p,
                                     const TransformedTiles& tiles, hipStream_t stream) {
  const size_t threads = static_cast<size_t>(p.channels) * static_cast<size_t>(tiles.count);
  if (threads > 0)
    LAUNCH_ON(stream, winograd_transform_numbers, grid_of(threads), kBlock, 0, numbers, p, tiles);
}

// filters[place, m, c] = (G g G^T)[place] of the filter g of map m and channel c.
// Fixes : -
// Idea  : a filter of 9 numbers becomes one of 36, once for all images.
// Thread: t owns channel t % channels of map t / channels.
// Costs : 4 times the filters written.
static __global__ void __launch_bounds__(kBlock)
    winograd_transform_filters(float* filters, Windows p) {
  const int t = static_cast<int>(blockIdx.x * kBlock + threadIdx.x), size = p.maps * p.channels;
  if (t >= size) return;
  const float* const g =
      p.filter + ((t / p.channels) * p.filter_map + (t % p.channels) * p.filter_channel);
  float rows[3][kSideIn];
  GPU_UNROLL
  for (int r = 0; r < 3; ++r) {
    const float row[3] = {g[r * p.filter_row], g[r * p.filter_row + p.filter_col],
                          g[r * p.filter_row + 2 * p.filter_col]};
    transform_filter(row, rows[r]);
  }
  GPU_UNROLL
  for (int s = 0; s < kSideIn; ++s) {
    const float column[3] = {rows[0][s], rows[1][s], rows[2][s]};
    float transformed[kSideIn];
    transform_filter(column, transformed);
    GPU_UNROLL
    for (int r = 0; r < kSideIn; ++r) filters[size_t(r * kSideIn + s) * size + t] = transformed[r];
  }
}

inline void launch_transform_filters(float* filters, const Windows& p, hipStream_t stream) {
  const size_t threads = static_cast<size_t>(p.maps) * static_cast<size_t>(p.channels);
  if (threads > 0)
    LAUNCH_ON(stream, winograd_transform_filters, grid_of(threads), kBlock, 0, filters, p);
}

// to = epilogue(A m A^T) of the 36 sums m = products[.., map, tile], where that lies in the image.
// Fixes : -
// Idea  : as in winograd_transform_numbers; the sums are complete here, and get bias and f.
// Thread: t owns tile t % count of map t / count: 4 x 4 outputs, a float4 each row.
// Costs : 36/16 of the output read.
template <class Epilogue>
static __global__ void __launch_bounds__(kBlock)
    winograd_transform_products(const float* products, Windows p, TransformedTiles tiles,
                                Epilogue epilogue) {
  const int t = static_cast<int>(blockIdx.x * kBlock + threadIdx.x);
  const int map = tiles.by_count.quotient(t), number = tiles.by_count.remainder(t, map);
  if (map >= p.maps || number >= tiles.tiles) return;
  float m[kSideIn][kSideIn];
  GPU_UNROLL
  for (int place = 0; place < kPlaces; ++place)
    m[place / kSideIn][place % kSideIn] =
        products[(size_t(place) * p.maps + map) * tiles.count + number];
  float columns[kSideOut][kSideIn];
  GPU_UNROLL
  for (int s = 0; s < kSideIn; ++s) {
    const float column[kSideIn] = {m[0][s], m[1][s], m[2][s], m[3][s], m[4][s], m[5][s]};
    float sums[kSideOut];
    transform_products(column, sums);
    GPU_UNROLL
    for (int r = 0; r < kSideOut; ++r) columns[r][s] = sums[r];
  }
  const TransformedTiles::Tile tile = tiles.tile(number);
  float* const to = p.to + (size_t(tile.image) * p.maps + map) * p.to_map;
  GPU_UNROLL
  for (int r = 0; r < kSideOut; ++r) {
    float y[kSideOut];
    transform_products(columns[r], y);
    GPU_UNROLL
    for (int s = 0; s < kSideOut; ++s) y[s] = epilogue(y[s], map);
    if (tile.row + r >= p.rows) continue;
    float* const row = to + ((tile.row + r) * p.cols + tile.col);
    if (p.whole && p.cols % kSideOut == 0) {
      *reinterpret_cast<float4*>(row) = make_float4(y[0], y[1], y[2], y[3]);
    } else {
      for (int s = 0; s < kSideOut; ++s)
        if (tile.col + s < p.cols) row[s] = y[s];
    }
  }
}

// Is it a window of 3 x 3 that is moved by 1, to sums that are neighbours?
inline bool fits_winograd(const Windows& p) {
  return p.taps_h == 3 && p.taps_w == 3 && p.step_h == 1 && p.step_w == 1 && p.to_row == p.cols &&
         p.to_col == 1;
}
inline bool fits_winograd(const Problem& p) {
  return p.R == 3 && p.S == 3 && p.stride_h == 1 && p.stride_w == 1;
}

// Is that faster? The transforms move 36/16 of x and of y to memory and back, whatever the number
// of multiplications that they save for each of these elements.
inline constexpr size_t kWinogradChannels = 32, kWinogradPixels = 32768;
inline bool use_winograd(const Problem& p) {
  const Extent out = output_of(p);
  return fits_winograd(p) && std::min(p.C, p.K) >= kWinogradChannels &&
         p.N * out.height * out.width >= kWinogradPixels;
}

// Elements of an image's tiles, numbers and products; the transformed filters take `filters` more.
inline size_t tiles_per_image(size_t channels, size_t maps, size_t rows, size_t cols) {
  return kPlaces * (channels + maps) *
         (gpu::ceil_div(rows, kSideOut) * gpu::ceil_div(cols, kSideOut) + 3);
}
inline size_t transformed_filters(size_t channels, size_t maps) {
  return gpu::ceil_div(kPlaces * channels * maps, 4) * 4;
}

// Elements of the tiles that are transformed at a time, if an image does not take more: 256 MiB.
inline constexpr size_t kMostTransformed = size_t{1} << 26;

// Of a workspace for forward and for grad_x.
inline size_t winograd_elements(const Problem& p) {
  const Extent out = output_of(p);
  const size_t per_image = std::max(tiles_per_image(p.C, p.K, out.height, out.width),
                                    tiles_per_image(p.C, p.K, p.H, p.W));
  return transformed_filters(p.C, p.K) + fitting(p.N, per_image, kMostTransformed) * per_image;
}

// Of the product of one place: few filters, many tiles.
using WinogradTile = gemm::Shape<64, 128, 8, 8, 8, 4>;

// Three launches for as many images as there is memory for, until there are no more; one before
// them for the filters.
template <class Epilogue>
void launch_winograd(Windows windows, size_t images, const Epilogue& epilogue, Workspace& workspace,
                     hipStream_t stream) {
  if (images == 0 || windows.maps == 0 || windows.rows == 0 || windows.cols == 0) return;
  const size_t channels = static_cast<size_t>(windows.channels);
  const size_t maps = static_cast<size_t>(windows.maps);
  const size_t of_filters = transformed_filters(channels, maps);
  const size_t per_image =
      tiles_per_image(channels, maps, static_cast<size_t>(windows.rows), size_t(windows.cols));
  const size_t room = workspace.tiles.size();
  if (room < of_filters + per_image)
    throw std::invalid_argument("conv2d: no memory for the transformed tiles of an image");
  float* const filters = workspace.tiles.data();
  float* const numbers = filters + of_filters;
  launch_transform_filters(filters, windows, stream);
  const size_t at_a_time = fitting(images, per_image, room - of_filters);
  for (size_t n = 0; n < images; n += at_a_time) {
    windows.prepare(static_cast<int>(std::min(at_a_time, images - n)));
    const TransformedTiles tiles(windows, windows.images);
    const size_t count = static_cast<size_t>(tiles.count);
    float* const products = numbers + kPlaces * channels * count;
    launch_transform_numbers(numbers, windows, tiles, stream);
    gemm::Product p;
    p.M = maps, p.N = count, p.K = channels;
    p.a = filters, p.lda = channels, p.stride_a = maps * channels;
    p.b = numbers, p.ldb = count, p.stride_b = channels * count;
    p.c = products, p.ldc = count, p.stride_c = maps * count;
    p.batch = kPlaces;
#if defined(GPU_BACKEND_CPU)
    gemm::best<gemm::Layouts<gemm::Layout::NN>>(p, gemm::alpha_beta(p), stream);
#else
    gemm::launch_product<WinogradTile, gemm::Layouts<gemm::Layout::NN>>(p, gemm::alpha_beta(p),
                                                                        stream);
#endif
    LAUNCH_ON(stream, (winograd_transform_products<Epilogue>), grid_of(maps * count), kBlock, 0,
              products, windows, tiles, epilogue);
    windows.from += static_cast<size_t>(windows.images) * windows.image_of_from();
    windows.to += static_cast<size_t>(windows.images) * maps * static_cast<size_t>(windows.to_map);
  }
}

extern template void launch_winograd(Windows, size_t, const BiasLinear&, Workspace&, hipStream_t);
extern template void launch_winograd(Windows, size_t, const BiasRelu&, Workspace&, hipStream_t);

// Other windows than those of 3 x 3 that move by 1 go as in right_tile.
template <class Activation>
inline void launch_winograd(float* y, const float* x, const float* w, const float* bias,
                            const Problem& problem, Workspace& workspace,
                            hipStream_t stream = nullptr) {
  check_forward(y, x, w, problem);
  const Windows windows = windows_of(y, x, w, problem);
  const BiasActivation<Activation> epilogue{bias};
  if (fits_winograd(windows))
    launch_winograd(windows, problem.N, epilogue, workspace, stream);
  else
    launch_right_tile(windows, problem.N, epilogue, stream);
}

// ---- The gradients ----------------------------------------------------------------------------
//
// Each product w[k,c,r,s] x[n,c,h,w] that went into y[n,k,p,q] gives something back to both of its
// factors:
//
//   grad_w[k,c,r,s] = sum over n, p, q of grad_y[n,k,p,q] x[n,c,h,w]     h = p stride_h - pad_h + r
//   grad_x[n,c,h,w] = sum over k, r, s of grad_y[n,k,p,q] w[k,c,r,s]     where p, q are whole
//   grad_bias[k]    = sum over n, p, q of grad_y[n,k,p,q]                numbers and within y

// Where the gradients go; null: nobody wants this one, and it is not computed.
struct Gradients {
  float* w;     // (K, C, R, S)
  float* bias;  // (K)
  float* x;     // (N, C, H, W)
};

inline void check_backward(const Gradients& to, const float* grad_y, const float* x, const float* w,
                           const Problem& p) {
  const size_t size = size_of_y(p);
  require("grad_w", to.w, to.w == nullptr ? 0 : 1), require("grad_bias", to.bias, to.bias ? 1 : 0);
  require("grad_x", to.x, to.x == nullptr ? 0 : 1);
  if (to.w != nullptr || to.bias != nullptr || to.x != nullptr) require("grad_y", grad_y, size);
  if (to.w != nullptr) require("x", x, size == 0 ? 0 : size_of_x(p));
  if (to.x != nullptr) require("w", w, size_of_x(p) == 0 ? 0 : size_of_w(p));
}

// What is stored of a finished sum: 0 * NaN would be NaN.
__device__ inline float combine(float sum, float beta, const float* before) {
  return beta == 0 ? sum : sum + beta * *before;
}

// grad_x[n,c,h,w] = the sum above    grad_x (N,C,H,W)  grad_y (N,K,P,Q)  w (K,C,R,S), any sizes.
// Fixes : -
// Idea  : a thread per element asks which windows covered it. With a stride most did not begin at
//         a whole number of strides: they never were.
// Thread: t owns element t of grad_x.
// Costs : 2 loads per multiplication, a division for each row and column of the filter.
static __global__ void __launch_bounds__(kBlock)
    grad_x_direct(float* grad_x, const float* grad_y, const float* w, Geometry g, size_t count) {
  const size_t i = size_t{blockIdx.x} * kBlock + threadIdx.x;
  if (i >= count) return;
  const size_t area = static_cast<size_t>(g.H * g.W), plane = i / area;
  const int h = static_cast<int>(i % area) / g.W, col = static_cast<int>(i % area) % g.W;
  const int c = static_cast<int>(plane % static_cast<size_t>(g.C));
  const float* image = grad_y + plane / static_cast<size_t>(g.C) * g.image_of_y();
  // exercise: the sum over the filters and over the windows that covered this element (about 12
  // lines)
  float sum = 0;
  for (int r = 0; r < g.R; ++r) {
    const int down = h + g.pad_h - r, p = down / g.stride_h;
    if (down < 0 || p * g.stride_h != down || p >= g.P) continue;
    for (int s = 0; s < g.S; ++s) {
      const int right = col + g.pad_w - s, q = right / g.stride_w;
      if (right < 0 || q * g.stride_w != right || q >= g.Q) continue;
      for (int k = 0; k < g.K; ++k)
        sum += image[(k * g.P + p) * g.Q + q] * w[(size_t(k) * g.C + c) * g.taps() + r * g.S + s];
    }
  }
  grad_x[i] = sum;
  // end exercise
}

// grad_w[k,c,r,s] = the sum above + beta grad_w    grad_w (K,C,R,S)  grad_y (N,K,P,Q)  x (N,C,H,W)
// Fixes : -
// Idea  : a thread per weight walks over all outputs that it had a part in.
// Thread: t owns element t of grad_w.
// Costs : 2 loads per multiplication; N P Q of them one after the other by few threads.
static __global__ void __launch_bounds__(kBlock)
    grad_w_direct(float* grad_w, const float* grad_y, const float* x, Geometry g, size_t images,
                  float beta, size_t count) {
  const size_t i = size_t{blockIdx.x} * kBlock + threadIdx.x;
  if (i >= count) return;
  const int tap = static_cast<int>(i % static_cast<size_t>(g.taps()));
  const int r = tap / g.S, s = tap % g.S;
  const size_t plane = i / static_cast<size_t>(g.taps());
  const size_t c = plane % static_cast<size_t>(g.C), k = plane / static_cast<size_t>(g.C);
  float sum = 0;
  for (size_t n = 0; n < images; ++n) {
    const float* of_y = grad_y + n * g.image_of_y() + k * static_cast<size_t>(g.pixels());
    const float* of_x = x + n * g.image_of_x() + c * static_cast<size_t>(g.H * g.W);
    for (int p = 0; p < g.P; ++p)
      for (int q = 0; q < g.Q; ++q) {
        const int h = p * g.stride_h - g.pad_h + r, col = q * g.stride_w - g.pad_w + s;
        if (is_inside(h, g.H, col, g.W)) sum += of_y[p * g.Q + q] * of_x[h * g.W + col];
      }
  }
  grad_w[i] = combine(sum, beta, grad_w + i);
}

// grad_bias[k] = the sum above + beta grad_bias    grad_bias (K)  grad_y (N,K,P,Q)
// Fixes : -
// Idea  : a filter's outputs are planes of grad_y, one per image; a block adds them up.
// Thread: t of block k adds pixels t, t + kBlock, ... of the filter's planes.
// Costs : 4 bytes per element of grad_y; 1 barrier.
static __global__ void __launch_bounds__(kBlock)
    grad_bias_by_block(float* grad_bias, const float* grad_y, Geometry g, size_t images,
                       float beta) {
  const size_t k = blockIdx.x;
  float sum = 0;
  for (size_t n = 0; n < images; ++n)
    for (int i = static_cast<int>(threadIdx.x); i < g.pixels(); i += kBlock)
      sum += grad_y[n * g.image_of_y() + k * static_cast<size_t>(g.pixels()) + i];
  sum = dot::block_sum(sum);
  if (threadIdx.x == 0) grad_bias[k] = combine(sum, beta, grad_bias + k);
}

inline void launch_grad_bias(float* grad_bias, const float* grad_y, const Problem& problem,
                             float beta, hipStream_t stream) {
  if (problem.K > 0)
    LAUNCH_ON(stream, grad_bias_by_block, static_cast<unsigned>(problem.K), kBlock, 0, grad_bias,
              grad_y, geometry_of(problem), problem.N, beta);
}

inline void launch_backward_direct(const Gradients& to, const float* grad_y, const float* x,
                                   const float* w, const Problem& problem, float beta, Workspace&,
                                   hipStream_t stream = nullptr) {
  check_backward(to, grad_y, x, w, problem);
  const Geometry g = geometry_of(problem);
  const size_t weights = size_of_w(problem), elements = size_of_x(problem);
  if (to.w != nullptr && weights > 0)
    LAUNCH_ON(stream, grad_w_direct, grid_of(weights), kBlock, 0, to.w, grad_y, x, g, problem.N,
              beta, weights);
  if (to.bias != nullptr) launch_grad_bias(to.bias, grad_y, problem, beta, stream);
  if (to.x != nullptr && elements > 0)
    LAUNCH_ON(stream, grad_x_direct, grid_of(elements), kBlock, 0, to.x, grad_y, w, g, elements);
}

// ---- The gradient of the image as a convolution -----------------------------------------------

// grad_x asks for windows of grad_y: with a stride of 1 the element [h, w] was covered by the
// outputs [h + pad - r, w + pad - s], a window that is read backwards, or forwards by a filter that
// is turned by half a turn. So it is what windows_of() makes, with K for C and C for K.
//
// With a longer stride the elements of x are of stride_h stride_w kinds. Those at
// (h + pad_h) % stride_h = r0 were only met by rows r0, r0 + stride_h, ... of the filter:
//
//   stride 2, R = 3, pad 1     h = 0  r = 1         each kind is a convolution of its own, with a
//                              h = 1  r = 0, 2      stride of 1 and a part of the filter: nothing
//                              h = 2  r = 1         is multiplied by a zero between the outputs
//
// The rows h = start + i stride of one kind, i < count, meet the taps r0 + stride t, t < taps.
struct Kind {
  int start, count, r0, taps;
};
inline Kind kind_of(int r0, int length, int taps, int stride, int pad) {
  const int start = (r0 - pad % stride + stride) % stride;
  return {start, length > start ? (length - start - 1) / stride + 1 : 0, r0,
          r0 < taps ? (taps - r0 - 1) / stride + 1 : 0};
}

inline Windows windows_of_kind(float* grad_x, const float* grad_y, const float* w,
                               const Geometry& g, const Kind& down, const Kind& across) {
  // The last tap comes first: rows run on to p = (start + pad - r0) / stride + i.
  const auto first = [](const Kind& kind, int stride, int pad) {
    return (kind.start + pad - kind.r0) / stride - (kind.taps - 1);
  };
  const auto last_tap = [](const Kind& kind, int stride) {
    return kind.r0 + (kind.taps - 1) * stride;
  };
  Windows p{};
  p.from = grad_y, p.channels = g.K, p.height = g.P, p.width = g.Q;
  p.rows = down.count, p.cols = across.count;
  p.step_h = 1, p.step_w = 1;
  p.first_h = first(down, g.stride_h, g.pad_h), p.first_w = first(across, g.stride_w, g.pad_w);
  p.filter = w + (last_tap(down, g.stride_h) * g.S + last_tap(across, g.stride_w));
  p.maps = g.C, p.taps_h = down.taps, p.taps_w = across.taps;
  p.filter_map = g.taps(), p.filter_channel = g.C * g.taps();
  p.filter_row = down.taps > 1 ? -g.stride_h * g.S : 0;
  p.filter_col = across.taps > 1 ? -g.stride_w : 0;
  p.to = grad_x + (down.start * g.W + across.start);
  p.to_map = g.H * g.W, p.to_row = down.count > 1 ? g.stride_h * g.W : 0, p.to_col = g.stride_w;
  p.whole = g.stride_h == 1 && g.stride_w == 1 && g.H * g.W % 4 == 0 &&
            reinterpret_cast<std::uintptr_t>(grad_x) % sizeof(float4) == 0;
  return p;
}

// `workspace`: where the transformed tiles of winograd go, if that is the way to take; else null.
inline void launch_grad_x(float* grad_x, const float* grad_y, const float* w,
                          const Problem& problem, Workspace* workspace, hipStream_t stream) {
  if (size_of_x(problem) == 0) return;
  const Geometry g = geometry_of(problem);
  if (g.stride_h > g.R || g.stride_w > g.S)  // some elements were never met
    HIP_CHECK(hipMemsetAsync(grad_x, 0, size_of_x(problem) * sizeof(float), stream));
  for (int r0 = 0; r0 < std::min(g.stride_h, g.R); ++r0)
    for (int s0 = 0; s0 < std::min(g.stride_w, g.S); ++s0) {
      const Kind down = kind_of(r0, g.H, g.R, g.stride_h, g.pad_h);
      const Kind across = kind_of(s0, g.W, g.S, g.stride_w, g.pad_w);
      const Windows windows = windows_of_kind(grad_x, grad_y, w, g, down, across);
      const BiasActivation<dense::Linear> as_it_is{nullptr};
      if (workspace != nullptr && fits_winograd(windows))
        launch_winograd(windows, problem.N, as_it_is, *workspace, stream);
      else
        launch_right_tile(windows, problem.N, as_it_is, stream);
    }
}

// ---- The gradient of the filters as a matrix product ------------------------------------------

// grad_w = grad_y columns^T: its rows are the filters, its columns the elements (c, r, s) of a
// filter, and it goes through the pixels (n, p, q) of all images. Blocks of one number z take a
// slice of the pixels each and leave their sums in a part of the workspace of their own.
struct FilterSums {
  const float* grad_y;
  const float* x;
  Geometry g;
  gemm::Product sums;  // M, N, c, ldc, stride_c: where a slice's sums go
  bool with_bias;      // behind them the slice's sums of grad_y, one per filter
  int pixels, share;   // of all images; of a slice
  Divisor by_pixels, by_cols;
};

// sums[slice] = grad_y columns^T over the slice's pixels, and the sums of grad_y's rows.
// Fixes : grad_w_direct lets a few threads add up N P Q products each.
// Idea  : a matrix product once more, whose columns are made where they are used; as many slices
//         of the pixels as it takes to keep all multiprocessors busy (split-K, step 5.1).
// Thread: brings pixel t % kTileK of each tile for every filter and column of its group; Places
//         says which kThreadM x kThreadN of the sums it owns.
// Costs : 1 barrier per tile of kTileK pixels; a slice's sums go to memory and back.
template <class Shape, class Places>
static __global__ void GPU_LAUNCH_BOUNDS(Shape::kThreads, Shape::kResidentBlocks)
    grad_w_implicit_gemm(FilterSums p) {
  struct alignas(16) Tap {  // an element of a filter: how far from the window's corner it lies
    int offset, r, s;
  };
  constexpr int kGroups = Shape::kThreads / Shape::kTileK;  // of threads, a pixel each
  constexpr int kRows = (Shape::kTileM + kGroups - 1) / kGroups, kCols = Shape::kTileN / kGroups;
  constexpr int kOwnRows = (Shape::kTileM + Shape::kThreads - 1) / Shape::kThreads;
  static_assert(kGroups * Shape::kTileK == Shape::kThreads && kCols * kGroups == Shape::kTileN,
                "every thread brings as much");
  __shared__ gemm::Tiles<Shape> tiles[2];
  __shared__ Tap taps[Shape::kTileN];
  const int thread = static_cast<int>(threadIdx.x);
  const int line = thread % Shape::kTileK, group = thread / Shape::kTileK;
  const gemm::TileOrigin corner = gemm::tile_origin(p.sums, Shape::kTileM, Shape::kTileN);
  const gemm::ThreadTile place = Places::of(thread);
  const int first_filter = static_cast<int>(corner.row);
  for (int i = thread; i < Shape::kTileN; i += Shape::kThreads) {
    const int number = static_cast<int>(corner.col) + i;
    taps[i] = {0, kOutside, kOutside};
    if (number >= static_cast<int>(p.sums.N)) continue;
    const int c = number / p.g.taps(), r = number / p.g.S % p.g.R, s = number % p.g.S;
    taps[i] = {(c * p.g.H + r) * p.g.W + s, r, s};
  }
  __syncthreads();  // every column's tap is in shared memory

  const int begin = static_cast<int>(blockIdx.z) * p.share;
  const int end = min(begin + p.share, p.pixels);
  int next = begin;
  float held_y[kRows], held_x[kCols];
  const auto load_next = [&] {
    const int pixel = next + line;
    const bool is_pixel = pixel < end;
    const int number = is_pixel ? pixel : 0;
    const int n = p.by_pixels.quotient(number), place_y = p.by_pixels.remainder(number, n);
    const int row = p.by_cols.quotient(place_y), col = p.by_cols.remainder(place_y, row);
    const int h = row * p.g.stride_h - p.g.pad_h, w = col * p.g.stride_w - p.g.pad_w;
    const float* const of_y = p.grad_y + (n * p.g.image_of_y() + place_y);
    const float* const of_x = p.x + n * p.g.image_of_x();
    // Of no filters and of an image without rows nothing is inside.
    const int filters = is_pixel ? p.g.K : 0, height = is_pixel ? p.g.H : 0;
    GPU_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const int filter = first_filter + group + i * kGroups;
      held_y[i] = is_inside(filter, filters) ? of_y[filter * p.g.pixels()] : 0;
    }
    GPU_UNROLL
    for (int i = 0; i < kCols; ++i) {
      const Tap tap = taps[group + i * kGroups];
      const bool inside = is_inside(h + tap.r, height, w + tap.s, p.g.W);
      held_x[i] = inside ? of_x[h * p.g.W + w + tap.offset] : 0;
    }
    next += Shape::kTileK;
  };
  const auto store = [&](gemm::Tiles<Shape>& to) {
    GPU_UNROLL
    for (int i = 0; i < kRows; ++i)
      if (Shape::kTileM % kGroups == 0 || group + i * kGroups < Shape::kTileM)
        to.a[line][group + i * kGroups] = held_y[i];
    GPU_UNROLL
    for (int i = 0; i < kCols; ++i) to.b[line][group + i * kGroups] = held_x[i];
  };

  float sums[Shape::kThreadM][Shape::kThreadN] = {}, sums_of_y[kOwnRows] = {};
  const bool with_bias = p.with_bias && corner.col == 0;
  load_next();
  store(tiles[0]);
  __syncthreads();  // the first tiles are in shared memory
  for (int pixel = begin, step = 0; pixel < end; pixel += Shape::kTileK, ++step) {
    const gemm::Tiles<Shape>& current = tiles[step % 2];
    if (next < end) load_next();
    GPU_UNROLL
    for (int k = 0; k < Shape::kTileK; ++k) {
      float held_a[Shape::kThreadM], held_b[Shape::kThreadN];
      gemm::load_fragment(held_a, &current.a[k][place.row], place.row_step);
      gemm::load_fragment(held_b, &current.b[k][place.col], place.col_step);
      gemm::add_outer_product(sums, held_a, held_b);
    }
    for (int i = 0; with_bias && i < kOwnRows; ++i)
      for (int k = 0; k < Shape::kTileK; ++k)
        if (thread + i * Shape::kThreads < Shape::kTileM)
          sums_of_y[i] += current.a[k][thread + i * Shape::kThreads];
    if (pixel + Shape::kTileK < end) store(tiles[(step + 1) % 2]);
    __syncthreads();  // the next tiles are in shared memory, and all lines of these were read
  }
  gemm::store_tile<Shape>(p.sums, gemm::AlphaBeta{1, 0}, corner, place, sums);
  float* const to = p.sums.c + (blockIdx.z * p.sums.stride_c + p.sums.M * p.sums.N);
  for (int i = 0; with_bias && i < kOwnRows; ++i) {
    const int row = thread + i * Shape::kThreads;
    if (row < Shape::kTileM && first_filter + row < p.g.K) to[first_filter + row] = sums_of_y[i];
  }
}

// How add_slices divides its block: neighbouring columns, and groups that share the slices.
#if defined(GPU_BACKEND_CPU)
inline constexpr int kSumColumns = 32, kSumGroups = 1;
#else
inline constexpr int kSumColumns = 32, kSumGroups = 16;
#endif

// grad[i] = sum over slices of sums[slice, i] + beta grad[i]    weights, then biases.
// Fixes : a block of grad_w_implicit_gemm can't know when the others have left their sums.
// Idea  : a fixed order, so that every run gives the same bits.
// Thread: (x, y) adds slices y, y + kGroups, ... of one column; y = 0 adds up the groups' sums.
// Costs : 4 bytes per slice and column, which the caches still hold; 1 barrier.
template <int kGroups>
static __global__ void __launch_bounds__(kSumColumns* kGroups)
    grad_w_add_slices(float* grad_w, float* grad_bias, const float* sums, size_t stride, int slices,
                      size_t weights, size_t columns, float beta) {
  __shared__ float groups[kGroups][kSumColumns];
  const size_t i = size_t{blockIdx.x} * kSumColumns + threadIdx.x;
  float sum = 0;
  if (i < columns)
    for (int slice = static_cast<int>(threadIdx.y); slice < slices; slice += kGroups)
      sum += sums[size_t(slice) * stride + i];
  groups[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();  // every group's sum is in shared memory
  if (threadIdx.y > 0 || i >= columns) return;
  for (int group = 1; group < kGroups; ++group) sum += groups[group][threadIdx.x];
  float* const to = i < weights ? grad_w + i : grad_bias + (i - weights);
  *to = combine(sum, beta, to);
}

// Tiles of filters and their elements to choose from, as above.
struct FilterCandidate {
  size_t filters, elements;
  int pixels;    // of a tile
  int resident;  // blocks that a multiprocessor runs at the same time
  double speed;
  void (*launch)(const FilterSums& sums, size_t slices, hipStream_t stream);
};
template <class Shape>
void launch_filter_sums(const FilterSums& sums, size_t slices, hipStream_t stream) {
  const size_t tiles =
      gpu::ceil_div(sums.sums.M, Shape::kTileM) * gpu::ceil_div(sums.sums.N, Shape::kTileN);
  LAUNCH_ON(stream, (grad_w_implicit_gemm<Shape, Places<Shape>>),
            dim3(static_cast<unsigned>(tiles), 1, static_cast<unsigned>(slices)), Shape::kThreads,
            0, sums);
}
template <class Shape>
constexpr FilterCandidate filter_candidate(double speed) {
  return {Shape::kTileM,          Shape::kTileN, Shape::kTileK,
          Shape::kResidentBlocks, speed,         launch_filter_sums<Shape>};
}

#if defined(GPU_BACKEND_CPU)
using HighWide = gemm::Shape<16, 128, 8, 16, 16>;
using HighNarrow = gemm::Shape<16, 64, 8, 8, 16>;
using LowWide = gemm::Shape<8, 64, 8, 4, 16>;
using LowNarrow = gemm::Shape<8, 32, 8, 4, 8>;
#else
using HighWide = gemm::Shape<64, 192, 8, 8, 12, 3>;
using HighNarrow = gemm::Shape<64, 64, 8, 8, 8, 6>;
using LowWide = gemm::Shape<16, 96, 16, 4, 4, 4>;
using LowNarrow = gemm::Shape<16, 32, 16, 4, 4, 4>;
#endif
extern template void launch_filter_sums<HighWide>(const FilterSums&, size_t, hipStream_t);
extern template void launch_filter_sums<HighNarrow>(const FilterSums&, size_t, hipStream_t);
extern template void launch_filter_sums<LowWide>(const FilterSums&, size_t, hipStream_t);
extern template void launch_filter_sums<LowNarrow>(const FilterSums&, size_t, hipStream_t);

inline constexpr FilterCandidate kFilterCandidates[] = {
    filter_candidate<HighWide>(1.0),
    filter_candidate<HighNarrow>(0.9),
    filter_candidate<LowWide>(0.5),
    filter_candidate<LowNarrow>(0.4),
};

// The candidate that has the least to do: how many tiles there are depends on the slices.
inline const FilterCandidate& choose_filters(size_t filters, size_t elements) {
  const auto cost = [&](const FilterCandidate& c) {
    return static_cast<double>(gpu::ceil_div(filters, c.filters) * c.filters) *
           static_cast<double>(gpu::ceil_div(elements, c.elements) * c.elements) / c.speed;
  };
  return *std::min_element(std::begin(kFilterCandidates), std::end(kFilterCandidates),
                           [&](const auto& x, const auto& y) { return cost(x) < cost(y); });
}

inline constexpr size_t kLeastTiles = 4;  // of a slice: fewer do not pay for its sums' way

// Into how many slices the pixels are cut: so many that all multiprocessors have blocks to run.
inline size_t count_slices(const Problem& p, unsigned multiprocessors = gpu::multiprocessors()) {
  const Extent out = output_of(p);
  const size_t elements = window_of(p), pixels = p.N * out.height * out.width;
  if (p.K == 0 || elements == 0) return 1;
  const FilterCandidate& c = choose_filters(p.K, elements);
  const size_t tiles = gpu::ceil_div(p.K, c.filters) * gpu::ceil_div(elements, c.elements);
  const size_t wanted = size_t{multiprocessors} * static_cast<size_t>(c.resident) / tiles;
  const size_t most = pixels / (kLeastTiles * static_cast<size_t>(c.pixels));
  return std::clamp(std::min(wanted, most), size_t{1}, size_t{65535});
}

inline Workspace::Workspace(const Problem& largest)
    : tiles(use_winograd(largest) ? winograd_elements(largest) : 0),
      slices(count_slices(largest) * (size_of_w(largest) + largest.K)) {}

inline Workspace Workspace::for_all_versions(const Problem& largest) {
  Workspace made(largest);
  const size_t per_image = columns_per_image(largest);
  made.columns = DeviceBuffer<float>(fitting(largest.N, per_image) * per_image);
  if (fits_winograd(largest)) made.tiles = DeviceBuffer<float>(winograd_elements(largest));
  return made;
}

// With at most so many slices; `most` is images_of_launch's.
inline void launch_grad_w(const Gradients& to, const float* grad_y, const float* x,
                          const Problem& problem, float beta, Workspace& workspace,
                          size_t most_slices, hipStream_t stream, size_t most = kMostPlaces) {
  const size_t weights = size_of_w(problem), stride = weights + problem.K;
  if (to.w == nullptr || weights == 0) {
    if (to.bias != nullptr) launch_grad_bias(to.bias, grad_y, problem, beta, stream);
    return;
  }
  if (workspace.slices.size() < stride)
    throw std::invalid_argument("conv2d: the workspace was made for another problem");
  const FilterCandidate& candidate = choose_filters(problem.K, window_of(problem));
  FilterSums p{};
  p.g = geometry_of(problem), p.with_bias = to.bias != nullptr;
  p.by_pixels = Divisor(p.g.pixels()), p.by_cols = Divisor(p.g.Q);
  p.sums.M = problem.K, p.sums.N = window_of(problem);
  p.sums.c = workspace.slices.data(), p.sums.ldc = p.sums.N, p.sums.stride_c = stride;
  const size_t at_a_time = images_of_launch(static_cast<size_t>(p.g.pixels()), most);
  size_t n = 0;
  do {  // once even without images: there is beta
    Problem part = problem;
    part.N = std::min(at_a_time, problem.N - n);
    p.grad_y = grad_y + n * p.g.image_of_y(), p.x = x + n * p.g.image_of_x();
    p.pixels = static_cast<int>(part.N) * p.g.pixels();
    const size_t room = workspace.slices.size() / stride;
    const size_t slices = std::min({count_slices(part), room, most_slices});
    const size_t tiles = gpu::ceil_div(static_cast<size_t>(p.pixels), candidate.pixels);
    p.share = static_cast<int>(gpu::ceil_div(tiles, slices)) * candidate.pixels;
    candidate.launch(p, slices, stream);
    const size_t columns = weights + (p.with_bias ? problem.K : 0);
    LAUNCH_ON(stream, grad_w_add_slices<kSumGroups>, grid_of(columns, kSumColumns),
              dim3(kSumColumns, kSumGroups), 0, to.w, to.bias, workspace.slices.data(), stride,
              static_cast<int>(slices), weights, columns, beta);
    beta = 1;
    n += part.N;
  } while (n < problem.N);
}

inline void launch_backward_implicit_gemm(const Gradients& to, const float* grad_y, const float* x,
                                          const float* w, const Problem& problem, float beta,
                                          Workspace& workspace, hipStream_t stream = nullptr) {
  check_backward(to, grad_y, x, w, problem);
  launch_grad_w(to, grad_y, x, problem, beta, workspace, 1, stream);
  if (to.x != nullptr) launch_grad_x(to.x, grad_y, w, problem, nullptr, stream);
}

// ---- The filters in slices of the pixels ------------------------------------------------------

inline void launch_backward_sliced(const Gradients& to, const float* grad_y, const float* x,
                                   const float* w, const Problem& problem, float beta,
                                   Workspace& workspace, hipStream_t stream = nullptr) {
  check_backward(to, grad_y, x, w, problem);
  launch_grad_w(to, grad_y, x, problem, beta, workspace, count_slices(problem), stream);
  if (to.x != nullptr) launch_grad_x(to.x, grad_y, w, problem, nullptr, stream);
}

// ---- The image's gradient with fewer multiplications ------------------------------------------

inline void launch_backward_winograd(const Gradients& to, const float* grad_y, const float* x,
                                     const float* w, const Problem& problem, float beta,
                                     Workspace& workspace, hipStream_t stream = nullptr) {
  check_backward(to, grad_y, x, w, problem);
  launch_grad_w(to, grad_y, x, problem, beta, workspace, count_slices(problem), stream);
  if (to.x != nullptr) launch_grad_x(to.x, grad_y, w, problem, &workspace, stream);
}

// ---- What later stages call -------------------------------------------------------------------

// y = f(x * w + bias), queued on `stream`. A bias that is null adds nothing.
template <class Activation>
inline void forward(float* y, const float* x, const float* w, const float* bias,
                    const Problem& problem, hipStream_t stream = nullptr) {
  check_forward(y, x, w, problem);
  launch_right_tile(windows_of(y, x, w, problem), problem.N, BiasActivation<Activation>{bias},
                    stream);
}

// The same; with the workspace's memory in fewer multiplications where that pays.
template <class Activation>
inline void forward(float* y, const float* x, const float* w, const float* bias,
                    const Problem& problem, Workspace& workspace, hipStream_t stream = nullptr) {
  if (use_winograd(problem))
    launch_winograd<Activation>(y, x, w, bias, problem, workspace, stream);
  else
    forward<Activation>(y, x, w, bias, problem, stream);
}

// The gradients that are wanted, queued on `stream`. grad_w and grad_bias become beta (0 or 1)
// times what they were, unread where it is 0, plus the gradient; grad_x is overwritten.
inline void backward(const Gradients& to, const float* grad_y, const float* x, const float* w,
                     const Problem& problem, float beta, Workspace& workspace,
                     hipStream_t stream = nullptr) {
  const auto launch = use_winograd(problem) ? launch_backward_winograd : launch_backward_sliced;
  launch(to, grad_y, x, w, problem, beta, workspace, stream);
}

// ---- The versions -----------------------------------------------------------------------------

using Run = void (*)(float* y, const float* x, const float* w, const float* bias,
                     const Problem& problem, Workspace& workspace, hipStream_t stream);

// Does it go through transformed tiles, so that add_winograd_error() says more of its error?
struct Launch {
  Run run;
  bool (*transforms)(const Problem& problem) = [](const Problem&) { return false; };
};

// The same versions for every function: kVersions<Relu>, kVersions<Linear>.
template <class Activation>
inline constexpr Version<Launch> kVersions[] = {
    {"direct", {launch_direct<Activation>}, "one thread per output"},
    {"tiled", {launch_tiled<Activation>}, "a block reuses a piece of the image and some filters"},
    {"im2col", {launch_im2col<Activation>}, "windows as columns of a matrix, then step 2.3"},
    {"implicit_gemm",
     {launch_implicit_gemm<Activation>},
     "the columns are made in shared memory, where they are used"},
    {"known_window",
     {launch_known_window<Activation>},
     "3 x 3 at compile time: a bit per element, no places to work out"},
    {"right_tile", {launch_right_tile<Activation>}, "and a tile that suits the shape"},
    {"winograd",
     {launch_winograd<Activation>, fits_winograd},
     "3 x 3: a quarter of the multiplications, and larger errors"},
    {"best", {forward<Activation>, use_winograd}, "the faster of the last two"},
};

using BackwardRun = void (*)(const Gradients& to, const float* grad_y, const float* x,
                             const float* w, const Problem& problem, float beta,
                             Workspace& workspace, hipStream_t stream);
struct BackwardLaunch {
  BackwardRun run;
  bool (*transforms)(const Problem& problem) = [](const Problem&) { return false; };
};

inline constexpr Version<BackwardLaunch> kBackwardVersions[] = {
    {"backward_direct", {launch_backward_direct}, "one thread per element of a gradient"},
    {"backward_implicit_gemm",
     {launch_backward_implicit_gemm},
     "two matrix products whose columns are made where they are used"},
    {"backward_sliced",
     {launch_backward_sliced},
     "the filters' pixels in slices for all multiprocessors"},
    {"backward_winograd",
     {launch_backward_winograd, fits_winograd},
     "3 x 3: the image's in a quarter of the multiplications"},
    {"backward_best", {backward, use_winograd}, "the faster of the last two"},
};

}  // namespace conv2d
