// The backward pass of every version: each gradient arrives at its cell, sums within their bound.
#include <cmath>
#include <cstddef>
#include <vector>

#include "common/testing.h"
#include "stage6_cnn/03_maxpool/maxpool.h"
#include "stage6_cnn/03_maxpool/pooling_for_tests.h"
#include "stage6_cnn/03_maxpool/reference.h"

using namespace maxpool_test;

TEST_CASE("every gradient arrives at its cell, and 0 everywhere else") {
  for (const Problem& p : kProblems) {
    const Routing in(p, few_values(cells_of(p), 4));
    const Expected want = backward_cpu(in.grad_y, in.argmax, p);
    const Expected want_relu = backward_cpu(in.through_relu(), in.argmax, p);
    for (const Offsets& offsets : kOffsets) {
      CAPTURE(text_of(p), offsets.cells, offsets.outputs, offsets.argmax);
      for (const auto& version : testing::chosen(kBackwardVersions)) {
        CAPTURE(version.name);
        REQUIRE_OK(against(plainly(version.launch, in, offsets), want));
      }
      for (const auto& version : testing::chosen(kBackwardVersions)) {
        CAPTURE(version.name);
        REQUIRE_OK(against(through_relu(version.launch, in, offsets), want_relu));
      }
    }
  }
}

TEST_CASE(
    "a gradient of NaN stays in its cell, and a NaN that has been taken shows in ReLU's slope") {
  const Problem p{1, 2, 6, 8, 2, 2, 2, 2};
  Routing in(p, few_values(cells_of(p), 6));
  in.grad_y[3] = kNan;
  in.y[7] = kNan;
  for (const auto& version : testing::chosen(kBackwardVersions)) {
    CAPTURE(version.name);
    size_t nans = 0;
    for (const float grad : plainly(version.launch, in).grad_x) nans += std::isnan(grad) ? 1 : 0;
    REQUIRE(nans == 1);
  }
  for (const auto& version : testing::chosen(kBackwardVersions)) {
    CAPTURE(version.name);
    size_t nans = 0;
    for (const float grad : through_relu(version.launch, in).grad_x)
      nans += std::isnan(grad) ? 1 : 0;
    REQUIRE(nans == 2);
  }
}

// In a fixed order, which is the order of the windows: the sum in float is reproduced bit for bit.
TEST_CASE("deterministic versions add in the order of the windows") {
  for (const Problem& p : kProblems) {
    const Routing in(p, few_values(cells_of(p), 7));
    const Extent out = output_of(p);
    std::vector<float> want(cells_of(p), 0.0f);
    for (size_t i = 0; i < in.grad_y.size(); ++i) {
      const size_t plane = i / (out.height * out.width), window = i % (out.height * out.width);
      const size_t h = window / out.width * p.stride_h + in.argmax[i] / p.S - p.pad_h;
      const size_t w = window % out.width * p.stride_w + in.argmax[i] % p.S - p.pad_w;
      want[(plane * p.H + h) * p.W + w] += in.grad_y[i];
    }
    for (const auto& version : testing::chosen(kBackwardVersions)) {
      if (!version.launch.deterministic) continue;
      CAPTURE(version.name, text_of(p));
      const std::vector<float> got = plainly(version.launch, in).grad_x;
      for (size_t i = 0; i < want.size(); ++i) REQUIRE(got[i] == want[i]);
      REQUIRE(same_bits(plainly(version.launch, in).grad_x, got));
    }
  }
}

// The loss is the sum of grad_y * y. All values are far enough apart that a step takes none past
// another, so that y is linear and the quotient is off by its roundings only.
TEST_CASE("the gradient is the slope of the loss in double") {
  const Problem p{1, 2, 5, 7, 3, 3, 2, 2, 1, 1};
  std::vector<float> x(cells_of(p));
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(i * 29 % x.size());  // all different
  const Routing in(p, x);
  const auto loss = [&](const std::vector<float>& at) {
    const Pooled pooled = forward_cpu(at, p);
    double sum = 0;
    for (size_t i = 0; i < pooled.y.size(); ++i)
      sum += static_cast<double>(in.grad_y[i]) * pooled.y[i];
    return sum;
  };
  const std::vector<float> got = plainly(kBackwardVersions[1].launch, in).grad_x;
  for (size_t i = 0; i < x.size(); ++i) {
    std::vector<float> above = x, below = x;
    above[i] += 0.25f, below[i] -= 0.25f;
    CAPTURE(i);
    REQUIRE(std::fabs((loss(above) - loss(below)) / 0.5 - static_cast<double>(got[i])) <= 1e-6);
  }
}
