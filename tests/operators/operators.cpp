#include "tests/operators/operators.h"

#include <cerrno>
#include <cstdlib>
#include <functional>
#include <limits>
#include <numeric>

#include "common/safetensors.h"

namespace operators {

void require(bool fits, const std::string& why) {
  if (!fits) throw Refused(why);
}

std::size_t count(const std::vector<std::size_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::size_t{1}, std::multiplies<>());
}

std::size_t Array::extent(std::size_t axis) const {
  require(axis < shape.size(), "an array of shape " + safetensors::shape_text(shape) +
                                   " has no axis " + std::to_string(axis));
  return shape[axis];
}

const Array& Case::input(const std::string& name) const {
  const auto found = inputs.find(name);
  require(found != inputs.end(), "there is no input " + name);
  return found->second;
}

const Array& Case::input(const std::string& name, std::size_t axes) const {
  const Array& array = input(name);
  require(array.shape.size() == axes, name + " has the shape " +
                                          safetensors::shape_text(array.shape) + ", not " +
                                          std::to_string(axes) + " axes");
  return array;
}

const Array& Case::input(const std::string& name, const std::vector<std::size_t>& shape) const {
  const Array& array = input(name);
  require(array.shape == shape, name + " has the shape " + safetensors::shape_text(array.shape) +
                                    ", not " + safetensors::shape_text(shape));
  return array;
}

bool Case::has(const std::string& name) const { return inputs.count(name) != 0; }

double Case::number(const std::string& name, double otherwise) const {
  const auto found = attributes.find(name);
  if (found == attributes.end()) return otherwise;
  char* end = nullptr;
  const double value = std::strtod(found->second.c_str(), &end);
  require(end != found->second.c_str() && *end == 0,
          name + " is not a number: " + safetensors::quoted(found->second));
  return value;
}

std::size_t Case::integer(const std::string& name, std::size_t otherwise) const {
  const double value = number(name, static_cast<double>(otherwise));
  constexpr double kMost = 1e15;  // a double holds every integer up to here
  require(value >= 0 && value <= kMost && value == static_cast<double>(std::size_t(value)),
          name + " is not an integer from 0 to 1e15: " + word(name, ""));
  return static_cast<std::size_t>(value);
}

std::string Case::word(const std::string& name, const std::string& otherwise) const {
  const auto found = attributes.find(name);
  return found == attributes.end() ? otherwise : found->second;
}

std::size_t offset(const Case& c) {
  const std::size_t value = c.integer("offset", 0);
  require(value < 4, "the offset is " + std::to_string(value) + ", not 0 to 3");
  return value;
}

}  // namespace operators
