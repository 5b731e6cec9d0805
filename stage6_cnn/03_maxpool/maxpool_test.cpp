// Every version on windows, strides and paddings of all kinds, with equal values, NaN and infinity
// among them: values and places exactly, sums of gradients within their bound.
#include "stage6_cnn/03_maxpool/maxpool.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "common/guarded.h"
#include "common/npy.h"
#include "common/random.h"
#include "common/testing.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage6_cnn/03_maxpool/detail/shape.h"
#include "stage6_cnn/03_maxpool/problem.h"
#include "stage6_cnn/03_maxpool/reference.h"

// The kernels that only this test has: maxpool_test.hip.
namespace maxpool_test {
using maxpool::Index;
using maxpool::Problem;
void launch_last_of_equals(float* y, Index* argmax, const float* x, const Problem& p, hipStream_t);
void launch_padding_counts(float* y, Index* argmax, const float* x, const Problem& p, hipStream_t);
void launch_nan_is_lost(float* y, Index* argmax, const float* x, const Problem& p, hipStream_t);
void launch_place_by_columns(float* y, Index* argmax, const float* x, const Problem& p,
                             hipStream_t);
}  // namespace maxpool_test

namespace {

using namespace maxpool;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// N, C, H, W, R, S, both strides, both paddings.
constexpr Problem kProblems[] = {
    {1, 1, 1, 1, 1, 1, 1, 1},           // nothing to choose from
    {0, 3, 4, 4, 2, 2, 2, 2},           // no image
    {3, 0, 4, 4, 2, 2, 2, 2},           // no channel
    {2, 3, 8, 12, 2, 2, 2, 2},          // rows of whole float4s
    {3, 5, 7, 16, 2, 2, 2, 2},          // with a last row in no window
    {2, 7, 14, 14, 2, 2, 2, 2},         // rows of whole float2s
    {2, 3, 5, 10, 2, 2, 2, 2},          // the same with a last row
    {2, 3, 6, 7, 2, 2, 2, 2},           // an odd number of columns
    {1, 2, 2, 2060, 2, 2, 2, 2},        // more than a block in a row
    {2, 3, 15, 260, 2, 2, 2, 2},        // several blocks
    {5, 67, 2, 4, 2, 2, 2, 2},          // more than a block in many planes
    {2, 2, 9, 11, 2, 2, 2, 2, 1, 1},    // padding
    {2, 3, 9, 12, 3, 3, 2, 2, 1, 1},    // overlapping: each cell in up to four windows
    {1, 3, 10, 300, 3, 3, 1, 1, 1, 1},  // in up to nine
    {2, 2, 7, 7, 3, 3, 3, 3},           // side by side, and a row and a column left out
    {2, 2, 6, 9, 4, 4, 1, 1, 3, 3},     // windows that hold one cell only, in the corners
    {2, 2, 11, 9, 2, 2, 3, 4},          // cells that no window has
    {2, 2, 5, 6, 1, 1, 2, 2},           // one cell in each
    {1, 2, 7, 10, 5, 2, 1, 3, 4, 1},    // other numbers for rows and columns
    {2, 1, 9, 8, 1, 4, 2, 3, 0, 3},     //
    {2, 3, 1, 1, 3, 3, 2, 2, 1, 1},     // a window larger than the image
    {1, 2, 20, 30, 20, 30, 1, 1},       // one window for all of it
    {1, 1, 256, 256, 256, 256, 1, 1},   // whose places need all of 16 bits
    {1, 1, 400, 3, 2, 2, 2, 2, 0, 1},   // a column of windows
    {2, 2, 12, 13, 3, 3, 2, 2},         // 3x3 without padding
    {1, 3, 9, 8, 3, 3, 2, 2, 2, 2},     // with two of it
    {1, 2, 8, 9, 3, 3, 2, 2, 1, 0},     // with some above but not beside
    {1, 2, 5, 6, 3, 3, 1, 1, 2, 2},     //
    {2, 2, 8, 8, 2, 2, 2, 1},           // 2x2, but not every 2
    {2, 2, 8, 8, 2, 2, 1, 2},
};

std::string text_of(const Problem& p) {
  std::string text;
  for (const size_t n : {p.N, p.C, p.H, p.W, p.R, p.S, p.stride_h, p.stride_w, p.pad_h, p.pad_w})
    text += (text.empty() ? "" : " ") + std::to_string(n);
  return text;
}

size_t cells_of(const Problem& p) { return p.N * p.C * p.H * p.W; }
size_t outputs_of(const Problem& p) {
  const Extent out = output_of(p);
  return p.N * p.C * out.height * out.width;
}

using testing::random_floats;
using testing::same_bits;

// Few different values, so that most windows hold several equal ones.
std::vector<float> few_values(size_t n, std::uint32_t stream) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i)
    values[i] = std::floor(3 * random_numbers::uniform(7, stream, i)) / 2;
  return values;
}

