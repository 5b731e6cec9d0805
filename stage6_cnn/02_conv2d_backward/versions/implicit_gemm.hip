// implicit_gemm: two matrix products whose columns are made where they are used.
#include "common/gpu.h"
#include "stage2_matrix/03_gemm/detail/epilogue.h"
#include "stage2_matrix/03_gemm/detail/product.h"
#include "stage2_matrix/03_gemm/detail/row_sums.h"
#include "stage2_matrix/03_gemm/detail/tile_loop.h"
#include "stage6_cnn/01_conv2d/detail/window_sums.h"
#include "stage6_cnn/02_conv2d_backward/detail/filter_sums.h"
#include "stage6_cnn/02_conv2d_backward/problem.h"

namespace conv2d_backward {

using conv2d::is_inside, conv2d::kOutside;

// sums[slice] = grad_y columns^T over the slice's pixels, and the sums of grad_y's rows.
// Fixes : direct has few weights, and a thread for each adds up N P Q products one by one.
// Idea  : a matrix product whose columns are made where they are used, as in step 6.1. A slice of
//         the pixels is a product of its own (split-K, step 5.1); this version has one slice.
// Thread: brings pixel t % kTileK of each tile for every filter and column of its group; Places
//         says which kThreadM x kThreadN of the sums it owns.
// Costs : 1 barrier per tile of kTileK pixels; a slice's sums go to memory and back.
template <class Shape>
static __global__ void GPU_LAUNCH_BOUNDS(Shape::kThreads, Shape::kResidentBlocks)
    grad_w_sum_pixels(FilterSums p) {
  struct alignas(16) Tap {  // an element of a filter: how far from the window's corner it lies
    int offset, r, s;
  };
  constexpr int kGroups = Shape::kThreads / Shape::kTileK;  // of threads, a pixel each
  constexpr int kRows = (Shape::kTileM + kGroups - 1) / kGroups, kCols = Shape::kTileN / kGroups;
  static_assert(kGroups * Shape::kTileK == Shape::kThreads && kCols * kGroups == Shape::kTileN,
                "every thread brings as much");
  __shared__ gemm::Tiles<Shape> tiles[2];
  __shared__ Tap taps[Shape::kTileN];
  const int thread = static_cast<int>(threadIdx.x);
  const int line = thread % Shape::kTileK, group = thread / Shape::kTileK;
  const gemm::TileOrigin corner = gemm::tile_origin(p.sums, Shape::kTileM, Shape::kTileN);
  const gemm::ThreadTile own = conv2d::Places<Shape>::of(thread);
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
  float held_y[kRows] = {}, held_x[kCols] = {};
  const auto load_next = [&] {
    const int pixel = next + line;
    const bool is_pixel = pixel < end;
    const int number = is_pixel ? pixel : 0;
    int n = 0, place_y = 0, h = 0, w = 0;
    // exercise: the pixel's image and place in it, and the corner of its window (about 4 lines)
    n = p.by_pixels.quotient(number);
    place_y = p.by_pixels.remainder(number, n);
    const int row = p.by_cols.quotient(place_y), col = p.by_cols.remainder(place_y, row);
    h = row * p.g.stride_h - p.g.pad_h, w = col * p.g.stride_w - p.g.pad_w;
    // end exercise
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

  float sums[Shape::kThreadM][Shape::kThreadN] = {};
  gemm::TileRowSums<Shape> sums_of_y(thread);
  const bool with_bias = p.with_bias && corner.col == 0;
  const auto add_bias = [&](const gemm::Tiles<Shape>& current) {
    if (with_bias) sums_of_y.add(current);
  };
  const int steps = (end - begin + Shape::kTileK - 1) / Shape::kTileK;
  gemm::add_tiles<Shape>(sums, tiles, steps, own, load_next, store, add_bias);
  gemm::store_tile<Shape>(p.sums, gemm::AlphaBeta{1, 0}, corner, own, sums);
  float* const to = p.sums.c + (blockIdx.z * p.sums.stride_c + p.sums.M * p.sums.N);
  if (!with_bias) return;
  sums_of_y.give([&](int row, float sum) {
    if (first_filter + row < p.g.K) to[first_filter + row] = sum;
  });
}

template <class Shape>
void launch_filter_sums(const FilterSums& sums, size_t slices, hipStream_t stream) {
  const size_t tiles =
      gpu::ceil_div(sums.sums.M, Shape::kTileM) * gpu::ceil_div(sums.sums.N, Shape::kTileN);
  LAUNCH_ON(stream, grad_w_sum_pixels<Shape>,
            dim3(static_cast<unsigned>(tiles), 1, static_cast<unsigned>(slices)), Shape::kThreads,
            0, sums);
}
template <class Shape>
constexpr FilterTile filter_tile(double speed) {
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

const std::array<FilterTile, 4>& filter_tiles() {
  static constexpr std::array<FilterTile, 4> kTiles = {
      filter_tile<HighWide>(1.0),
      filter_tile<HighNarrow>(0.9),
      filter_tile<LowWide>(0.5),
      filter_tile<LowNarrow>(0.4),
  };
  return kTiles;
}

void launch_implicit_gemm(const Gradients& to, const float* grad_y, const float* x, const float* w,
                          const Problem& problem, float beta, Workspace& workspace,
                          hipStream_t stream) {
  check_backward(to, grad_y, x, w, problem);
  launch_grad_w(to, grad_y, x, problem, beta, workspace, 1, stream);
  if (to.x != nullptr) launch_grad_x(to.x, grad_y, w, problem, nullptr, 0, stream);
}

}  // namespace conv2d_backward
