// Bias + activation over matrices of awkward shapes, alignments and values, forward and backward.
#include "stage3_ml_ops/01_matrix_activations/matrix_activations.h"

#include <cmath>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "common/guarded.h"
#include "common/npy.h"
#include "common/testing.h"
#include "stage1_vector/01_vector_add/few_blocks_for_tests.h"
#include "stage3_ml_ops/01_matrix_activations/reference.h"

// The kernels that only this test has: matrix_activations_test.hip.
namespace matrix_activations_test {
void launch_bias_of_row(float* y, const float* x, const float* bias, size_t rows, size_t cols,
                        hipStream_t stream);
void launch_without_bounds_check(float* y, const float* x, const float* bias, size_t rows,
                                 size_t cols, hipStream_t stream);
void launch_no_bias_in_backward(float* grad_x, const float* grad_y, const float* x,
                                const float* bias, size_t rows, size_t cols, hipStream_t stream);
void launch_slope_of_output(float* grad_x, const float* grad_y, const float* x, const float* bias,
                            size_t rows, size_t cols, hipStream_t stream);
}  // namespace matrix_activations_test

using namespace matrix_activations;
using activations::Relu;
using activations::Sigmoid;
using activations::Softplus;
using testing::random_floats;

namespace {

// One of the functions, with its type forgotten: each test case below is compiled once, not six
// times.
struct Function {
  const char* name;
  float (*value)(float);
  double (*bound)(double);
  std::vector<double> (*forward_cpu)(const std::vector<float>& x);
  std::vector<double> (*backward_cpu)(const std::vector<float>& x,
                                      const std::vector<float>& grad_y);
  double (*backward_bound)(double x, double grad_y);
  std::vector<Version<Launch>> versions;
};

template <class Activation>
Function function_of() {
  return {Activation::kName,
          [](float x) { return Activation{}(x); },
          Activation::bound,
          activations::forward_cpu<Activation>,
          activations::backward_cpu<Activation>,
          activations::backward_bound<Activation>,
          {std::begin(kVersions<Activation>), std::end(kVersions<Activation>)}};
}

std::vector<Function> all_functions() {
  std::vector<Function> functions;
  activations::for_each_activation(
      [&](auto activation) { functions.push_back(function_of<decltype(activation)>()); });
  return functions;
}

struct Shape {
  size_t rows, cols;
};
constexpr Shape kShapes[] = {{0, 0},   {0, 5},   {5, 0},    {1, 1},    {2, 15},
                             {15, 2},  {16, 16}, {17, 31},  {31, 1},   {33, 63},
                             {63, 64}, {64, 65}, {65, 127}, {127, 3},  {255, 129},
                             {3, 4},   {7, 6},   {2, 9001}, {3001, 5}, {1, 257}};

struct Inputs {
  explicit Inputs(Shape matrix)
      : shape(matrix),
        x(random_floats(shape.rows * shape.cols, 0, 4)),
        bias(random_floats(shape.cols, 1, 4)),
        grad_y(random_floats(shape.rows * shape.cols, 2, 1)) {}
  Shape shape;
  std::vector<float> x, bias, grad_y;
};

// How far the arrays begin behind a multiple of 16 bytes, in elements.
struct Offsets {
  size_t inputs, output, bias;
};
constexpr Offsets kOffsets[] = {{0, 0, 0}, {3, 3, 1}, {0, 1, 0}, {2, 2, 0}};

// Launches on guarded arrays and compares with the reference; a write outside is a failure too.
Comparison check_forward(const Function& f, const Launch& version, const Inputs& in,
                         Offsets offsets) {
  Guarded<float> d_x(in.x, offsets.inputs), d_bias(in.bias, offsets.bias);
  Guarded<float> d_y(in.x.size(), offsets.output);
  version.forward(d_y.data(), d_x.data(), d_bias.data(), in.shape.rows, in.shape.cols, nullptr);
  const std::vector<float> sums = biased_cpu(in.x, in.bias), got = d_y.to_host();
  const std::vector<double> want = f.forward_cpu(sums);
  Comparison result = compare(
      got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want[i]; },
      [&](size_t i) { return f.bound(static_cast<double>(sums[i])); });
  result.ok = result.ok && d_x.intact() && d_bias.intact() && d_y.intact();
  return result;
}