// What compares in its own way: NaN, both infinities and both zeros, each often.
std::vector<float> special_values(size_t n, std::uint32_t stream) {
  constexpr float kSpecial[] = {kNan, -kInfinity, -kInfinity, kInfinity, 0.0f, -0.0f, -1.0f};
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = kSpecial[random_numbers::word(7, stream, i) % 7];
  return values;
}

// How far the arrays begin behind a multiple of 16 bytes, in elements.
struct Offsets {
  size_t cells, outputs, argmax;
};
constexpr Offsets kOffsets[] = {{0, 0, 0}, {2, 0, 0}, {0, 1, 0}, {0, 0, 1}, {0, 2, 2}, {3, 3, 3}};

// Values and places must be equal, and nothing else may be written.
Comparison check_forward(decltype(Launch::run) launch, const Problem& p,
                         const std::vector<float>& x, const Offsets& offsets = {}) {
  const Pooled want = forward_cpu(x, p);
  Guarded<float> d_x(x, offsets.cells), d_y(want.y.size(), offsets.outputs);
  Guarded<Index> d_argmax(want.y.size(), offsets.argmax);
  launch(d_y.data(), d_argmax.data(), d_x.data(), p, nullptr);
  const std::vector<float> y = d_y.to_host();
  const std::vector<Index> argmax = d_argmax.to_host();
  const auto exactly = [](size_t) { return 0.0; };
  Comparison result = compare(
      y.size(), [&](size_t i) { return y[i]; }, [&](size_t i) { return want.y[i]; }, exactly);
  if (result.ok)
    result = compare(
        argmax.size(), [&](size_t i) { return argmax[i]; },
        [&](size_t i) { return static_cast<double>(want.argmax[i]); }, exactly);
  result.ok = result.ok && d_x.intact() && d_y.intact() && d_argmax.intact();
  return result;
}

// The gradients of a forward pass of x, and what arrives at its outputs.
struct Routing {
  Routing(const Problem& pooled, const std::vector<float>& x)
      : p(pooled), grad_y(random_floats(outputs_of(p), 50)), argmax(forward_cpu(x, p).argmax) {
    for (const double value : forward_cpu(x, p).y) y.push_back(static_cast<float>(value));
  }
  // grad_y as a ReLU before the pooling leaves it.
  std::vector<float> through_relu() const {
    std::vector<float> grad = grad_y;
    for (size_t i = 0; i < grad.size(); ++i) grad[i] = y[i] > 0 ? grad[i] : 0.0f;
    return grad;
  }
  Problem p;
  std::vector<float> grad_y, y;
  std::vector<Index> argmax;
};

struct Result {
  std::vector<float> grad_x;
  bool intact;
};

template <class Run>
Result run_backward(const Routing& in, const Offsets& offsets, Run&& run) {
  Guarded<float> d_grad_y(in.grad_y, offsets.outputs), d_y(in.y, offsets.outputs);
  Guarded<float> d_grad_x(cells_of(in.p), offsets.cells);
  Guarded<Index> d_argmax(in.argmax, offsets.argmax);
  run(d_grad_x.data(), d_grad_y.data(), d_y.data(), d_argmax.data());
  return {d_grad_x.to_host(),
          d_grad_y.intact() && d_y.intact() && d_grad_x.intact() && d_argmax.intact()};
}

