// The network worked by hand, then every version on awkward shapes and values, within its bound.
#include "stage4_forward/02_mlp_forward/mlp_forward.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "common/guarded.h"
#include "common/npy.h"
#include "common/testing.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage4_forward/01_dense/problem.h"
#include "stage4_forward/02_mlp_forward/problem.h"
#include "stage4_forward/02_mlp_forward/reference.h"

// A kernel that only this test has: mlp_forward_test.hip.
namespace mlp_forward_test {
void launch_without_barrier(float* y, float* h, const float* x, size_t batch,
                            const mlp_forward::Network& network, hipStream_t stream);
void launch_with_barrier(float* y, float* h, const float* x, size_t batch,
                         const mlp_forward::Network& network, hipStream_t stream);
}  // namespace mlp_forward_test

namespace {

using namespace mlp_forward;
using activations::Relu;
using activations::Sigmoid;

// The last two do not fit one_kernel's shared memory.
constexpr Shape kShapes[] = {{0, 3, 2, 1},     {3, 0, 2, 1},    {3, 2, 0, 2},    {3, 2, 4, 0},
                             {1, 1, 1, 1},     {4, 2, 16, 1},   {2, 15, 17, 3},  {5, 31, 33, 65},
                             {17, 64, 63, 2},  {33, 129, 7, 9}, {63, 16, 65, 5}, {6, 9, 257, 130},
                             {3, 3005, 70, 4}, {2, 5, 3068, 3}};

using testing::random_floats;
using testing::random_integers;

struct Inputs {
  using Make = std::vector<float> (*)(size_t n, std::uint32_t stream);
  explicit Inputs(const Shape& sizes, Make make = random_floats)
      : shape(sizes),
        x(make(shape.batch * shape.in, 0)),
        parameters{make(shape.hidden * shape.in, 1), make(shape.hidden, 2),
                   make(shape.out * shape.hidden, 3), make(shape.out, 4)} {}
  template <class Activation>
  Values reference() const {
    return mlp_cpu<Activation>(x, parameters, shape.batch);
  }
  Shape shape;
  std::vector<float> x;
  Parameters parameters;
};

// The device memory of one network, guarded; the arrays begin `offset` elements behind a 16-byte
// boundary.
struct Problem {
  explicit Problem(const Inputs& in, size_t offset = 0)
      : shape(in.shape),
        d_x(in.x, offset),
        d_w1(in.parameters.w1, offset),
        d_bias1(in.parameters.bias1, offset),
        d_w2(in.parameters.w2, offset),
        d_bias2(in.parameters.bias2, offset),
        d_h(shape.batch * shape.hidden, offset),
        d_y(shape.batch * shape.out, offset) {}

  Network network() {
    return {{shape.in, shape.hidden, d_w1.data(), d_bias1.data()},
            {shape.hidden, shape.out, d_w2.data(), d_bias2.data()}};
  }
  std::vector<float> run(Launch launch, hipStream_t stream = nullptr) {
    for (Guarded<float>* output : {&d_h, &d_y})
      if (output->size() > 0) gpu::poison(output->data(), output->size() * sizeof(float));
    launch(d_y.data(), d_h.data(), d_x.data(), shape.batch, network(), stream);
    HIP_CHECK(hipStreamSynchronize(stream));
    return d_y.to_host();
  }
  Comparison check(Launch launch, const std::vector<double>& want,
                   const std::vector<double>& error) {
    const std::vector<float> got = run(launch);
    REQUIRE(got.size() == want.size());
    Comparison result = compare(
        got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want[i]; },
        [&](size_t i) { return error[i]; });
    for (const Guarded<float>* array : {&d_x, &d_w1, &d_bias1, &d_w2, &d_bias2, &d_h, &d_y})
      result.ok = result.ok && array->intact();
    return result;
  }

  Shape shape;
  Guarded<float> d_x, d_w1, d_bias1, d_w2, d_bias2, d_h, d_y;
};

template <class Activation>
Comparison check(Launch launch, const Inputs& in, size_t offset = 0) {
  const Values want = in.reference<Activation>();
  return Problem(in, offset).check(launch, want.value, want.error);
}

}  // namespace

