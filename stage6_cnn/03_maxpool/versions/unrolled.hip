// unrolled: a window that the compiler knows.
#include "common/gpu.h"
#include "stage6_cnn/03_maxpool/detail/window.h"

namespace maxpool {

// y, argmax = the largest of each window    x (planes,H,W), y, argmax (planes,P,Q); R = kR, S = kS.
// Fixes : the loop of rows compares a cell before it asks for the next, and counts as much as it
//         compares.
// Idea  : with kR and kS known there are no loops: all cells are on their way before the first is
//         looked at. What lies outside the image is -infinity, which is never larger.
// Thread: (x, y) owns the columns x, x + X, ... of the rows y, y + Y, ... in a grid of X by Y.
// Costs : 4 H W + 6 P Q bytes per plane; kR kS registers; a kernel for each size of a window.
template <unsigned kR, unsigned kS>
static __global__ void forward_unrolled(float* y, Index* argmax, const float* x, Shape shape) {
  const unsigned first_q = blockIdx.x * blockDim.x + threadIdx.x, next_q = gridDim.x * blockDim.x;
  const unsigned first_row = blockIdx.y * blockDim.y + threadIdx.y;
  const unsigned next_row = gridDim.y * blockDim.y;
  for (unsigned row = first_row; row < shape.planes * shape.P; row += next_row) {
    const unsigned plane = shape.by_P.quotient(row), p = row - plane * shape.P;
    const int top = static_cast<int>(p * shape.stride_h) - static_cast<int>(shape.pad_h);
    const Inside rows = inside(top, kR, shape.H);
    for (unsigned q = first_q; q < shape.Q; q += next_q) {
      const int left = static_cast<int>(q * shape.stride_w) - static_cast<int>(shape.pad_w);
      const Inside columns = inside(left, kS, shape.W);
      // The window's corner may lie outside: this wraps around, and back where a cell is added.
      const size_t corner = (size_t{plane} * shape.H + static_cast<size_t>(top)) * shape.W +
                            static_cast<size_t>(left);
      // exercise: load all cells, take the largest, store it with its place (about 19 lines)
      float cells[kR][kS];
      GPU_UNROLL
      for (int r = 0; r < static_cast<int>(kR); ++r) {
        GPU_UNROLL
        for (int s = 0; s < static_cast<int>(kS); ++s) {
          const bool is_cell =
              r >= rows.begin && r < rows.end && s >= columns.begin && s < columns.end;
          const size_t cell = corner + static_cast<size_t>(r) * shape.W + static_cast<size_t>(s);
          cells[r][s] = is_cell ? x[cell] : -INFINITY;
        }
      }
      Largest best = {
          -INFINITY, static_cast<unsigned>(rows.begin) * kS + static_cast<unsigned>(columns.begin)};
      GPU_UNROLL
      for (unsigned r = 0; r < kR; ++r) {
        GPU_UNROLL
        for (unsigned s = 0; s < kS; ++s) take(best, cells[r][s], r * kS + s);
      }
      const size_t i = size_t{row} * shape.Q + q;
      y[i] = best.value;
      argmax[i] = static_cast<Index>(best.place);
      // end exercise
    }
  }
}

template <unsigned kR, unsigned kS>
void launch_window(float* y, Index* argmax, const float* x, const Problem& p, hipStream_t stream) {
  launch_over_rows(
      [&](const matrix_activations::Grid& grid, float* to, Index* places, const float* from,
          const Shape& shape) {
        LAUNCH_ON(stream, (forward_unrolled<kR, kS>), grid.blocks, grid.threads, 0, to, places,
                  from, shape);
      },
      y, argmax, x, p);
}

// Windows for which there is no kernel are left to `rows`.
void launch_unrolled(float* y, Index* argmax, const float* x, const Problem& p,
                     hipStream_t stream) {
  if (p.R == 2 && p.S == 2)
    launch_window<2, 2>(y, argmax, x, p, stream);
  else if (p.R == 3 && p.S == 3)
    launch_window<3, 3>(y, argmax, x, p, stream);
  else
    launch_rows(y, argmax, x, p, stream);
}

}  // namespace maxpool
