// Every version of the dense layer on awkward shapes, alignments and values, within its bound.
#include "stage4_forward/01_dense/dense.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/guarded.h"
#include "common/npy.h"
#include "common/testing.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage4_forward/01_dense/problem.h"
#include "stage4_forward/01_dense/reference.h"

// The layers that only this test has: dense_test.hip.
namespace dense_test {
void launch_right(float* y, const float* x, size_t batch, const dense::Layer& layer,
                  const gemv::Workspace& workspace, hipStream_t stream);
void launch_bias_of_row(float* y, const float* x, size_t batch, const dense::Layer& layer,
                        const gemv::Workspace& workspace, hipStream_t stream);
void launch_no_bias(float* y, const float* x, size_t batch, const dense::Layer& layer,
                    const gemv::Workspace& workspace, hipStream_t stream);
void launch_bias_behind_activation(float* y, const float* x, size_t batch,
                                   const dense::Layer& layer, const gemv::Workspace& workspace,
                                   hipStream_t stream);
void launch_reads_old_y(float* y, const float* x, size_t batch, const dense::Layer& layer,
                        const gemv::Workspace& workspace, hipStream_t stream);
void launch_swapped_weights(float* y, const float* x, size_t batch, const dense::Layer& layer,
                            const gemv::Workspace& workspace, hipStream_t stream);
void launch_without_last_input(float* y, const float* x, size_t batch, const dense::Layer& layer,
                               const gemv::Workspace& workspace, hipStream_t stream);
}  // namespace dense_test

namespace {

using activations::GeluTanh;
using activations::Relu;
using activations::Sigmoid;
using dense::Layer;
using dense::Linear;
using dense::Shape;

constexpr Shape kShapes[] = {{0, 3, 2},     {3, 0, 2},    {3, 2, 0},     {1, 1, 1},
                             {2, 15, 16},   {17, 31, 33}, {63, 64, 1},   {1, 129, 127},
                             {65, 63, 129}, {129, 2, 65}, {31, 255, 15}, {3, 1, 300}};

using testing::random_floats;
using testing::random_integers;

struct Inputs {
  using Make = std::vector<float> (*)(size_t n, std::uint32_t stream);
  explicit Inputs(const Shape& sizes, Make make = random_floats)
      : shape(sizes),
        x(make(shape.batch * shape.in, 0)),
        w(make(shape.out * shape.in, 1)),
        bias(make(shape.out, 2)) {}
  Shape shape;
  std::vector<float> x, w, bias;
};

// The device memory of one layer, guarded; the arrays begin `offset` elements behind a 16-byte
// boundary.
struct Problem {
  explicit Problem(const Inputs& in, size_t offset = 0)
      : shape(in.shape),
        d_x(in.x, offset),
        d_w(in.w, offset),
        d_bias(in.bias, offset),
        d_y(shape.batch * shape.out, offset),
        d_partials(gemv::kMaxPartials, 0) {}

  std::vector<float> run(dense::Launch launch, hipStream_t stream = nullptr) {
    if (d_y.size() > 0) gpu::poison(d_y.data(), d_y.size() * sizeof(float));
    const Layer layer{shape.in, shape.out, d_w.data(), d_bias.data()};
    launch(d_y.data(), d_x.data(), shape.batch, layer, {d_partials.data()}, stream);
    HIP_CHECK(hipStreamSynchronize(stream));
    return d_y.to_host();
  }
  Comparison check(dense::Launch launch, const std::vector<double>& want,
                   const std::vector<double>& error) {
    const std::vector<float> got = run(launch);
    REQUIRE(got.size() == want.size());
    Comparison result = compare(
        got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want[i]; },
        [&](size_t i) { return error[i]; });
    result.ok = result.ok && d_x.intact() && d_w.intact() && d_bias.intact() && d_y.intact() &&
                d_partials.intact();
    return result;
  }

  Shape shape;
  Guarded<float> d_x, d_w, d_bias, d_y, d_partials;
};

template <class Activation>
dense::Values reference(const Inputs& in) {
  return dense::dense_cpu<Activation>(dense::exactly(in.x), in.w, in.bias, in.shape.batch);
}

template <class Activation>
Comparison check(dense::Launch launch, const Inputs& in, size_t offset) {
  const dense::Values want = reference<Activation>(in);
  return Problem(in, offset).check(launch, want.value, want.error);
}

template <class Visit>
void for_each_function(Visit&& visit) {
  visit(Linear{}), visit(Relu{}), visit(Sigmoid{}), visit(GeluTanh{});
}

}  // namespace

