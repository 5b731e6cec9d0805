// What shape rules ask of a call, and how they refuse it.
#include "stage8_framework/02_backends/detail/checks.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace framework {

std::string described(const Call& call) {
  std::string text = call.op->name;
  for (int i = 0; i < call.input_count; ++i) {
    const Tensor& t = call.inputs[i];
    text += i == 0 ? " of " : i + 1 == call.input_count ? " and " : ", ";
    text += t.is_defined() ? t.text() : "none";
  }
  return text;
}

void refuse(const Call& call, const std::string& reason) {
  throw std::invalid_argument(described(call) + ": " + reason);
}

namespace checks {

void require(const Call& call, bool holds, const char* reason) {
  if (!holds) refuse(call, reason);
}

void require_shape(const Call& call, int i, const char* name, const Shape& want) {
  if (call.inputs[i].shape() != want) refuse(call, std::string(name) + " must be " + want.text());
}

Dtype real_type(const Call& call, int first, int end) {
  const Dtype dtype = call.inputs[first].dtype();
  if (dtype != Dtype::f32 && dtype != Dtype::f64)
    refuse(call, std::string(name_of(dtype)) + " is not f32 or f64");
  for (int i = first; i < std::min(end, call.input_count); ++i)
    if (call.inputs[i].is_defined() && call.inputs[i].dtype() != dtype)
      refuse(call, "the types differ");
  return dtype;
}

std::int64_t whole(const Call& call, int i, std::int64_t least) {
  const double value = call.attributes[i];
  const auto number = static_cast<std::int64_t>(value);
  if (!(value >= static_cast<double>(least)) || static_cast<double>(number) != value)
    refuse(call, "attribute " + std::to_string(i) + " of (" + call.op->attributes +
                     ") must be a whole number from " + std::to_string(least) + " on");
  return number;
}

}  // namespace checks

}  // namespace framework
