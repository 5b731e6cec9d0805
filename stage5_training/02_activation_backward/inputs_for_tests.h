// What the tests of step 5.2 share: shapes, offsets, inputs.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "common/guarded.h"
#include "common/npy.h"
#include "common/testing.h"
#include "stage3_ml_ops/02_softmax/reference.h"
#include "stage5_training/02_activation_backward/activation_backward.h"
#include "stage5_training/02_activation_backward/reference.h"

namespace activation_backward_test {

using namespace activation_backward;
using testing::random_floats;
using testing::same_bits;

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Shape {
  size_t rows, cols;
};
// How far the arrays begin behind a multiple of 16 bytes, in elements.
struct Offsets {
  size_t inputs, output;
};
inline constexpr Offsets kOffsets[] = {{0, 0}, {3, 3}, {0, 1}};

inline Comparison compare_with(const std::vector<float>& got, const std::vector<double>& want,
                               const std::vector<double>& bound) {
  REQUIRE(got.size() == want.size());
  return compare(
      got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want[i]; },
      [&](size_t i) { return bound[i]; });
}

struct SoftmaxInputs {
  explicit SoftmaxInputs(Shape matrix)
      : shape(matrix), grad_p(random_floats(shape.rows * shape.cols, 3, 1)) {
    const std::vector<double> wide =
        softmax::softmax_cpu(random_floats(shape.rows * shape.cols, 4, 4), shape.cols);
    p.assign(wide.begin(), wide.end());
  }
  Shape shape;
  std::vector<float> grad_p, p;
};

}  // namespace activation_backward_test