TEST_CASE("any shape and alignment stays within its bound") {
  for (const Shape& shape : kShapes) {
    const Inputs in(shape);
    for_each_function([&](auto function) {
      using Activation = decltype(function);
      for (const auto& version : testing::chosen(dense::kVersions<Activation>))
        for (const size_t offset : {size_t{0}, size_t{1}}) {
          CAPTURE(Activation::kName, version.name, shape.batch, shape.in, shape.out, offset);
          REQUIRE_OK(check<Activation>(version.launch, in, offset));
        }
    });
  }
}

TEST_CASE("forward has a function that the ladder does not have") {
  for (const Shape& shape : kShapes) {
    const auto launch = [](float* y, const float* x, size_t batch, const Layer& layer,
                           const gemv::Workspace&, hipStream_t stream) {
      dense::forward<activations::Tanh>(y, x, batch, layer, stream);
    };
    CAPTURE(shape.batch, shape.in, shape.out);
    REQUIRE_OK(check<activations::Tanh>(launch, Inputs(shape), 1));
  }
}

TEST_CASE("products of integers are exact: nothing is missed, doubled or in another's place") {
  for (const Shape& shape : {Shape{33, 65, 17}, Shape{5, 300, 131}}) {
    const Inputs in(shape, random_integers);
    const dense::Values want = reference<Relu>(in);
    for (const auto& version : testing::chosen(dense::kVersions<Relu>)) {
      CAPTURE(version.name, shape.batch);
      REQUIRE_OK(Problem(in, 3).check(version.launch, want.value,
                                      std::vector<double>(want.value.size(), 0)));
    }
  }
}

TEST_CASE("the layer agrees with NumPy", "[numpy]") {
  const auto floats = [](const std::string& name) {
    return read_npy(reference_path("dense_" + name + ".npy")).floats();
  };
  const std::vector<size_t> x_shape = read_npy(reference_path("dense_x.npy")).shape;
  Inputs in({x_shape.at(0), x_shape.at(1), 0});
  in.x = floats("x"), in.w = floats("w"), in.bias = floats("bias");
  in.shape.out = in.bias.size();
  const auto require_same = [&](auto function) {
    using Activation = decltype(function);
    const std::string name = std::string("dense_") + Activation::kName + ".npy";
    const std::vector<double> y = read_npy(reference_path(name)).values;
    for (const auto& version : testing::chosen(dense::kVersions<Activation>)) {
      CAPTURE(Activation::kName, version.name);
      REQUIRE_OK(Problem(in).check(version.launch, y, reference<Activation>(in).error));
    }
  };
  require_same(Linear{}), require_same(Relu{}), require_same(GeluTanh{});
}

TEST_CASE("without inputs the layer is its bias") {
  const Inputs in({3, 0, 5});
  for (const auto& version : testing::chosen(dense::kVersions<Relu>)) {
    CAPTURE(version.name);
    const std::vector<float> y = Problem(in).run(version.launch);
    for (size_t i = 0; i < y.size(); ++i) REQUIRE(y[i] == Relu{}(in.bias[i % 5]));
  }
}

TEST_CASE(
    "NaN of an input, a weight or a bias reaches the outputs that it belongs to, and no other") {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const Shape shape{9, 33, 13};
  Inputs in(shape);
  in.x[2 * shape.in + 5] = kNan, in.w[7 * shape.in + 32] = kNan, in.bias[11] = kNan;
  for_each_function([&](auto function) {
    for (const auto& version : testing::chosen(dense::kVersions<decltype(function)>)) {
      CAPTURE(version.name);
      const std::vector<float> y = Problem(in).run(version.launch);
      for (size_t i = 0; i < y.size(); ++i) {
        const size_t row = i / shape.out, col = i % shape.out;
        CAPTURE(row, col);
        REQUIRE(std::isnan(y[i]) == (row == 2 || col == 7 || col == 11));
      }
    }
  });
}

TEST_CASE("infinity reaches the output") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Inputs in({3, 5, 2});
  in.x[5 + 3] = kInfinity, in.w[3] = 0.5f, in.w[5 + 3] = -0.5f;  // sample 1: +infinity, -infinity
  for (const auto& version : testing::chosen(dense::kVersions<Relu>)) {
    CAPTURE(version.name);
    const std::vector<float> y = Problem(in).run(version.launch);
    REQUIRE(y[2] == kInfinity);
    REQUIRE(y[3] == 0);
    for (const size_t i : {0, 1, 4, 5}) REQUIRE(std::isfinite(y[i]));
  }
}

TEST_CASE("every version works on a stream") {
  Problem problem(Inputs({33, 65, 17}));
  hipStream_t stream = nullptr;
  HIP_CHECK(hipStreamCreate(&stream));
  for (const auto& version : testing::chosen(dense::kVersions<Relu>)) {
    CAPTURE(version.name);
    REQUIRE(problem.run(version.launch, stream) == problem.run(version.launch));
  }
  HIP_CHECK(hipStreamDestroy(stream));
}