TEST_CASE("the network of the README gives the values worked out there by hand") {
  Inputs in({2, 2, 3, 1});
  in.x = {1, 2, 3, 4};
  in.parameters = {
      {0.1f, 0.2f, -0.3f, 0.4f, 0.5f, -0.6f}, {0.1f, 0.2f, 0.3f}, {0.7f, -0.8f, 0.9f}, {0.5f}};
  const double hidden[] = {0.645656306, 0.668187772, 0.401312340,
                           0.768524783, 0.710949503, 0.354343694};
  const double want[] = {0.778590302, 0.788117071};
  const auto near = [](double got, double value) { return std::fabs(got - value) <= 1e-6; };

  const Values reference = in.reference<Sigmoid>();
  for (size_t i = 0; i < 2; ++i) REQUIRE(near(reference.value[i], want[i]));
  Problem problem(in);
  for (const auto& version : testing::chosen(kVersions<Sigmoid>)) {
    CAPTURE(version.name);
    const std::vector<float> y = problem.run(version.launch);
    for (size_t i = 0; i < 2; ++i) REQUIRE(near(static_cast<double>(y[i]), want[i]));
    if (std::string(version.name) == "one_kernel") continue;  // it keeps h to itself
    const std::vector<float> h = problem.d_h.to_host();
    for (size_t i = 0; i < 6; ++i) REQUIRE(near(static_cast<double>(h[i]), hidden[i]));
  }
}

TEST_CASE("any shape and alignment stays within its bound") {
  for (const Shape& shape : kShapes) {
    const Inputs in(shape);
    for (const size_t offset : {size_t{0}, size_t{1}}) {
      CAPTURE(shape.batch, shape.in, shape.hidden, shape.out, offset);
      for (const auto& version : testing::chosen(kVersions<Relu>)) {
        CAPTURE(version.name);
        REQUIRE_OK(check<Relu>(version.launch, in, offset));
      }
      for (const auto& version : testing::chosen(kVersions<Sigmoid>)) {
        CAPTURE(version.name);
        REQUIRE_OK(check<Sigmoid>(version.launch, in, offset));
      }
    }
  }
}

TEST_CASE("products of integers are exact: nothing is missed, doubled or in another's place") {
  for (const Shape& shape : {Shape{13, 33, 17, 5}, Shape{5, 70, 131, 33}}) {
    const Inputs in(shape, random_integers);
    const Values want = in.reference<Relu>();
    for (const auto& version : testing::chosen(kVersions<Relu>)) {
      CAPTURE(version.name, shape.batch);
      REQUIRE_OK(Problem(in, 3).check(version.launch, want.value,
                                      std::vector<double>(want.value.size(), 0)));
    }
  }
}

TEST_CASE("the network agrees with NumPy", "[numpy]") {
  const auto array = [](const std::string& name) {
    return read_npy(reference_path("mlp_forward_" + name + ".npy"));
  };
  const auto floats = [&](const std::string& name) { return array(name).floats(); };
  Inputs in({array("x").shape.at(0), array("x").shape.at(1), array("w2").shape.at(1),
             array("w2").shape.at(0)});
  in.x = floats("x");
  in.parameters = {floats("w1"), floats("bias1"), floats("w2"), floats("bias2")};
  for (const auto& version : testing::chosen(kVersions<Relu>)) {
    CAPTURE(version.name);
    REQUIRE_OK(Problem(in).check(version.launch, array("relu").values, in.reference<Relu>().error));
  }
  for (const auto& version : testing::chosen(kVersions<Sigmoid>)) {
    CAPTURE(version.name);
    REQUIRE_OK(
        Problem(in).check(version.launch, array("sigmoid").values, in.reference<Sigmoid>().error));
  }
}

TEST_CASE("NaN of a sample stays in that sample, NaN of a weight reaches all") {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const Shape shape{9, 33, 13, 3};
  Inputs in(shape);
  in.x[6 * shape.in + 32] = kNan;
  in.parameters.w2[1 * shape.hidden + 12] = kNan;
  for (const auto& version : testing::chosen(kVersions<Relu>)) {
    CAPTURE(version.name);
    const std::vector<float> y = Problem(in).run(version.launch);
    for (size_t i = 0; i < y.size(); ++i) {
      CAPTURE(i);
      REQUIRE(std::isnan(y[i]) == (i / shape.out == 6 || i % shape.out == 1));
    }
  }
}

TEST_CASE("every version works on a stream") {
  const Inputs in({33, 65, 17, 3});
  hipStream_t stream = nullptr;
  HIP_CHECK(hipStreamCreate(&stream));
  Problem problem(in);
  for (const auto& version : testing::chosen(kVersions<Relu>)) {
    CAPTURE(version.name);
    REQUIRE(problem.run(version.launch, stream) == problem.run(version.launch));
  }
  HIP_CHECK(hipStreamDestroy(stream));
}

TEST_CASE("layers that do not fit together and missing arrays are refused") {
  Problem problem(Inputs({2, 3, 4, 2}));
  for (const auto& version : testing::chosen(kVersions<Relu>)) {
    CAPTURE(version.name);
    const auto launch = [&](const float* x, const Network& network) {
      version.launch(problem.d_y.data(), problem.d_h.data(), x, 2, network, nullptr);
    };
    Network other = problem.network();
    other.second.in = 3;
    REQUIRE_THROWS_AS(launch(problem.d_x.data(), other), std::invalid_argument);
    REQUIRE_THROWS_AS(launch(nullptr, problem.network()), std::invalid_argument);
    Network without = problem.network();
    without.second.w = nullptr;
    REQUIRE_THROWS_AS(launch(problem.d_x.data(), without), std::invalid_argument);
    without = problem.network();
    without.first.bias = nullptr;
    REQUIRE_THROWS_AS(launch(problem.d_x.data(), without), std::invalid_argument);
  }
}

