// How a backend's results are judged: against the reference in double, which is given the same
// floats, within the bound of the operation's row.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "common/compare.h"
#include "stage8_framework/02_backends/call_for_tests.h"

namespace backends_test {

struct Expected {
  bool exact = false;  // the bits of `rounded`; else within `bound` of `value`
  std::vector<double> value, bound;
  Output rounded;
};

// Sums of products of inputs: their error grows with the same sum over |inputs|, and of integers
// they are exact in float. Those whose magnitude is found in another way are not named.
inline bool is_sum_of_products(const TestCall& call) {
  const std::string op = call.op->name;
  if (op == "linear") return true;
  for (const char* const name : {"sum", "matmul", "linear_grad_w", "conv2d", "conv2d_grad_x",
                                 "conv2d_grad_w", "maxpool2d_backward", "embedding_backward"})
    if (op == name) return true;
  return false;
}

inline bool has_only_integers(const TestCall& call) {
  for (const Input& input : call.inputs)
    for (const double value : input.storage)
      if (value != std::rint(value) && !std::isnan(value)) return false;
  return true;
}

// In place of the operation on |inputs|, where that is no sum of the terms' sizes:
//   |y| + sum over all x that the call reads of |x dy/dx|,
// by differences of the reference in double. Where y is linear in the inputs it is the same number,
// but for |y|.
inline std::vector<std::vector<double>> sensitivity(const TestCall& call, const Backend& witness) {
  constexpr double kStep = 1.0 / (1 << 20);
  const std::vector<Output> at = witness.run(call).outputs;
  std::vector<std::vector<double>> values, magnitude;
  for (const Output& output : at) values.push_back(output.values());
  magnitude = values;
  for (std::vector<double>& of_output : magnitude)
    for (double& value : of_output) value = std::fabs(value);
  TestCall moved = call;
  for (Input* const array : moved.read()) {
    if (!array->is_real()) continue;
    for (double& x : array->storage) {
      const double before = x;
      if (before == 0) continue;
      x = before * (1 + kStep);
      const std::vector<Output> there = witness.run(moved).outputs;
      for (size_t o = 0; o < there.size(); ++o) {
        const std::vector<double> moved_values = there[o].values();
        for (size_t i = 0; i < moved_values.size(); ++i)
          magnitude[o][i] += std::fabs(moved_values[i] - values[o][i]) / kStep;
      }
      x = before;
    }
  }
  return magnitude;
}

inline std::vector<std::vector<double>> magnitudes(const TestCall& call, const Backend& witness) {
  if (!is_sum_of_products(call)) return sensitivity(call, witness);
  TestCall sizes = call.mapped([](double value) { return std::fabs(value); });
  // The slope of no activation is more than 1.13, and roundings() counts what it adds.
  if (std::string(call.op->name) == "linear") sizes.attributes[0] = 0;
  std::vector<std::vector<double>> magnitude;
  for (const Output& output : witness.run(sizes).outputs) magnitude.push_back(output.values());
  return magnitude;
}

// Sums of products of integers must be exact, unless the backend is free to compute them by a
// transform, whose sums are others.
inline std::vector<Expected> expected_of(const TestCall& call, const Backend& witness,
                                         bool may_transform = false) {
  constexpr double kTiny = 2.3509887016445750e-38;  // 2^-125: below it u is no relative error
  TestCall in_double = call.with_dense_inputs();
  const std::vector<Output> rounded = witness.run(in_double).outputs;
  const double roundings = call.op->roundings(described(call));
  in_double.in_double = true;
  const std::vector<Output> want = witness.run(in_double).outputs;
  const bool exact_sums = !may_transform && is_sum_of_products(call) && has_only_integers(call) &&
                          (std::string(call.op->name) != "linear" || call.attributes[0] <= 1);
  std::vector<std::vector<double>> magnitude;
  if (call.op->scale == framework::Magnitude::terms && roundings > 0 && !exact_sums)
    magnitude = magnitudes(in_double, witness);
  std::vector<Expected> expected;
  for (size_t o = 0; o < want.size(); ++o) {
    Expected of{roundings == 0 || exact_sums ||
                    (rounded[o].dtype != Dtype::f32 && rounded[o].dtype != Dtype::bf16),
                want[o].values(),
                {},
                rounded[o]};
    for (size_t i = 0; i < of.value.size(); ++i) {
      const double size = magnitude.empty() ? std::fabs(of.value[i]) : magnitude[o][i];
      of.bound.push_back(roundings * kFloatRoundoff * size + kTiny);
    }
    expected.push_back(std::move(of));
  }
  return expected;
}

// What is wrong with the outputs, in one line; empty: nothing.
inline std::string complaint(const std::vector<Output>& got, const std::vector<Expected>& want) {
  if (got.size() != want.size()) return std::to_string(got.size()) + " outputs";
  for (size_t o = 0; o < got.size(); ++o) {
    const std::vector<double> values = got[o].values(), rounded = want[o].rounded.values();
    for (size_t i = 0; i < values.size(); ++i) {
      const double value = values[i], target = want[o].exact ? rounded[i] : want[o].value[i];
      // A result that float can't hold may be the infinity that it is rounded to.
      const bool same = (value == target || (std::isinf(value) && value == rounded[i])) &&
                        std::signbit(value) == std::signbit(target);
      const bool ok = same || (std::isnan(value) && std::isnan(target)) ||
                      (!want[o].exact && std::fabs(value - target) <= want[o].bound[i]);
      if (ok) continue;
      char text[200];
      std::snprintf(text, sizeof text, "output %zu at [%zu] of %zu: got %.9g, want %.9g, %s %.3g",
                    o, i, values.size(), value, target, want[o].exact ? "exactly; off by" : "bound",
                    want[o].exact ? value - target : want[o].bound[i]);
      return text;
    }
  }
  return "";
}

}  // namespace backends_test