Result plainly(const BackwardLaunch& version, const Routing& in, const Offsets& offsets = {}) {
  return run_backward(in, offsets,
                      [&](float* grad_x, const float* grad_y, const float*, const Index* argmax) {
                        version.run(grad_x, Arriving{grad_y}, argmax, in.p, nullptr);
                      });
}
Result through_relu(const BackwardLaunch& version, const Routing& in, const Offsets& offsets = {}) {
  return run_backward(in, offsets,
                      [&](float* grad_x, const float* grad_y, const float* y, const Index* argmax) {
                        version.run(grad_x, Arriving{grad_y, y}, argmax, in.p, nullptr);
                      });
}

Comparison against(const Result& got, const Expected& want) {
  Comparison result = compare(
      got.grad_x.size(), [&](size_t i) { return got.grad_x[i]; },
      [&](size_t i) { return want.value[i]; }, [&](size_t i) { return want.bound[i]; });
  result.ok = result.ok && got.grad_x.size() == want.value.size() && got.intact;
  return result;
}

}  // namespace

// ---- Forward ----------------------------------------------------------------------------------

TEST_CASE("every window, stride, padding and alignment, with equal values") {
  for (const Problem& p : kProblems) {
    const std::vector<float> x = few_values(cells_of(p), 1);
    for (const auto& version : testing::chosen(kVersions))
      for (const Offsets& offsets : kOffsets) {
        CAPTURE(version.name, text_of(p), offsets.cells, offsets.outputs, offsets.argmax);
        REQUIRE_OK(check_forward(version.launch.run, p, x, offsets));
      }
  }
}

TEST_CASE("NaN, infinities and zeros of either sign: the first of the largest") {
  for (const Problem& p : kProblems) {
    const std::vector<float> x = special_values(cells_of(p), 2);
    for (const auto& version : testing::chosen(kVersions)) {
      CAPTURE(version.name, text_of(p));
      REQUIRE_OK(check_forward(version.launch.run, p, x));
    }
  }
}

TEST_CASE("where all is -infinity the first cell is taken, never the padding") {
  for (const Problem& p : kProblems) {
    const std::vector<float> x(cells_of(p), -kInfinity);
    for (const auto& version : testing::chosen(kVersions)) {
      CAPTURE(version.name, text_of(p));
      REQUIRE_OK(check_forward(version.launch.run, p, x));
    }
  }
}

// By hand, so that kernels and reference can't be wrong together.
TEST_CASE("three windows worked by hand") {
  const Problem p{1, 1, 3, 4, 2, 2, 1, 1};
  const std::vector<float> x = {1, 5,    5, -2,  //
                                5, 4,    5, 7,   //
                                0, kNan, 7, kNan};
  const std::vector<float> want_y = {5, 5, 7, kNan, kNan, kNan};
  const std::vector<Index> want_argmax = {1, 0, 3, 3, 2, 3};
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    Guarded<float> d_x(x, 0), d_y(6, 0);
    Guarded<Index> d_argmax(6, 0);
    version.launch.run(d_y.data(), d_argmax.data(), d_x.data(), p, nullptr);
    REQUIRE(d_argmax.to_host() == want_argmax);
    const std::vector<float> y = d_y.to_host();
    for (size_t i = 0; i < 6; ++i)
      REQUIRE((y[i] == want_y[i] || (std::isnan(y[i]) && std::isnan(want_y[i]))));
  }
  const Pooled reference = forward_cpu(x, p);
  REQUIRE(reference.argmax == want_argmax);
}

