// What a case is, and what cases are made of. The arguments' numbers are float, as the kernels take
// them; the loss and the difference quotients are double.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace gradient_check {

// What the loss depends on: a parameter or an input.
struct Argument {
  std::string name;
  std::vector<std::size_t> shape;
  std::vector<float> values;  // row-major
};

struct Case {
  std::vector<Argument> arguments;
  // The loss in double, given the values of all arguments.
  std::function<double(const std::vector<std::vector<double>>& values)> loss;
  // Queues on the default stream what writes the loss's gradient by each argument, all in device
  // memory and in the order of `arguments`.
  std::function<void(const std::vector<float*>& gradients, const std::vector<const float*>& values)>
      backward;
};

// The sizes of a case: a batch of samples, what goes into a layer and what comes out.
struct Sizes {
  std::size_t batch, in, out;
};

// n numbers of sequence `stream` in [-scale, scale).
std::vector<float> uniform_values(std::size_t n, std::uint64_t seed, std::uint32_t stream,
                                  float scale = 1);
// n integers in [-3, 3].
std::vector<float> integers(std::size_t n, std::uint64_t seed, std::uint32_t stream);
// An argument of this shape with numbers of uniform_values().
Argument argument(const std::string& name, const std::vector<std::size_t>& shape,
                  std::uint64_t seed, std::uint32_t stream, float scale = 1);

// The arguments' values in double.
std::vector<std::vector<double>> wide(const std::vector<Argument>& arguments);

// "w[2,3]": an element of an argument.
std::string name_of(const Argument& argument, std::size_t index);

inline constexpr int kIgnoreIndex = -100;

// A label per row; every third is kIgnoreIndex where some shall be.
std::vector<int> random_labels(std::size_t rows, std::size_t classes, bool ignore,
                               std::uint64_t seed);

// No x + bias of a case lies nearer to 0 than this, where ReLU has its kink: a step, of x or of the
// bias, moves it by no more than 4 kStep.
inline constexpr float kAway = 1.0f / 1024;

}  // namespace gradient_check