// ---- What the checks above must catch ---------------------------------------------------------

namespace {

void launch_without_activation(float* y, float* h, const float* x, size_t batch,
                               const Network& network, hipStream_t stream) {
  dense::forward<Linear>(h, x, batch, network.first, stream);
  dense::forward<Linear>(y, h, batch, network.second, stream);
}

void launch_activated_output(float* y, float* h, const float* x, size_t batch,
                             const Network& network, hipStream_t stream) {
  dense::forward<Relu>(h, x, batch, network.first, stream);
  dense::forward<Relu>(y, h, batch, network.second, stream);
}

void launch_swapped_biases(float* y, float* h, const float* x, size_t batch, const Network& network,
                           hipStream_t stream) {
  Network wrong = network;
  std::swap(wrong.first.bias, wrong.second.bias);
  launch_fused_layers<Relu>(y, h, x, batch, wrong, stream);
}

// The last group of four samples, which fills no block of one_kernel, is left out.
void launch_whole_blocks(float* y, float* h, const float* x, size_t batch, const Network& network,
                         hipStream_t stream) {
  launch_one_kernel<Relu>(y, h, x, batch / 4 * 4, network, stream);
}

}  // namespace

TEST_CASE("planted mistakes are caught", "[harness]") {
  const Inputs in({33, 17, 40, 40});
  for (const Launch launch : {launch_without_activation, launch_activated_output,
                              launch_swapped_biases, launch_whole_blocks})
    REQUIRE(!check<Relu>(launch, in).ok);
}

TEST_CASE("a missing barrier is caught", "[harness]") {
  const Inputs in({33, 17, 40, 40});
  REQUIRE(check<Relu>(mlp_forward_test::launch_with_barrier, in).ok);
  if (std::string(gpu::kBackend) ==
      "cpu")  // a GPU may run the threads in the right order by chance
    REQUIRE(!check<Relu>(mlp_forward_test::launch_without_barrier, in).ok);
}

// A term is a hidden unit that is not 0, in the second layer's sum; or one of the first layer's
// terms in the sum of such a unit, times the weight that takes it on.
TEST_CASE("the program's checks refuse a wrong term or row at every shape that it prints",
          "[harness]") {
  for (const bool quick : {false, true}) {
    const std::vector<size_t> size = usual_sizes(sizes(), quick, gpu::kBackend);
    for (const Shape& shape : printed({size[0], size[1], size[2], size[3]}, false, quick))
      for (const bool exact : {true, false}) {
        CAPTURE(name(shape), exact);
        const std::vector<size_t> rows = rows_of(shape, 7).rows;
        Inputs in({rows.size(), shape.in, shape.hidden, shape.out},
                  exact ? Inputs::Make{random_integers} : Inputs::Make{random_floats});
        Parameters& p = in.parameters;
        if (!exact) {
          for (float& w : p.w1) w *= dense::weight_scale({0, shape.in, shape.hidden});
          for (float& w : p.w2) w *= dense::weight_scale({0, shape.hidden, shape.out});
        }
        const std::vector<double> h = hidden_cpu<Relu>(in.x, p, rows.size()).value;
        const Values want = mlp_cpu<Relu>(in.x, p, rows.size(), Terms::mean_zero);
        const auto bound = [&](size_t i) { return exact ? 0 : want.error[i]; };
        const auto w2 = [&](size_t i, size_t u) {
          return static_cast<double>(p.w2[i % shape.out * shape.hidden + u]);
        };
        const auto active =
            [&](size_t i) {  // the hidden units of element i's sample that are not 0
              std::vector<size_t> units;
              for (size_t u = 0; u < shape.hidden; ++u)
                if (h[i / shape.out * shape.hidden + u] > 0) units.push_back(u);
              return units;
            };
        testing::require_refusals(want.value, bound, shape.out, [&](size_t i) {
          const std::vector<size_t> units = active(i);
          return testing::median_term(units.size(), [&](size_t n) {
            return w2(i, units[n]) * h[i / shape.out * shape.hidden + units[n]];
          });
        });
        testing::require_refusals(want.value, bound, shape.out, [&](size_t i) {
          const std::vector<size_t> units = active(i);
          return testing::median_term(units.size() * std::min(shape.in, size_t{64}), [&](size_t n) {
            const size_t u = units[n % units.size()], k = n / units.size();
            return w2(i, u) * static_cast<double>(p.w1[u * shape.in + k]) *
                   static_cast<double>(in.x[i / shape.out * shape.in + k]);
          });
        });
      }
  }
}