Comparison check_backward(const Function& f, const Launch& version, const Inputs& in,
                          Offsets offsets) {
  Guarded<float> d_x(in.x, offsets.inputs), d_grad_y(in.grad_y, offsets.inputs);
  Guarded<float> d_bias(in.bias, offsets.bias), d_grad_x(in.x.size(), offsets.output);
  version.backward(d_grad_x.data(), d_grad_y.data(), d_x.data(), d_bias.data(), in.shape.rows,
                   in.shape.cols, nullptr);
  const std::vector<float> sums = biased_cpu(in.x, in.bias), got = d_grad_x.to_host();
  const std::vector<double> want = f.backward_cpu(sums, in.grad_y);
  Comparison result = compare(
      got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want[i]; },
      [&](size_t i) {
        return f.backward_bound(static_cast<double>(sums[i]), static_cast<double>(in.grad_y[i]));
      });
  result.ok =
      result.ok && d_x.intact() && d_grad_y.intact() && d_bias.intact() && d_grad_x.intact();
  return result;
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (!(a[i] == b[i])) return false;
  return a.size() == b.size();
}

}  // namespace

TEST_CASE("every activation on any shape and alignment") {
  for (const Shape& shape : kShapes) {
    const Inputs in(shape);
    for (const Function& f : all_functions())
      for (const auto& version : testing::chosen(f.versions))
        for (const Offsets& offsets : kOffsets) {
          CAPTURE(f.name, version.name, shape.rows, shape.cols);
          CAPTURE(offsets.inputs, offsets.output, offsets.bias);
          REQUIRE_OK(check_forward(f, version.launch, in, offsets));
          REQUIRE_OK(check_backward(f, version.launch, in, offsets));
        }
  }
}

TEST_CASE("sums of integers are exact: every element gets its own column's bias") {
  // x + bias has its row's and its column's number in it; ReLU changes nothing.
  for (const Shape& shape : {Shape{129, 33}, Shape{33, 257}, Shape{70000, 3}}) {
    Inputs in(shape);
    std::vector<float> want(in.x.size());
    for (size_t i = 0; i < in.x.size(); ++i) {
      const size_t row = i / shape.cols, column = i % shape.cols;
      in.x[i] = static_cast<float>(row % 1000), in.bias[column] = static_cast<float>(1000 * column);
      want[i] = static_cast<float>(row % 1000 + 1000 * column);
    }
    for (const auto& version : testing::chosen(kVersions<Relu>)) {
      CAPTURE(version.name, shape.rows, shape.cols);
      Guarded<float> d_x(in.x, 1), d_bias(in.bias, 0), d_y(in.x.size(), 1);
      version.launch.forward(d_y.data(), d_x.data(), d_bias.data(), shape.rows, shape.cols,
                             nullptr);
      REQUIRE(same(d_y.to_host(), want));
      REQUIRE(d_y.intact());
    }
  }
}

TEST_CASE("the loops over rows and columns work for any grid") {
  for (const Shape& shape : {Shape{37, 301}, Shape{5, 2052}, Shape{301, 3}}) {
    const Inputs in(shape);
    for (const size_t blocks : {1, 2, 3}) {
      const vector_add::FewBlocks few(blocks);
      for (const Offsets& offsets : kOffsets)
        for (const Function& f : {function_of<Relu>(), function_of<Sigmoid>()})
          for (const auto& version : testing::chosen(f.versions)) {
            CAPTURE(f.name, version.name, shape.rows, shape.cols, blocks, offsets.output);
            const Comparison y = check_forward(f, version.launch, in, offsets);
            REQUIRE_OK(y);
            const Comparison grad_x = check_backward(f, version.launch, in, offsets);
            REQUIRE_OK(grad_x);
          }
    }
  }
}

TEST_CASE("the bias alone is added exactly") {
  for (const Shape& shape : kShapes) {
    const Inputs in(shape);
    const std::vector<float> want = biased_cpu(in.x, in.bias);
    const auto launch_identity = launch_forward_vectorized<Identity>;
    for (const auto launch : {launch_bias, launch_identity})
      for (const Offsets& offsets : kOffsets) {
        CAPTURE(launch == launch_bias, shape.rows, shape.cols, offsets.inputs, offsets.output);
        Guarded<float> d_x(in.x, offsets.inputs), d_bias(in.bias, offsets.bias);
        Guarded<float> d_y(in.x.size(), offsets.output);
        launch(d_y.data(), d_x.data(), d_bias.data(), shape.rows, shape.cols, nullptr);
        REQUIRE(same(d_y.to_host(), want));
        REQUIRE((d_x.intact() && d_bias.intact() && d_y.intact()));
      }
  }
}

TEST_CASE("a matrix without a bias is flat memory") {
  for (const Shape& shape : kShapes) {
    const Inputs in(shape);
    Guarded<float> d_x(in.x, 1), d_y(in.x.size(), 1);
    launch_activation<Softplus>(d_y.data(), d_x.data(), shape.rows, shape.cols);
    const std::vector<double> want = activations::forward_cpu<Softplus>(in.x);
    const std::vector<float> got = d_y.to_host();
    CAPTURE(shape.rows, shape.cols);
    REQUIRE_OK(compare(
        got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want[i]; },
        [&](size_t i) { return Softplus::bound(static_cast<double>(in.x[i])); }));
    REQUIRE((d_x.intact() && d_y.intact()));
  }
}

