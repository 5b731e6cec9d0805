// Every activation, forward and backward, on awkward sizes, alignments and values.
#include "stage1_vector/04_activations/activations.h"

#include <cmath>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "common/guarded.h"
#include "common/npy.h"
#include "common/testing.h"
#include "stage1_vector/01_vector_add/few_blocks_for_tests.h"
#include "stage1_vector/04_activations/reference.h"

// The kernels that only this test has: activations_test.hip.
namespace activations_test {
void launch_textbook_softplus(float* y, const float* x, size_t n, hipStream_t stream);
void launch_textbook_sigmoid(float* y, const float* x, size_t n, hipStream_t stream);
void launch_textbook_slope(float* grad_x, const float* grad_y, const float* x, size_t n,
                           hipStream_t stream);
}  // namespace activations_test

using namespace activations;
using testing::random_floats;

namespace {

using Forward = void (*)(float*, const float*, size_t, hipStream_t);
using Backward = void (*)(float*, const float*, const float*, size_t, hipStream_t);

// One of the functions, with its type forgotten: each test case below is compiled once, not six
// times.
struct Function {
  const char* name;
  double (*cpu)(double);
  double (*derivative_cpu)(double);
  double (*bound)(double);
  double (*derivative_bound)(double);
  float (*value)(float);
  float (*derivative)(float);
  std::vector<double> (*forward_cpu)(const std::vector<float>& x);
  std::vector<double> (*backward_cpu)(const std::vector<float>& x,
                                      const std::vector<float>& grad_y);
  double (*backward_bound)(double x, double grad_y);
  std::vector<Version<Launch>> versions;
};

template <class Activation>
Function function_of() {
  return {Activation::kName,
          Activation::cpu,
          Activation::derivative_cpu,
          Activation::bound,
          Activation::derivative_bound,
          [](float x) { return Activation{}(x); },
          [](float x) { return Activation{}.derivative(x); },
          forward_cpu<Activation>,
          backward_cpu<Activation>,
          backward_bound<Activation>,
          {std::begin(kVersions<Activation>), std::end(kVersions<Activation>)}};
}

std::vector<Function> all_functions() {
  std::vector<Function> functions;
  for_each_activation(
      [&](auto activation) { functions.push_back(function_of<decltype(activation)>()); });
  return functions;
}

// Numbers from 2^-130 to 1e4 of both signs, evenly spaced in their logarithm, and the places where
// float's exp overflows and where tanh, erf and the sigmoid reach their limits.
std::vector<float> wide_range() {
  std::vector<float> values = {0.0f, -0.0f, 1e4f, -1e4f};
  for (int step = 0; step <= 6000; ++step) {
    const float x = static_cast<float>(std::exp2(-130 + 143.28 * step / 6000));
    values.push_back(x), values.push_back(-x);
  }
  for (float x = -110; x < 110; x += 0.03125f) values.push_back(x);
  return values;
}

// Launches on guarded arrays and compares with the reference; a write outside is a failure too.
Comparison check_forward(const Function& f, Forward launch, const std::vector<float>& x,
                         size_t offset_x, size_t offset_y) {
  Guarded<float> d_x(x, offset_x), d_y(x.size(), offset_y);
  launch(d_y.data(), d_x.data(), x.size(), nullptr);
  const std::vector<double> want = f.forward_cpu(x);
  const std::vector<float> got = d_y.to_host();
  Comparison result = compare(
      got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want[i]; },
      [&](size_t i) { return f.bound(static_cast<double>(x[i])); });
  result.ok = result.ok && d_x.intact() && d_y.intact();
  return result;
}

