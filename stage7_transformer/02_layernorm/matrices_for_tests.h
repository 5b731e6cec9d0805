// What the tests of 7.2 and 7.3 share: shapes, alignments and inputs.
#pragma once

#include <iterator>
#include <string>
#include <vector>

#include "common/guarded.h"
#include "common/npy.h"
#include "common/testing.h"
#include "common/version.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage3_ml_ops/02_softmax/detail/grid.h"
#include "stage5_training/02_activation_backward/inputs_for_tests.h"
#include "stage7_transformer/02_layernorm/problem.h"
#include "stage7_transformer/02_layernorm/reference.h"

namespace layernorm {

using activation_backward_test::compare_with;

inline constexpr float kEps = 1e-5f;

// How far the arrays begin behind a multiple of 16 bytes, in elements.
struct Offsets {
  size_t inputs, outputs;
};
inline constexpr Offsets kOffsets[] = {{0, 0}, {1, 1}, {0, 3}};

// Every way to hold a row, its ends, and rows that nobody can hold.
inline constexpr Shape kShapes[] = {
    {1, 1},    {5, 1},    {7, 3},    {8, 6},    {3, 15},   {33, 16},  {5, 31},   {4, 64},
    {3, 100},  {9, 128},  {2, 129},  {3, 256},  {2, 260},  {2, 512},  {2, 516},  {2, 1003},
    {3, 1024}, {2, 1028}, {1, 2048}, {1, 2052}, {1, 4099}, {1, 4100}, {1, 8200}, {1, 51203}};

struct Inputs {
  explicit Inputs(Shape matrix, float scale = 3, float shift = 1)
      : shape(matrix),
        x(testing::random_floats(matrix.rows * matrix.cols, 0, scale, shift)),
        residual(testing::random_floats(matrix.rows * matrix.cols, 4, scale)),
        gain(testing::random_floats(matrix.cols, 1, 1, 0.5f)),
        bias(testing::random_floats(matrix.cols, 2, 1)) {}
  Shape shape;
  std::vector<float> x, residual, gain, bias;
  float eps = kEps;
};

// A step's versions and what later steps call.
template <class Launch, size_t kCount>
std::vector<Version<Launch>> with_best(const Version<Launch> (&versions)[kCount], Launch best) {
  std::vector<Version<Launch>> all(std::begin(versions), std::end(versions));
  all.push_back({"best", best, ""});
  return all;
}

// NumPy's arrays of these steps.
inline NpyArray numpy_array(const std::string& name) {
  return read_npy(reference_path("layernorm_" + name + ".npy"));
}
inline std::vector<float> numpy_floats(const std::string& name) {
  return numpy_array(name).floats();
}

}  // namespace layernorm