TEST_CASE("the output may be an input") {
  for (const Shape& shape : {Shape{33, 64}, Shape{33, 61}}) {
    const Inputs in(shape);
    for (const auto& version : testing::chosen(kVersions<Softplus>)) {
      CAPTURE(version.name, shape.cols);
      Guarded<float> d_x(in.x, 1), d_grad_y(in.grad_y, 1), d_bias(in.bias, 0);
      Guarded<float> d_y(in.x.size(), 1), d_grad_x(in.x.size(), 1), x_of_backward(in.x, 1);
      const auto forward = [&](Guarded<float>& y) {
        version.launch.forward(y.data(), d_x.data(), d_bias.data(), shape.rows, shape.cols,
                               nullptr);
        return y.to_host();
      };
      const auto backward = [&](Guarded<float>& grad_x, Guarded<float>& x) {
        version.launch.backward(grad_x.data(), d_grad_y.data(), x.data(), d_bias.data(), shape.rows,
                                shape.cols, nullptr);
        return grad_x.to_host();
      };
      const std::vector<float> y = forward(d_y), grad_x = backward(d_grad_x, d_x);
      REQUIRE(same(backward(x_of_backward, x_of_backward), grad_x));
      if (std::string(version.name) != "separate") REQUIRE(same(backward(d_grad_y, d_x), grad_x));
      REQUIRE(same(forward(d_x), y));
    }
  }
}

TEST_CASE("bias and activation agree with NumPy", "[numpy]") {
  const auto floats = [](const std::string& name) {
    return read_npy(reference_path("matrix_activations_" + name + ".npy")).floats();
  };
  Inputs in({0, 0});
  in.x = floats("x"), in.bias = floats("bias"), in.grad_y = floats("grad_y");
  in.shape = {in.x.size() / in.bias.size(), in.bias.size()};
  const std::vector<float> sums = biased_cpu(in.x, in.bias);
  for (const Function& f : all_functions()) {
    const std::string name = std::string("matrix_activations_") + f.name;
    const std::vector<double> y = read_npy(reference_path(name + ".npy")).values;
    const std::vector<double> grad_x = read_npy(reference_path(name + "_grad.npy")).values;
    for (const auto& version : testing::chosen(f.versions)) {
      CAPTURE(f.name, version.name);
      Guarded<float> d_x(in.x, 0), d_bias(in.bias, 0), d_grad_y(in.grad_y, 0);
      Guarded<float> d_y(in.x.size(), 0), d_grad_x(in.x.size(), 0);
      version.launch.forward(d_y.data(), d_x.data(), d_bias.data(), in.shape.rows, in.shape.cols,
                             nullptr);
      version.launch.backward(d_grad_x.data(), d_grad_y.data(), d_x.data(), d_bias.data(),
                              in.shape.rows, in.shape.cols, nullptr);
      const std::vector<float> got_y = d_y.to_host(), got_grad_x = d_grad_x.to_host();
      REQUIRE_OK(compare(
          y.size(), [&](size_t i) { return got_y[i]; }, [&](size_t i) { return y[i]; },
          [&](size_t i) { return f.bound(static_cast<double>(sums[i])); }));
      REQUIRE_OK(compare(
          grad_x.size(), [&](size_t i) { return got_grad_x[i]; },
          [&](size_t i) { return grad_x[i]; },
          [&](size_t i) {
            return f.backward_bound(static_cast<double>(sums[i]),
                                    static_cast<double>(in.grad_y[i]));
          }));
    }
  }
}

TEST_CASE("NaN and infinities of either input reach the output, and only theirs") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  Inputs in({9, 13});
  in.x[3] = kNan, in.x[2 * 13 + 4] = kInfinity, in.x[3 * 13 + 5] = -kInfinity, in.bias[7] = kNan;
  in.grad_y[4 * 13 + 8] = kNan;
  for (const Function& f : all_functions()) {
    for (const auto& version : testing::chosen(f.versions)) {
      CAPTURE(f.name, version.name);
      Guarded<float> d_x(in.x, 0), d_bias(in.bias, 0), d_grad_y(in.grad_y, 0);
      Guarded<float> d_y(in.x.size(), 0), d_grad_x(in.x.size(), 0);
      version.launch.forward(d_y.data(), d_x.data(), d_bias.data(), 9, 13, nullptr);
      version.launch.backward(d_grad_x.data(), d_grad_y.data(), d_x.data(), d_bias.data(), 9, 13,
                              nullptr);
      const std::vector<float> y = d_y.to_host(), grad_x = d_grad_x.to_host();
      for (size_t i = 0; i < y.size(); ++i) {
        CAPTURE(i);
        if (std::isinf(in.x[i])) {
          const float want = f.value(in.x[i]);
          REQUIRE((y[i] == want || (std::isnan(y[i]) && std::isnan(want))));
          continue;
        }
        const bool nan_in = i == 3 || i % 13 == 7;
        REQUIRE(std::isnan(y[i]) == nan_in);
        REQUIRE(std::isnan(grad_x[i]) == (nan_in || i == 4 * 13 + 8));
      }
    }
  }
}