Comparison check_backward(const Function& f, Backward launch, const std::vector<float>& x,
                          const std::vector<float>& grad_y, size_t offset_inputs,
                          size_t offset_output) {
  Guarded<float> d_x(x, offset_inputs), d_grad_y(grad_y, offset_inputs);
  Guarded<float> d_grad_x(x.size(), offset_output);
  launch(d_grad_x.data(), d_grad_y.data(), d_x.data(), x.size(), nullptr);
  const std::vector<double> want = f.backward_cpu(x, grad_y);
  const std::vector<float> got = d_grad_x.to_host();
  Comparison result = compare(
      got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want[i]; },
      [&](size_t i) {
        return f.backward_bound(static_cast<double>(x[i]), static_cast<double>(grad_y[i]));
      });
  result.ok = result.ok && d_x.intact() && d_grad_y.intact() && d_grad_x.intact();
  return result;
}

}  // namespace

TEST_CASE("every activation at any size and alignment") {
  constexpr size_t kSizes[] = {0, 1, 2, 3, 4, 5, 7, 8, 255, 257, 1003, 4099, (1 << 16) + 1};
  constexpr size_t kOffsets[][2] = {{0, 0}, {1, 1}, {3, 3}, {0, 1}};
  for (const size_t n : kSizes) {
    const std::vector<float> x = random_floats(n, 0, 8), grad_y = random_floats(n, 1);
    for (const Function& f : all_functions()) {
      for (const auto& version : testing::chosen(f.versions))
        for (const auto& offsets : kOffsets) {
          CAPTURE(f.name, version.name, n, offsets[0], offsets[1]);
          REQUIRE_OK(check_forward(f, version.launch.forward, x, offsets[0], offsets[1]));
          REQUIRE_OK(check_backward(f, version.launch.backward, x, grad_y, offsets[0], offsets[1]));
        }
    }
  }
}

TEST_CASE("accurate for every |x| up to 1e4") {
  const std::vector<float> x = wide_range(), grad_y = random_floats(x.size(), 1);
  for (const Function& f : all_functions()) {
    for (const auto& version : testing::chosen(f.versions)) {
      CAPTURE(f.name, version.name);
      REQUIRE_OK(check_forward(f, version.launch.forward, x, 0, 0));
      REQUIRE_OK(check_backward(f, version.launch.backward, x, grad_y, 0, 0));
    }
  }
}

TEST_CASE("the loops over the grid work for any number of blocks") {
  const std::vector<float> x = random_floats(5003, 0, 8), grad_y = random_floats(5003, 1);
  for (const size_t blocks : {1, 2, 3}) {
    const vector_add::FewBlocks few(blocks);
    for (const size_t offset : {size_t{0}, size_t{2}})
      for (const Function& f : all_functions()) {
        for (const auto& version : testing::chosen(f.versions)) {
          CAPTURE(f.name, version.name, blocks, offset);
          const Comparison y = check_forward(f, version.launch.forward, x, 0, offset);
          REQUIRE_OK(y);
          const Comparison grad_x =
              check_backward(f, version.launch.backward, x, grad_y, 0, offset);
          REQUIRE_OK(grad_x);
        }
      }
  }
}

TEST_CASE("the output may be an input") {
  const std::vector<float> x = random_floats(1003, 0, 8), grad_y = random_floats(1003, 1);
  for (const auto& version : testing::chosen(kVersions<Softplus>)) {
    CAPTURE(version.name);
    Guarded<float> d_x(x, 1), d_y(x.size(), 1), d_grad(grad_y, 1), d_grad_x(x.size(), 1);
    version.launch.backward(d_grad_x.data(), d_grad.data(), d_x.data(), x.size(), nullptr);
    version.launch.backward(d_grad.data(), d_grad.data(), d_x.data(), x.size(), nullptr);
    version.launch.forward(d_y.data(), d_x.data(), x.size(), nullptr);
    version.launch.forward(d_x.data(), d_x.data(), x.size(), nullptr);
    REQUIRE(d_grad.to_host() == d_grad_x.to_host());
    REQUIRE(d_x.to_host() == d_y.to_host());
  }
}

