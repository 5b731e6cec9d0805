// What the forward versions share: which value of a window wins, and which of its cells there are.
#pragma once

#include "common/gpu.h"
#include "stage3_ml_ops/01_matrix_activations/detail/grid.h"
#include "stage6_cnn/03_maxpool/detail/shape.h"

namespace maxpool {

struct Largest {
  float value;
  unsigned place;
};

// What is not larger comes too late. A comparison with NaN is false: `not less or equal` lets a NaN
// win over numbers, and nothing wins over a NaN.
__device__ inline void take(Largest& best, float value, unsigned place) {
  const bool larger = !(value <= best.value) && best.value == best.value;
  best = {larger ? value : best.value, larger ? place : best.place};
}

// The rows [begin, end) of a window of `size` rows that lie in an image of `extent` rows, where the
// window's row 0 is the image's row `first`; columns alike.
struct Inside {
  int begin, end;
};
__device__ inline Inside inside(int first, unsigned size, unsigned extent) {
  return {max(-first, 0), min(static_cast<int>(size), static_cast<int>(extent) - first)};
}

// Calls kernel(grid, y, argmax, x, shape) for all planes, with a grid of the output's rows: once,
// unless there are more rows than 32 bits can count.
template <class Kernel>
inline void launch_over_rows(Kernel&& kernel, float* y, Index* argmax, const float* x,
                             const Problem& p) {
  Shape shape = shape_of(p);
  for_planes(p, shape.P, [&](size_t first, unsigned planes) {
    shape.planes = planes;
    const size_t output = first * shape.P * shape.Q;
    kernel(matrix_activations::grid_2d(size_t{planes} * shape.P, shape.Q), y + output,
           argmax + output, x + first * shape.H * shape.W, shape);
  });
}

}  // namespace maxpool