TEST_CASE("the loops over the grid work for any number of blocks") {
  const Problem p{2, 3, 11, 37, 3, 3, 2, 2, 1, 1};
  const std::vector<float> x = few_values(cells_of(p), 3);
  const Routing in(p, x);
  const Expected want = backward_cpu(in.grad_y, in.argmax, p);
  for (const size_t blocks : {1, 2, 3}) {
    vector_add::grid_limit = blocks * vector_add::kBlock;
    for (const auto& version : testing::chosen(kVersions)) {
      CAPTURE(version.name, blocks);
      REQUIRE_OK(check_forward(version.launch.run, p, x));
    }
    for (const auto& version : testing::chosen(kBackwardVersions)) {
      CAPTURE(version.name, blocks);
      REQUIRE_OK(against(plainly(version.launch, in), want));
    }
  }
  vector_add::grid_limit = vector_add::kMaxThreads;
}

// ---- Backward ---------------------------------------------------------------------------------

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

// Small problems get one item per thread of the vectorized versions, so that all multiprocessors
// have a block. These are large enough for several, in rows of float4s and of float2s.
TEST_CASE("a thread of the vectorized versions has several items") {
  for (const size_t W : {128, 126}) {
    const Problem p{8, 16, 64, W, 2, 2, 2, 2};
    const std::vector<float> x = few_values(cells_of(p), 10);
    const Routing in(p, x);
    CAPTURE(W);
    REQUIRE_OK(check_forward(launch_vectorized, p, x));
    const BackwardLaunch backwards{launch_gather_vectorized, true, true};
    REQUIRE_OK(against(plainly(backwards, in), backward_cpu(in.grad_y, in.argmax, p)));
  }
}