// ---- What the checks above must catch ---------------------------------------------------------

namespace {

// The last rows, that fill no block of eight, are left out.
void launch_whole_blocks(float* y, const float* x, const float* bias, size_t rows, size_t cols,
                         hipStream_t stream) {
  launch_forward_fused_2d<Relu>(y, x, bias, rows / 8 * 8, cols, stream);
}

}  // namespace

TEST_CASE("planted mistakes are caught", "[harness]") {
  using namespace matrix_activations_test;
  const Inputs square({65, 65}), wide({17, 31});
  const Function relu = function_of<Relu>(), sigmoid = function_of<Sigmoid>();
  for (const Inputs* in : {&square, &wide}) {
    for (const auto launch : {launch_bias_of_row, launch_whole_blocks, launch_without_bounds_check})
      REQUIRE(!check_forward(relu, {launch, nullptr}, *in, {0, 0, 0}).ok);
    for (const auto launch : {launch_no_bias_in_backward, launch_slope_of_output})
      REQUIRE(!check_backward(sigmoid, {nullptr, launch}, *in, {0, 0, 0}).ok);
  }
}

TEST_CASE("the program's checks refuse missing, doubled and swapped elements", "[harness]") {
  // The first and last two rows, and elements, are positive and differ: ReLU makes 0 of what is
  // negative, whatever it was.
  for (const Shape& shape : {Shape{65, 255}, Shape{512, 384}}) {
    Inputs in(shape);
    const size_t n = in.x.size();
    in.bias.assign(shape.cols, 0.25f);
    in.x[0] = 1.0f, in.x[1] = 2.0f, in.x[n - 2] = 3.0f, in.x[n - 1] = 1.5f;
    in.grad_y[0] = 0.5f, in.grad_y[1] = -0.5f, in.grad_y[n - 2] = 0.75f, in.grad_y[n - 1] = 0.25f;
    const std::vector<float> sums = biased_cpu(in.x, in.bias);
    // Smaller elements than this may be all rounding: GELU's are, far below 0.
    const auto term = [](double want) { return std::fabs(want) < 1e-4 ? 0.0 : want; };
    for (const Function& f : all_functions()) {
      CAPTURE(f.name, shape.rows, shape.cols);
      const std::vector<double> y = f.forward_cpu(sums);
      testing::require_refusals(
          y, [&](size_t i) { return f.bound(static_cast<double>(sums[i])); }, shape.cols,
          [&](size_t i) { return term(y[i]); });
      const std::vector<double> grad_x = f.backward_cpu(sums, in.grad_y);
      testing::require_refusals(
          grad_x,
          [&](size_t i) {
            return f.backward_bound(static_cast<double>(sums[i]),
                                    static_cast<double>(in.grad_y[i]));
          },
          shape.cols, [&](size_t i) { return term(grad_x[i]); });
    }
  }
}

TEST_CASE("every version may be recorded in a graph") {
  const Shape shape{37, 52};
  const Inputs in(shape);
  Guarded<float> d_x(in.x, 0), d_grad_y(in.grad_y, 0), d_bias(in.bias, 0), d_out(in.x.size(), 0);
  const auto poison = [&] { gpu::poison(d_out.data(), in.x.size() * sizeof(float)); };
  const auto read = [&] { return d_out.to_host(); };
  for (const auto& version : testing::chosen(kVersions<Sigmoid>)) {
    CAPTURE(version.name);
    testing::require_same_in_graph(
        poison,
        [&](hipStream_t stream) {
          version.launch.forward(d_out.data(), d_x.data(), d_bias.data(), shape.rows, shape.cols,
                                 stream);
        },
        read);
    testing::require_same_in_graph(
        poison,
        [&](hipStream_t stream) {
          version.launch.backward(d_out.data(), d_grad_y.data(), d_x.data(), d_bias.data(),
                                  shape.rows, shape.cols, stream);
        },
        read);
  }
}
