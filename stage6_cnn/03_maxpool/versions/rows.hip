// rows: a grid of the output's rows: a short division per row.
#include "common/gpu.h"
#include "stage6_cnn/03_maxpool/detail/window.h"

namespace maxpool {

// The largest cell of the window (p, q) of a plane. Where all are -infinity it is the first.
__device__ inline Largest largest(const float* plane, const Shape& shape, unsigned p, unsigned q) {
  const int top = static_cast<int>(p * shape.stride_h) - static_cast<int>(shape.pad_h);
  const int left = static_cast<int>(q * shape.stride_w) - static_cast<int>(shape.pad_w);
  const Inside rows = inside(top, shape.R, shape.H), columns = inside(left, shape.S, shape.W);
  Largest best = {-INFINITY, static_cast<unsigned>(rows.begin) * shape.S +
                                 static_cast<unsigned>(columns.begin)};
  for (int r = rows.begin; r < rows.end; ++r) {
    const float* row = plane + static_cast<size_t>(top + r) * shape.W;
    for (int s = columns.begin; s < columns.end; ++s)
      take(best, row[left + s], static_cast<unsigned>(r) * shape.S + static_cast<unsigned>(s));
  }
  return best;
}

// y, argmax = the largest of each window    x (planes,H,W), y, argmax (planes,P,Q), any sizes.
// Fixes : thread_per_output divides twice in 64 bits for every output.
// Idea  : the grid's x counts columns, its y the rows of all planes: one short division per row.
// Thread: (x, y) owns the columns x, x + X, ... of the rows y, y + Y, ... in a grid of X by Y.
// Costs : 4 H W + 6 P Q bytes per plane; the loop knows no bounds, so few loads are on their way.
static __global__ void forward_rows(float* y, Index* argmax, const float* x, Shape shape) {
  const unsigned first_q = blockIdx.x * blockDim.x + threadIdx.x, next_q = gridDim.x * blockDim.x;
  const unsigned first_row = blockIdx.y * blockDim.y + threadIdx.y;
  const unsigned next_row = gridDim.y * blockDim.y;
  for (unsigned row = first_row; row < shape.planes * shape.P; row += next_row) {
    const unsigned plane = shape.by_P.quotient(row), p = row - plane * shape.P;
    for (unsigned q = first_q; q < shape.Q; q += next_q) {
      const size_t i = size_t{row} * shape.Q + q;
      const Largest best = largest(x + size_t{plane} * shape.H * shape.W, shape, p, q);
      y[i] = best.value;
      argmax[i] = static_cast<Index>(best.place);
    }
  }
}

void launch_rows(float* y, Index* argmax, const float* x, const Problem& p, hipStream_t stream) {
  launch_over_rows(
      [&](const matrix_activations::Grid& grid, float* to, Index* places, const float* from,
          const Shape& shape) {
        LAUNCH_ON(stream, forward_rows, grid.blocks, grid.threads, 0, to, places, from, shape);
      },
      y, argmax, x, p);
}

}  // namespace maxpool
