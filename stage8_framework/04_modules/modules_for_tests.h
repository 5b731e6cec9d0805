// What the tests of this step share: tensors from lists of numbers, models in double, bits.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/testing.h"
#include "stage8_framework/02_backends/functions.h"
#include "stage8_framework/02_backends/registry.h"
#include "stage8_framework/02_backends/tensors_for_tests.h"
#include "stage8_framework/03_autograd/tape.h"
#include "stage8_framework/04_modules/module.h"

namespace modules_test {

using namespace framework;
using Floats = std::vector<float>;
using Doubles = std::vector<double>;
using Integers = std::vector<std::int32_t>;

inline Device& reference() { return device("reference"); }
inline Device& own() { return device("own"); }

using tensors_test::host;
// Of any type of real numbers.
inline Doubles host_doubles(const Tensor& t) { return t.detach().to(Dtype::f64).to_host<double>(); }

// Random numbers in [-1, 1), other ones for each stream.
inline Tensor random_tensor(const Shape& shape, std::uint32_t stream, Device& on = own()) {
  return tensors_test::random_on(on, shape, stream);
}
inline Tensor ids(const Integers& values, const Shape& shape, Device& on = own()) {
  return Tensor::from_host(on, values, shape);
}

// The one line of the error that f() must throw.
template <class Error = std::invalid_argument, class F>
std::string error_of(F&& f) {
  const std::string text = testing::what_of<Error>(f);
  REQUIRE(text.find('\n') == std::string::npos);
  return text;
}

// All elements of a module's parameters, one behind the other, or of their gradients.
inline Floats values_of(Module& model) {
  Floats all;
  for (const NamedTensor& named : model.parameters())
    for (const float value : host(named.tensor->detach())) all.push_back(value);
  return all;
}
inline Floats gradients_of(Module& model) {
  Floats all;
  for (const NamedTensor& named : model.parameters())
    for (const float value : host(named.tensor->grad())) all.push_back(value);
  return all;
}

inline std::vector<std::string> names_of(const std::vector<NamedTensor>& list) {
  std::vector<std::string> names;
  for (const NamedTensor& named : list) names.push_back(named.name);
  return names;
}

// The same module with numbers of f64.
inline void make_double(Module& model) {
  for (const NamedTensor& named : model.parameters()) {
    *named.tensor = named.tensor->detach().to(Dtype::f64);
    named.tensor->set_requires_grad();
  }
  for (const NamedTensor& named : model.buffers())
    if (named.tensor->dtype() == Dtype::f32) *named.tensor = named.tensor->to(Dtype::f64);
}

}  // namespace modules_test