TEST_CASE("forward is the last version") {
  Problem problem(Inputs({33, 65, 17}));
  const std::vector<float> want = problem.run(std::rbegin(dense::kVersions<Relu>)->launch);
  const Layer layer{65, 17, problem.d_w.data(), problem.d_bias.data()};
  hipStream_t stream = nullptr;
  HIP_CHECK(hipStreamCreate(&stream));
  dense::forward<Relu>(problem.d_y.data(), problem.d_x.data(), 33, layer, stream);
  HIP_CHECK(hipStreamSynchronize(stream));
  REQUIRE(problem.d_y.to_host() == want);
  HIP_CHECK(hipStreamDestroy(stream));
}

TEST_CASE("arrays that are missing are refused") {
  const Inputs in({2, 3, 4});
  Problem problem(in);
  const float *x = problem.d_x.data(), *w = problem.d_w.data(), *bias = problem.d_bias.data();
  float* y = problem.d_y.data();
  for (const auto& version : testing::chosen(dense::kVersions<Relu>)) {
    CAPTURE(version.name);
    const auto launch = [&](float* to, const float* from, const Layer& layer) {
      version.launch(to, from, 2, layer, {problem.d_partials.data()}, nullptr);
    };
    REQUIRE_THROWS_AS(launch(nullptr, x, {3, 4, w, bias}), std::invalid_argument);
    REQUIRE_THROWS_AS(launch(y, nullptr, {3, 4, w, bias}), std::invalid_argument);
    REQUIRE_THROWS_AS(launch(y, x, {3, 4, nullptr, bias}), std::invalid_argument);
    REQUIRE_THROWS_AS(launch(y, x, {3, 4, w, nullptr}), std::invalid_argument);
  }
}

// ---- What the checks above must catch ---------------------------------------------------------

TEST_CASE("planted mistakes are caught", "[harness]") {
  using namespace dense_test;
  const Inputs in({33, 33, 33});
  REQUIRE(check<Relu>(launch_right, in, 0).ok);
  for (const dense::Launch launch :
       {launch_bias_of_row, launch_no_bias, launch_bias_behind_activation, launch_reads_old_y,
        launch_swapped_weights, launch_without_last_input})
    REQUIRE(!check<Relu>(launch, in, 0).ok);
}

// Of an element that ReLU has clipped no check sees a term, so the others are the ones that count.
TEST_CASE("the program's checks refuse a wrong term or row at every shape that it prints",
          "[harness]") {
  for (const bool quick : {false, true}) {
    const std::vector<size_t> size = usual_sizes(dense::sizes(), quick, gpu::kBackend);
    for (const Shape& shape : dense::printed({size[0], size[1], size[2]}, false, quick))
      for (const bool exact : {true, false}) {
        CAPTURE(dense::name(shape), exact);
        Inputs in(shape, exact ? Inputs::Make{random_integers} : Inputs::Make{random_floats});
        if (!exact)
          for (float& weight : in.w) weight *= dense::weight_scale(shape);
        const std::vector<size_t> rows = dense::rows_of(shape, 7).rows;
        std::vector<float> x;
        for (const size_t row : rows)
          x.insert(x.end(), in.x.begin() + static_cast<std::ptrdiff_t>(row * shape.in),
                   in.x.begin() + static_cast<std::ptrdiff_t>((row + 1) * shape.in));
        const dense::Values want = dense::dense_cpu<Relu>(dense::exactly(x), in.w, in.bias,
                                                          rows.size(), dense::Terms::mean_zero);
        const auto bound = [&](size_t i) { return exact ? 0 : want.error[i]; };
        // A term of median size, among the first 64 of the sum.
        const auto term = [&](size_t i) {
          return testing::median_term(std::min(shape.in, size_t{64}), [&](size_t k) {
            return static_cast<double>(x[i / shape.out * shape.in + k]) *
                   static_cast<double>(in.w[i % shape.out * shape.in + k]);
          });
        };
        std::vector<size_t> seen;
        std::vector<double> values;
        for (size_t i = 0; i < want.value.size(); ++i)
          if (want.value[i] > 0) seen.push_back(i), values.push_back(want.value[i]);
        testing::require_refusals(
            values, [&](size_t i) { return bound(seen[i]); }, 1,
            [&](size_t i) { return term(seen[i]); });
        if (rows.size() < 2) continue;
        std::vector<double> swapped = want.value;
        const auto second = swapped.begin() + static_cast<std::ptrdiff_t>(shape.out);
        std::swap_ranges(swapped.begin(), second, second);
        REQUIRE(!compare(
                     swapped.size(), [&](size_t i) { return static_cast<float>(swapped[i]); },
                     [&](size_t i) { return want.value[i]; }, bound)
                     .ok);
      }
  }
}