TEST_CASE("every activation agrees with NumPy", "[numpy]") {
  const auto doubles = [](const std::string& name) {
    return read_npy(reference_path("activations_" + name + ".npy")).values;
  };
  const std::vector<double> wide_x = doubles("x"), wide_grad_y = doubles("grad_y");
  const std::vector<float> x(wide_x.begin(), wide_x.end());
  const std::vector<float> grad_y(wide_grad_y.begin(), wide_grad_y.end());
  for (const Function& f : all_functions()) {
    const std::vector<double> y = doubles(f.name);
    const std::vector<double> grad_x = doubles(std::string(f.name) + "_grad");
    for (const auto& version : testing::chosen(f.versions)) {
      CAPTURE(f.name, version.name);
      Guarded<float> d_x(x, 0), d_grad_y(grad_y, 0), d_y(x.size(), 0), d_grad_x(x.size(), 0);
      version.launch.forward(d_y.data(), d_x.data(), x.size(), nullptr);
      version.launch.backward(d_grad_x.data(), d_grad_y.data(), d_x.data(), x.size(), nullptr);
      const std::vector<float> got_y = d_y.to_host(), got_grad_x = d_grad_x.to_host();
      REQUIRE_OK(compare(
          x.size(), [&](size_t i) { return got_y[i]; }, [&](size_t i) { return y[i]; },
          [&](size_t i) { return f.bound(wide_x[i]); }));
      REQUIRE_OK(compare(
          x.size(), [&](size_t i) { return got_grad_x[i]; }, [&](size_t i) { return grad_x[i]; },
          [&](size_t i) { return f.backward_bound(wide_x[i], wide_grad_y[i]); }));
    }
  }
}

TEST_CASE("derivatives are the slopes of the functions") {
  // (f(x + h) - f(x - h)) / 2h in double is off by h^2 f'''/6 (f''' is below 2 here) and by the
  // rounding of f, about 2^-53 |f| / h.
  constexpr double kStep = 1e-5;
  for (const Function& f : all_functions()) {
    for (double x = -12.0003; x < 12; x += 0.01) {
      const double slope = (f.cpu(x + kStep) - f.cpu(x - kStep)) / (2 * kStep);
      CAPTURE(f.name, x);
      REQUIRE(std::fabs(slope - f.derivative_cpu(x)) <=
              kStep * kStep + 4 * std::exp2(-53) * (1 + std::fabs(x)) / kStep);
    }
  }
  REQUIRE(Relu{}.derivative(0.0f) == 0.0f);
}

TEST_CASE("the functors run on the host too") {
  for (const Function& f : all_functions()) {
    for (const float x : {-20.0f, -1.0f, -0.1f, 0.0f, 0.5f, 3.0f, 1e4f}) {
      const double wide = static_cast<double>(x);
      CAPTURE(f.name, x);
      REQUIRE(std::fabs(static_cast<double>(f.value(x)) - f.cpu(wide)) <= f.bound(wide));
      REQUIRE(std::fabs(static_cast<double>(f.derivative(x)) - f.derivative_cpu(wide)) <=
              f.derivative_bound(wide));
    }
  }
}

TEST_CASE("NaN stays NaN, and infinities go to the limits") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const auto run = [&](const auto& version) {
    Guarded<float> d_x(std::vector<float>{kNan, kInfinity, -kInfinity}, 0), d_y(3, 0);
    version.launch.forward(d_y.data(), d_x.data(), 3, nullptr);
    return d_y.to_host();
  };
  for (const Function& f : all_functions()) {
    for (const auto& version : testing::chosen(f.versions)) {
      CAPTURE(f.name, version.name);
      REQUIRE(std::isnan(run(version)[0]));
      Guarded<float> d_x(std::vector<float>{kNan, 1.0f}, 0), d_grad_x(2, 0);
      Guarded<float> d_grad_y(std::vector<float>{1.0f, kNan}, 0);
      version.launch.backward(d_grad_x.data(), d_grad_y.data(), d_x.data(), 2, nullptr);
      for (const float grad : d_grad_x.to_host()) REQUIRE(std::isnan(grad));
    }
  }
  for (const auto& version : testing::chosen(kVersions<Relu>))
    REQUIRE((run(version)[1] == kInfinity && run(version)[2] == 0));
  for (const auto& version : testing::chosen(kVersions<Sigmoid>))
    REQUIRE((run(version)[1] == 1 && run(version)[2] == 0));
  for (const auto& version : testing::chosen(kVersions<Tanh>))
    REQUIRE((run(version)[1] == 1 && run(version)[2] == -1));
  for (const auto& version : testing::chosen(kVersions<Softplus>))
    REQUIRE((run(version)[1] == kInfinity && run(version)[2] == 0));
}

