// The forward pass of every version on windows of all kinds, with equal values, NaN and infinity;
// both passes together, as later steps call them, and against NumPy; arguments that are refused.
#include "stage6_cnn/03_maxpool/maxpool.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/guarded.h"
#include "common/npy.h"
#include "common/testing.h"
#include "stage1_vector/01_vector_add/few_blocks_for_tests.h"
#include "stage6_cnn/03_maxpool/detail/shape.h"
#include "stage6_cnn/03_maxpool/pooling_for_tests.h"
#include "stage6_cnn/03_maxpool/reference.h"

using namespace maxpool_test;

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

// ---- Both passes ------------------------------------------------------------------------------

TEST_CASE("the loops over the grid work for any number of blocks") {
  const Problem p{2, 3, 11, 37, 3, 3, 2, 2, 1, 1};
  const std::vector<float> x = few_values(cells_of(p), 3);
  const Routing in(p, x);
  const Expected want = backward_cpu(in.grad_y, in.argmax, p);
  for (const size_t blocks : {1, 2, 3}) {
    const vector_add::FewBlocks few(blocks);
    for (const auto& version : testing::chosen(kVersions)) {
      CAPTURE(version.name, blocks);
      REQUIRE_OK(check_forward(version.launch.run, p, x));
    }
    for (const auto& version : testing::chosen(kBackwardVersions)) {
      CAPTURE(version.name, blocks);
      REQUIRE_OK(against(plainly(version.launch, in), want));
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

TEST_CASE("values, places and gradients agree with NumPy", "[numpy]") {
  const auto array = [](const std::string& name) {
    return read_npy(reference_path("maxpool_" + name + ".npy"));
  };
  const auto floats = [&](const std::string& name) { return array(name).floats(); };
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
