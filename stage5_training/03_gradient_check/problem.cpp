#include "stage5_training/03_gradient_check/problem.h"

#include "common/random.h"

namespace gradient_check {

std::vector<float> uniform_values(std::size_t n, std::uint64_t seed, std::uint32_t stream,
                                  float scale) {
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = scale * random_numbers::uniform(seed, stream, i);
  return values;
}

std::vector<float> integers(std::size_t n, std::uint64_t seed, std::uint32_t stream) {
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = random_numbers::integer(seed, stream, i);
  return values;
}

Argument argument(const std::string& name, const std::vector<std::size_t>& shape,
                  std::uint64_t seed, std::uint32_t stream, float scale) {
  std::size_t n = 1;
  for (const std::size_t size : shape) n *= size;
  return {name, shape, uniform_values(n, seed, stream, scale)};
}

std::vector<std::vector<double>> wide(const std::vector<Argument>& arguments) {
  std::vector<std::vector<double>> values;
  for (const Argument& argument : arguments)
    values.emplace_back(argument.values.begin(), argument.values.end());
  return values;
}

std::string name_of(const Argument& argument, std::size_t index) {
  std::string text;
  for (std::size_t d = argument.shape.size(); d-- > 1; index /= argument.shape[d])
    text = "," + std::to_string(index % argument.shape[d]) + text;
  return argument.name + "[" + std::to_string(index) + text + "]";
}

std::vector<int> random_labels(std::size_t rows, std::size_t classes, bool ignore,
                               std::uint64_t seed) {
  std::vector<int> labels(rows);
  for (std::size_t row = 0; row < rows; ++row)
    labels[row] = ignore && row % 3 == 1
                      ? kIgnoreIndex
                      : static_cast<int>(random_numbers::word(seed, 90, row) % classes);
  return labels;
}

}  // namespace gradient_check