TEST_CASE("what later steps call does all of it") {
  for (const Problem& p : {kProblems[3], kProblems[4], kProblems[11]}) {
    const std::vector<float> x = few_values(cells_of(p), 5);
    const Routing in(p, x);
    CAPTURE(text_of(p));
    const auto forward_of_later_steps = [](float* y, Index* argmax, const float* cells,
                                           const Problem& problem, hipStream_t stream) {
      forward(y, argmax, cells, problem, stream);
    };
    REQUIRE_OK(check_forward(forward_of_later_steps, p, x));
    const auto plain = [&](float* grad_x, const float* grad_y, const float*, const Index* argmax) {
      backward(grad_x, grad_y, argmax, p);
    };
    const auto relu = [&](float* grad_x, const float* grad_y, const float* y, const Index* argmax) {
      backward_through_relu(grad_x, grad_y, y, argmax, p);
    };
    REQUIRE_OK(against(run_backward(in, {}, plain), backward_cpu(in.grad_y, in.argmax, p)));
    REQUIRE_OK(against(run_backward(in, {}, relu), backward_cpu(in.through_relu(), in.argmax, p)));
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

TEST_CASE("forward and backward can be captured in a graph", "[graph]") {
  const Problem p{2, 3, 8, 12, 2, 2, 2, 2};
  const std::vector<float> x = few_values(cells_of(p), 8);
  const Routing in(p, x);
  Guarded<float> d_x(x, 0), d_y(in.y.size(), 0), d_grad_y(in.grad_y, 0), d_grad_x(x.size(), 0);
  Guarded<Index> d_argmax(in.y.size(), 0);
  testing::run_captured([&](hipStream_t stream) {
    forward(d_y.data(), d_argmax.data(), d_x.data(), p, stream);
    backward(d_grad_x.data(), d_grad_y.data(), d_argmax.data(), p, stream);
  });
  REQUIRE(same_bits(d_y.to_host(), in.y));
  REQUIRE_OK(against({d_grad_x.to_host(), true}, backward_cpu(in.grad_y, in.argmax, p)));
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

// ---- NumPy ------------------------------------------------------------------------------------

TEST_CASE("values, places and gradients agree with NumPy", "[numpy]") {
  const auto array = [](const std::string& name) {
    return read_npy(reference_path("maxpool_" + name + ".npy"));
  };
  const auto floats = [&](const std::string& name) {
    const std::vector<double> values = array(name).values;
    return std::vector<float>(values.begin(), values.end());
  };
  const NpyArray shapes = array("shapes");
  for (size_t k = 0; k < shapes.shape.at(0); ++k) {
    const std::string prefix = std::to_string(k) + "_";
    const NpyArray x = array(prefix + "x");
    const auto size = [&](size_t i) { return static_cast<size_t>(shapes.values[8 * k + i]); };
    const Problem p{x.shape.at(0), x.shape.at(1), size(0), size(1), size(2),
                    size(3),       size(4),       size(5), size(6), size(7)};
    const std::vector<float> d_in = floats(prefix + "x"), want_y = floats(prefix + "y");
    const std::vector<double> wide_argmax = array(prefix + "argmax").values;
    const std::vector<Index> want_argmax(wide_argmax.begin(), wide_argmax.end());
    for (const auto& version : testing::chosen(kVersions)) {
      CAPTURE(version.name, text_of(p));
      Guarded<float> d_x(d_in, 0), d_y(want_y.size(), 0);
      Guarded<Index> d_argmax(want_y.size(), 0);
      version.launch.run(d_y.data(), d_argmax.data(), d_x.data(), p, nullptr);
      REQUIRE(d_y.to_host() == want_y);
      REQUIRE(d_argmax.to_host() == want_argmax);
    }
    Routing in(p, d_in);
    in.grad_y = floats(prefix + "grad_y"), in.argmax = want_argmax;
    const std::vector<float> want = floats(prefix + "grad_x");
    for (const auto& version : testing::chosen(kBackwardVersions)) {
      CAPTURE(version.name, text_of(p));
      REQUIRE(plainly(version.launch, in).grad_x == want);
    }
    in.y.assign(in.y.size(), 1.0f);  // with ReLU's slope 1
    for (const auto& version : testing::chosen(kBackwardVersions)) {
      CAPTURE(version.name, text_of(p));
      REQUIRE(through_relu(version.launch, in).grad_x == want);
    }
  }
}

// ---- What the checks above must catch ----------------------------------------------------------

TEST_CASE("the check refuses a lost, a doubled and a misplaced gradient at every printed shape",
          "[harness]") {
  const std::vector<Size> of = sizes();
  const bool is_cpu = std::string(gpu::kBackend) == "cpu";
  for (const bool quick : {false, true}) {
    std::vector<size_t> chosen;
    for (const Size& size : of) chosen.push_back(quick ? size.quick : is_cpu ? size.cpu : size.gpu);
    for (const Problem& whole : printed(chosen)) {
      CAPTURE(name(whole, "backward"));
      const Problem p = choose_planes(whole, 7).sampled;
      const Routing in(p, few_values(cells_of(p), 9));
      const Expected want = backward_cpu(in.grad_y, in.argmax, p);
      // Of the cells that get anything, since two zeros may change places. A sum is of few terms:
      // half of it stands for one.
      constexpr size_t kRow = 8;
      std::vector<double> value, bound;
      for (size_t i = 0; i < want.value.size(); ++i)
        if (want.value[i] != 0) value.push_back(want.value[i]), bound.push_back(want.bound[i]);
      value.resize(value.size() / kRow * kRow);
      testing::require_refusals(
          value, [&](size_t i) { return bound[i]; }, kRow, [&](size_t i) { return value[i] / 2; });
    }
  }
}

TEST_CASE("planted mistakes are caught", "[harness]") {
  const Problem p{1, 2, 8, 10, 3, 3, 2, 2, 1, 1};
  const std::vector<float> ties = few_values(cells_of(p), 1), nans = special_values(cells_of(p), 2);
  std::vector<float> below = random_floats(cells_of(p), 3);
  for (float& value : below) value -= 2;
  CHECK(!check_forward(maxpool_test::launch_last_of_equals, p, ties).ok);
  CHECK(!check_forward(maxpool_test::launch_padding_counts, p, below).ok);
  CHECK(!check_forward(maxpool_test::launch_nan_is_lost, p, nans).ok);
  CHECK(!check_forward(maxpool_test::launch_place_by_columns, p, ties).ok);
  CHECK(
      check_forward(maxpool_test::launch_last_of_equals, p, below).ok);  // the kernel is right else
}

// ---- What kernels are told --------------------------------------------------------------------

TEST_CASE("problems that can't be are refused in one line") {
  const auto says = [](const Problem& p) {
    std::string text = "no complaint";
    try {
      output_of(p);
    } catch (const std::invalid_argument& error) {
      text = error.what();
    }
    CHECK(text.find('\n') == std::string::npos);
    return text;
  };
  CHECK(says({1, 1, 4, 4, 0, 2, 2, 2}) == "maxpool: a window of 0x2 has no cell");
  CHECK(says({1, 1, 4, 4, 2, 2, 2, 0}) == "maxpool: a stride of 2x0 never moves on");
  CHECK(says({1, 1, 4, 4, 2, 3, 1, 1, 2, 1}) ==
        "maxpool: with a padding of 2x1 some windows of 2x3 could have no cell");
  CHECK(says({1, 1, 4, 4, 5, 3, 1, 1}) ==
        "maxpool: a window of 5x3 does not fit an image of 4x4 with a padding of 0x0");
  CHECK(says({1, 1, 0, 4, 1, 1, 1, 1}) == "maxpool: an image of 0x4 has no cell");
  CHECK(contains_text(says({1, 1, 400, 400, 257, 256, 1, 1}), "more than the 65536 cells"));
  CHECK(contains_text(says({1, 1, 4, 4, std::numeric_limits<size_t>::max(), 2, 1, 1}), "65536"));
  CHECK(contains_text(says({1, 1, size_t{1} << 31, 4, 2, 2, 2, 2}), "at most 2^30"));
  CHECK(says({1, 1, 4, 4, 2, 2, 2, 2}) == "no complaint");
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    REQUIRE_THROWS_AS(
        version.launch.run(nullptr, nullptr, nullptr, {1, 1, 4, 4, 2, 2, 0, 2}, nullptr),
        std::invalid_argument);
  }
  for (const auto& version : testing::chosen(kBackwardVersions)) {
    CAPTURE(version.name);
    REQUIRE_THROWS_AS(
        version.launch.run(nullptr, Arriving{nullptr}, nullptr, {1, 1, 4, 4, 2, 2, 0, 2}, nullptr),
        std::invalid_argument);
  }
}

TEST_CASE("as many outputs as PyTorch has", "[harness]") {
  const auto is = [](const Problem& p, size_t height, size_t width) {
    const Extent out = output_of(p);
    return out.height == height && out.width == width;
  };
  CHECK(is({1, 1, 28, 28, 2, 2, 2, 2}, 14, 14));
  CHECK(is({1, 1, 7, 9, 2, 2, 2, 2}, 3, 4));
  CHECK(is({1, 1, 112, 112, 3, 3, 2, 2, 1, 1}, 56, 56));
  CHECK(is({1, 1, 5, 5, 5, 5, 1, 1, 2, 2}, 5, 5));
  CHECK(is({1, 1, 5, 6, 2, 2, 3, 9}, 2, 1));
}

TEST_CASE("more planes than 32 bits can count are launched part by part", "[long]") {
  for (const size_t items : {size_t{1}, size_t{1000}, size_t{1} << 30, size_t{1} << 40}) {
    const Problem p{size_t{1} << 20, size_t{3}, 1, 1, 1, 1, 1, 1};
    size_t next = 0, largest_part = 0, calls = 0;
    for_planes(p, items, [&](size_t first, unsigned planes) {
      REQUIRE(first == next);
      REQUIRE(planes > 0);
      next += planes, largest_part = std::max<size_t>(largest_part, planes), ++calls;
    });
    CAPTURE(items, calls);
    REQUIRE(next == 3 * (size_t{1} << 20));
    REQUIRE((largest_part * items < size_t{1} << 31 || largest_part == 1));
    REQUIRE((calls == 1) == (items * next < size_t{1} << 31));
  }
}
