// What the tests of 7.6 share: a block's inputs and outputs on the host, and the verdict on these.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "common/guarded.h"
#include "common/testing.h"
#include "stage7_transformer/06_transformer_block/reference.h"

namespace block_test {

using namespace transformer_block;

using testing::random_floats;
using testing::same_bits;

// From -8 to 8.
inline std::vector<float> integers(size_t n, std::uint32_t stream) {
  std::vector<float> values = random_floats(n, stream);
  for (float& value : values) value = std::round(8 * value);
  return values;
}

// A block's inputs on the host. The weights keep values of order 1 at order 1, the biases and gains
// are unlike 0 and 1, which would hide where they go.
struct Inputs {
  explicit Inputs(const Shape& of) : shape(of) {
    x = random_floats(shape.rows() * shape.C, 1, 1.5f, 0.25f);
    grad_y = random_floats(shape.rows() * shape.C, 2);
    std::uint32_t stream = 10;
    for (const ParameterShape& parameter : parameter_shapes(shape.C)) {
      size_t n = 1;
      for (const size_t size : parameter.shape) n *= size;
      const bool is_gain = std::string(parameter.name).find("norm") == 0 && stream % 2 == 0;
      const float scale = parameter.shape.size() == 2
                              ? 1.5f / std::sqrt(static_cast<float>(parameter.shape[1]))
                              : 0.5f;
      parameters.push_back(random_floats(n, stream++, scale, is_gain ? 1.0f : 0.0f));
    }
  }
  Shape shape;
  std::vector<float> x, grad_y;
  std::vector<std::vector<float>> parameters;
};

struct Outputs {
  std::vector<float> y, grad_x;
  std::vector<std::vector<float>> gradients;
  bool intact;
};

inline Comparison against(const std::vector<float>& got, const Values& want) {
  Comparison verdict = compare(
      got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want.value[i]; },
      [&](size_t i) { return want.error[i]; });
  verdict.ok = verdict.ok && got.size() == want.value.size();
  return verdict;
}

// The first of the outputs that is out of bound, else the last.
inline Comparison against(const Outputs& got, const Reference& want) {
  Comparison verdict = against(got.y, want.y);
  if (verdict.ok) verdict = against(got.grad_x, want.grad_x);
  for (size_t k = 0; verdict.ok && k < kTensors; ++k)
    verdict = against(got.gradients[k], want.gradients[k]);
  return verdict;
}

}  // namespace block_test
