// What the tests of step 5.6 share: networks and points without meaning, and a training's state.
#pragma once

#include <cstddef>
#include <vector>

#include "common/random.h"
#include "common/testing.h"
#include "stage5_training/06_train_toy/train_toy.h"

namespace toy_test {

using namespace train_toy;
using optimizers::kKinds;
using testing::same_bits;

inline Settings settings(Kind kind, double rate = 0) {
  Settings result;
  result.kind = kind;
  const bool adapts = kind == Kind::Adam || kind == Kind::AdamW;
  result.hyper.learning_rate = static_cast<float>(rate > 0 ? rate : adapts ? 0.01 : 0.2);
  result.seed = 7;
  return result;
}

// Points and labels without meaning.
inline Points random_points(size_t count, size_t inputs, size_t classes) {
  Points points;
  for (size_t i = 0; i < count * inputs; ++i)
    points.x.push_back(random_numbers::uniform(5, 0, i) + 0.25f);
  for (size_t i = 0; i < count; ++i)
    points.labels.push_back(static_cast<int>(random_numbers::word(5, 1, i) % classes));
  return points;
}

struct Case {
  std::vector<size_t> widths;
  Points points;
};

inline Case random_case(const std::vector<size_t>& widths, size_t count) {
  return {widths, random_points(count, widths.front(), widths.back())};
}

inline std::vector<float> to_host(const float* values, size_t n) {
  std::vector<float> host(n);
  HIP_CHECK(hipMemcpy(host.data(), values, n * sizeof(float), hipMemcpyDeviceToHost));
  return host;
}

// The curve, then w, m and v.
inline std::vector<float> state(const Training& t) {
  HIP_CHECK(hipStreamSynchronize(t.stream));
  std::vector<float> all = t.curve.to_host();
  const optimizers::ParameterArena& arena = t.model.arena();
  for (const float* array : {static_cast<const float*>(arena.w), static_cast<const float*>(arena.m),
                             static_cast<const float*>(arena.v)})
    for (const float value : to_host(array, arena.n)) all.push_back(value);
  return all;
}

template <class Visit>
void for_each_version(const Training& t, Visit visit) {
  for (const auto& version : testing::chosen(kVersions))
    if (version.launch.why_not(t).empty()) visit(version);
}

}  // namespace toy_test
