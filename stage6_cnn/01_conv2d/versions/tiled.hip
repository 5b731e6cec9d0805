// tiled: a block reuses a patch of the image and a few filters from shared memory.
#include "common/gpu.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage4_forward/01_dense/dense.h"
#include "stage6_cnn/01_conv2d/detail/geometry.h"
#include "stage6_cnn/01_conv2d/problem.h"

namespace conv2d {

constexpr int kTileSide = 16;             // of the square of outputs that a block computes
constexpr int kTileFilters = 8;           // filters that it computes them for
constexpr int kPiece = 8;                 // rows and columns of a filter that are staged at a time
constexpr size_t kTiledBytes = 32 << 10;  // of shared memory

// What the windows of `side` outputs in a row cover with a piece of the filter.
__host__ __device__ inline int patch_length(int side, int stride, int piece) {
  return (side - 1) * stride + piece;
}

// y = f(x * w + bias)    x (N,C,H,W)  w (K,C,R,S)  y (N,K,P,Q), any sizes.
// Fixes : direct reads an element of x for each window over it, and again for each filter.
// Idea  : a block brings the patch of a channel that its outputs see to shared memory, and pieces
//         of kTileFilters filters.
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

template <class Activation>
void launch_tiled(float* y, const float* x, const float* w, const float* bias,
                  const Problem& problem, Workspace&, hipStream_t stream) {
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

template void launch_tiled<dense::Linear>(float*, const float*, const float*, const float*,
                                          const Problem&, Workspace&, hipStream_t);
template void launch_tiled<activations::Relu>(float*, const float*, const float*, const float*,
                                              const Problem&, Workspace&, hipStream_t);

}  // namespace conv2d
