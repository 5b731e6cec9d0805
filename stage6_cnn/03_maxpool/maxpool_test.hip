// Kernels with planted mistakes, for planted_mistakes_test.cpp.
#include "common/gpu.h"
#include "stage6_cnn/03_maxpool/detail/window.h"

namespace maxpool_test {

using maxpool::Index;
using maxpool::Problem;

enum class Mistake { LastOfEquals, PaddingCounts, NanIsLost, PlaceByColumns };

// One thread, all outputs, and one mistake.
template <Mistake mistake>
static __global__ void wrong_forward(float* y, Index* argmax, const float* x,
                                     maxpool::Shape shape) {
  for (size_t i = 0; i < size_t{shape.planes} * shape.P * shape.Q; ++i) {
    const size_t plane = i / (shape.P * shape.Q);
    const int top =
        static_cast<int>(i / shape.Q % shape.P * shape.stride_h) - static_cast<int>(shape.pad_h);
    const int left = static_cast<int>(i % shape.Q * shape.stride_w) - static_cast<int>(shape.pad_w);
    maxpool::Largest best = {-INFINITY, 0};
    bool found = false;
    for (int r = 0; r < static_cast<int>(shape.R); ++r)
      for (int s = 0; s < static_cast<int>(shape.S); ++s) {
        const int h = top + r, w = left + s;
        const bool is_cell =
            h >= 0 && h < static_cast<int>(shape.H) && w >= 0 && w < static_cast<int>(shape.W);
        if (!is_cell && mistake != Mistake::PaddingCounts) continue;
        const float value =
            is_cell
                ? x[(plane * shape.H + static_cast<size_t>(h)) * shape.W + static_cast<size_t>(w)]
                : 0.0f;
        const int place = mistake == Mistake::PlaceByColumns ? s * static_cast<int>(shape.R) + r
                                                             : r * static_cast<int>(shape.S) + s;
        maxpool::Largest next = best;
        if (mistake == Mistake::LastOfEquals && value == best.value)
          next = {value, static_cast<unsigned>(place)};
        else if (mistake == Mistake::NanIsLost)
          next = value > best.value ? maxpool::Largest{value, static_cast<unsigned>(place)} : best;
        else
          maxpool::take(next, value, static_cast<unsigned>(place));
        best = found ? next : maxpool::Largest{value, static_cast<unsigned>(place)};
        found = true;
      }
    y[i] = best.value;
    argmax[i] = static_cast<Index>(best.place);
  }
}

template <Mistake mistake>
void launch_wrong(float* y, Index* argmax, const float* x, const Problem& p) {
  maxpool::Shape shape = maxpool::shape_of(p);
  shape.planes = static_cast<unsigned>(p.N * p.C);
  LAUNCH((wrong_forward<mistake>), 1, 1, 0, y, argmax, x, shape);
}

void launch_last_of_equals(float* y, Index* argmax, const float* x, const Problem& p, hipStream_t) {
  launch_wrong<Mistake::LastOfEquals>(y, argmax, x, p);
}
void launch_padding_counts(float* y, Index* argmax, const float* x, const Problem& p, hipStream_t) {
  launch_wrong<Mistake::PaddingCounts>(y, argmax, x, p);
}
void launch_nan_is_lost(float* y, Index* argmax, const float* x, const Problem& p, hipStream_t) {
  launch_wrong<Mistake::NanIsLost>(y, argmax, x, p);
}
void launch_place_by_columns(float* y, Index* argmax, const float* x, const Problem& p,
                             hipStream_t) {
  launch_wrong<Mistake::PlaceByColumns>(y, argmax, x, p);
}

}  // namespace maxpool_test