TEST_CASE("every version may be recorded in a graph") {
  const std::vector<float> x = random_floats(1003, 0, 8), grad_y = random_floats(1003, 1);
  Guarded<float> d_x(x, 0), d_grad_y(grad_y, 0), d_out(x.size(), 0);
  const auto poison = [&] { gpu::poison(d_out.data(), x.size() * sizeof(float)); };
  const auto read = [&] { return d_out.to_host(); };
  for (const auto& version : testing::chosen(kVersions<Tanh>)) {
    CAPTURE(version.name);
    testing::require_same_in_graph(
        poison,
        [&](hipStream_t stream) {
          version.launch.forward(d_out.data(), d_x.data(), x.size(), stream);
        },
        read);
    testing::require_same_in_graph(
        poison,
        [&](hipStream_t stream) {
          version.launch.backward(d_out.data(), d_grad_y.data(), d_x.data(), x.size(), stream);
        },
        read);
  }
}

// ---- What the checks above must catch ---------------------------------------------------------

TEST_CASE("formulas that overflow or cancel are caught", "[harness]") {
  using namespace activations_test;
  const std::vector<float> grad_y = {1.0f};
  REQUIRE(!check_forward(function_of<Softplus>(), launch_textbook_softplus, {100.0f}, 0, 0).ok);
  REQUIRE(!check_forward(function_of<Softplus>(), launch_textbook_softplus, {-20.0f}, 0, 0).ok);
  REQUIRE(!check_forward(function_of<Sigmoid>(), launch_textbook_sigmoid, {100.0f}, 0, 0).ok);
  REQUIRE(!check_backward(function_of<Sigmoid>(), launch_textbook_slope, {15.0f}, grad_y, 0, 0).ok);
  // The derivative of another function.
  REQUIRE(
      !check_backward(function_of<Tanh>(), launch_backward_scalar<Sigmoid>, {0.5f}, grad_y, 0, 0)
           .ok);
}

TEST_CASE("the program's checks refuse missing, doubled and swapped elements", "[harness]") {
  // A sample of the program's inputs. Its first and its last two are positive and differ, since
  // ReLU makes 0 of what is negative, whatever it was.
  std::vector<float> x = random_floats(20011, 0, 8), grad_y = random_floats(20011, 1);
  const size_t n = x.size();
  x[0] = 1.0f, x[1] = 2.0f, x[n - 2] = 3.0f, x[n - 1] = 1.5f;
  grad_y[0] = 0.5f, grad_y[1] = -0.5f, grad_y[n - 2] = 0.75f, grad_y[n - 1] = 0.25f;
  // Smaller elements than this may be all rounding: GELU's are, far below 0.
  const auto term = [](double want) { return std::fabs(want) < 1e-4 ? 0.0 : want; };
  for (const Function& f : all_functions()) {
    CAPTURE(f.name);
    const std::vector<double> y = f.forward_cpu(x);
    testing::require_refusals(
        y, [&](size_t i) { return f.bound(static_cast<double>(x[i])); }, 1,
        [&](size_t i) { return term(y[i]); });
    const std::vector<double> grad_x = f.backward_cpu(x, grad_y);
    testing::require_refusals(
        grad_x,
        [&](size_t i) {
          return f.backward_bound(static_cast<double>(x[i]), static_cast<double>(grad_y[i]));
        },
        1, [&](size_t i) { return term(grad_x[i]); });
  }
}
