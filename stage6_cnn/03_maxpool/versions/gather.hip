// gather: each cell asks the windows over it.
#include "common/gpu.h"
#include "stage3_ml_ops/01_matrix_activations/detail/grid.h"
#include "stage6_cnn/03_maxpool/detail/arriving.h"

namespace maxpool {

constexpr unsigned kGatherRows = 4;  // of grad_x, per thread of `gather`

// The windows [begin, end) over a row of the image, of `count` windows of `size` rows; columns
// alike. `stride` divides.
struct Covering {
  unsigned begin, end;
};
__device__ inline Covering windows_over(unsigned row, unsigned size, Divisor stride, unsigned pad,
                                        unsigned count) {
  const unsigned at = row + pad;  // in rows of the padding and the image
  return {at < size ? 0 : stride.quotient(at - size) + 1, min(stride.quotient(at) + 1, count)};
}

// grad_x = what arrives at the windows that have taken a cell    grad_x (planes,H,W); argmax
//         (planes,P,Q), any sizes.
// Fixes : scatter_atomic has grad_x come back from memory, and its sums depend on who comes first.
// Idea  : a cell knows which windows lie over it and asks each, in their order, whether it was
//         taken. Every cell is written once, by one thread.
// Thread: (x, y) owns the columns x, x + X, ... of the rows y, y + Y, ... in a grid of X by Y.
// Costs : 4 H W + 6 P Q bytes per plane, as often out of a cache as windows overlap; a short
//         division and two quotients by a stride per row, two more per column.
template <class Gradient>
static __global__ void backward_gather(float* grad_x, Gradient arriving, const Index* argmax,
                                       Shape shape) {
  const unsigned first_w = blockIdx.x * blockDim.x + threadIdx.x, next_w = gridDim.x * blockDim.x;
  const unsigned first_row = blockIdx.y * blockDim.y + threadIdx.y;
  const unsigned next_row = gridDim.y * blockDim.y;
  for (unsigned w = first_w; w < shape.W; w += next_w) {
    const Covering across = windows_over(w, shape.S, shape.by_stride_w, shape.pad_w, shape.Q);
    for (unsigned row = first_row; row < shape.planes * shape.H; row += next_row) {
      const unsigned plane = shape.by_H.quotient(row), h = row - plane * shape.H;
      const Covering down = windows_over(h, shape.R, shape.by_stride_h, shape.pad_h, shape.P);
      float sum = 0;
      // exercise: the sum of what arrives where this cell was taken (about 8 lines)
      for (unsigned p = down.begin; p < down.end; ++p)
        for (unsigned q = across.begin; q < across.end; ++q) {
          const size_t i = (size_t{plane} * shape.P + p) * shape.Q + q;
          const unsigned r = h + shape.pad_h - p * shape.stride_h;
          const unsigned s = w + shape.pad_w - q * shape.stride_w;
          const float grad = arriving(i);
          sum += argmax[i] == r * shape.S + s ? grad : 0.0f;
        }
      // end exercise
      grad_x[size_t{row} * shape.W + w] = sum;
    }
  }
}

void launch_gather(float* grad_x, const Arriving& arriving, const Index* argmax, const Problem& p,
                   hipStream_t stream) {
  Shape shape = shape_of(p);
  for_planes(p, std::max(shape.H, shape.P), [&](size_t first, unsigned planes) {
    shape.planes = planes;
    const size_t output = first * shape.P * shape.Q;
    const size_t rows = gpu::ceil_div(size_t{planes} * shape.H, size_t{kGatherRows});
    const matrix_activations::Grid grid = matrix_activations::grid_2d(rows, shape.W);
    with_gradient(arriving, [&](auto gradient) {
      LAUNCH_ON(stream, (backward_gather<decltype(gradient)>), grid.blocks, grid.threads, 0,
                grad_x + first * shape.H * shape.W, gradient.from(output), argmax + output, shape);
    });
  });
}

}  // namespace maxpool
