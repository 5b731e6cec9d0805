// gather_unrolled: windows that the compiler knows; cells under the same windows ask once.
#include "common/gpu.h"
#include "stage3_ml_ops/01_matrix_activations/detail/grid.h"
#include "stage6_cnn/03_maxpool/detail/arriving.h"

namespace maxpool {

// As many cells as a stride is long have the same windows over them. 3x3 every 2, padding 1:
//
//   cell              0 1 | 2 3 | 4 5 | ...        a block: cells 2a, 2a + 1
//   window 0   [ .    0 1 ]  |     |
//   window 1          [ 1 | 2 3 ]  |               over the block are the windows a and a + 1;
//   window 2              |   [ 3 | 4 5 ]          cell 2a is in a's row 1, 2a + 1 in a's row 2 and
//                                                  in row 0 of a + 1

// How the image is cut into blocks of stride x stride cells.
struct Blocks {
  unsigned down, across;  // of a plane
  Divisor by_down;
  bool packed;  // the rows of a block are whole and aligned: one store each
};

// grad_x = what arrives at the windows that have taken a cell    grad_x (planes,H,W); argmax
//         (planes,P,Q); R = S = kSize, both strides kStride, both paddings kPhase + k kStride.
// Fixes : the cells of gather ask the same windows one by one, and which ones takes longer to find
//         out than to ask.
// Idea  : one thread for a block of cells asks each window once, all of them before it looks at the
//         first answer. Which place of a window is which cell is known to the compiler.
// Thread: (x, y) owns the blocks x, x + X, ... of the rows of blocks y, y + Y, ...
// Costs : 4 H W + 6 P Q bytes per plane, out of a cache as often as the windows of blocks overlap.
template <unsigned kSize, unsigned kStride, unsigned kPhase, class Gradient>
static __global__ void backward_gather_unrolled(float* grad_x, Gradient arriving,
                                                const Index* argmax, Shape shape, Blocks blocks) {
  // Over block a lie the windows a + kFirst, ..., counted from that whose row kPhase is the block's
  // row 0.
  constexpr int kFirst = -static_cast<int>((kSize - 1 - kPhase) / kStride);
  constexpr int kOver = static_cast<int>((kStride - 1 + kPhase) / kStride) - kFirst + 1;
  constexpr int step = kStride, size = kSize;
  const unsigned next_block = gridDim.x * blockDim.x, next_row = gridDim.y * blockDim.y;
  for (unsigned row = blockIdx.y * blockDim.y + threadIdx.y; row < shape.planes * blocks.down;
       row += next_row) {
    const unsigned plane = blocks.by_down.quotient(row), a = row - plane * blocks.down;
    const int first_p = static_cast<int>(a + shape.pad_h / kStride) + kFirst;
    for (unsigned b = blockIdx.x * blockDim.x + threadIdx.x; b < blocks.across; b += next_block) {
      const int first_q = static_cast<int>(b + shape.pad_w / kStride) + kFirst;
      float grads[kOver][kOver] = {};
      unsigned places[kOver][kOver];
      GPU_UNROLL
      for (int i = 0; i < kOver; ++i) {
        GPU_UNROLL
        for (int j = 0; j < kOver; ++j) {
          const int p = first_p + i, q = first_q + j;
          places[i][j] = kSize * kSize;  // no cell's
          if (p < 0 || p >= static_cast<int>(shape.P) || q < 0 || q >= static_cast<int>(shape.Q))
            continue;
          const size_t window = (size_t{plane} * shape.P + static_cast<unsigned>(p)) * shape.Q +
                                static_cast<unsigned>(q);
          places[i][j] = argmax[window], grads[i][j] = arriving(window);
        }
      }

      const size_t first_cell = (size_t{plane} * shape.H + size_t{a} * kStride) * shape.W;
      GPU_UNROLL
      for (int u = 0; u < step; ++u) {
        Pack<float, kStride> sums = {};
        // exercise: the sums of the cells of the block's row u (about 13 lines)
        GPU_UNROLL
        for (int v = 0; v < step; ++v) {
          GPU_UNROLL
          for (int i = 0; i < kOver; ++i) {
            GPU_UNROLL
            for (int j = 0; j < kOver; ++j) {
              const int r = u + static_cast<int>(kPhase) - (kFirst + i) * step;
              const int s = v + static_cast<int>(kPhase) - (kFirst + j) * step;
              if (r < 0 || r >= size || s < 0 || s >= size) continue;
              const bool taken = places[i][j] == static_cast<unsigned>(r * size + s);
              sums.element[v] += taken ? grads[i][j] : 0.0f;
            }
          }
        }
        // end exercise
        if (a * kStride + static_cast<unsigned>(u) >= shape.H) continue;
        float* to = grad_x + first_cell + static_cast<size_t>(u) * shape.W + size_t{b} * kStride;
        if (blocks.packed) {
          packs<kStride>(to)[0] = sums;
          continue;
        }
        GPU_UNROLL
        for (int v = 0; v < step; ++v)
          if (b * kStride + static_cast<unsigned>(v) < shape.W) to[v] = sums.element[v];
      }
    }
  }
}

template <unsigned kSize, unsigned kStride, unsigned kPhase>
void launch_blocks(float* grad_x, const Arriving& arriving, const Index* argmax, const Problem& p,
                   hipStream_t stream) {
  Shape shape = shape_of(p);
  const size_t down = gpu::ceil_div(p.H, kStride), across = gpu::ceil_div(p.W, kStride);
  const Blocks blocks{static_cast<unsigned>(down), static_cast<unsigned>(across), Divisor(down),
                      p.W % kStride == 0 && is_packed<kStride>(grad_x)};
  for_planes(p, down, [&](size_t first, unsigned planes) {
    shape.planes = planes;
    const size_t output = first * shape.P * shape.Q;
    const matrix_activations::Grid grid =
        matrix_activations::grid_2d(size_t{planes} * down, across);
    with_gradient(arriving, [&](auto gradient) {
      LAUNCH_ON(stream, (backward_gather_unrolled<kSize, kStride, kPhase, decltype(gradient)>),
                grid.blocks, grid.threads, 0, grad_x + first * p.H * p.W, gradient.from(output),
                argmax + output, shape, blocks);
    });
  });
}

// Windows for which there is no kernel are left to `gather`.
void launch_gather_unrolled(float* grad_x, const Arriving& arriving, const Index* argmax,
                            const Problem& p, hipStream_t stream) {
  const auto is = [&](size_t size, size_t stride, size_t phase) {
    return p.R == size && p.S == size && p.stride_h == stride && p.stride_w == stride &&
           p.pad_h % stride == phase && p.pad_w % stride == phase;
  };
  output_of(p);  // throws
  if (is(2, 2, 0))
    launch_blocks<2, 2, 0>(grad_x, arriving, argmax, p, stream);
  else if (is(3, 2, 0))
    launch_blocks<3, 2, 0>(grad_x, arriving, argmax, p, stream);
  else if (is(3, 2, 1))
    launch_blocks<3, 2, 1>(grad_x, arriving, argmax, p, stream);
  else if (is(3, 1, 0))
    launch_blocks<3, 1, 0>(grad_x, arriving, argmax, p, stream);
  else
    launch_gather(grad_x, arriving, argmax, p, stream);
}

}  // namespace maxpool
