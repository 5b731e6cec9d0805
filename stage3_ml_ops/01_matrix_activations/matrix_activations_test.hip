// Bias + activation over matrices of awkward shapes, alignments and values, forward and backward.
#include "stage3_ml_ops/01_matrix_activations/matrix_activations.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "common/guarded.h"
#include "common/npy.h"
#include "common/testing.h"

namespace {

using namespace matrix_activations;
using activations::for_each_activation;
using activations::Relu;
using activations::Sigmoid;
using activations::Softplus;

struct Shape {
  size_t rows, cols;
};
constexpr Shape kShapes[] = {{0, 0},   {0, 5},   {5, 0},    {1, 1},    {2, 15},
                             {15, 2},  {16, 16}, {17, 31},  {31, 1},   {33, 63},
                             {63, 64}, {64, 65}, {65, 127}, {127, 3},  {255, 129},
                             {3, 4},   {7, 6},   {2, 9001}, {3001, 5}, {1, 257}};

using testing::random_floats;

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
template <class Activation>
Comparison check_forward(const Launch& version, const Inputs& in, Offsets offsets) {
  Guarded<float> d_x(in.x, offsets.inputs), d_bias(in.bias, offsets.bias);
  Guarded<float> d_y(in.x.size(), offsets.output);
  version.forward(d_y.data(), d_x.data(), d_bias.data(), in.shape.rows, in.shape.cols, nullptr);
  const std::vector<float> sums = biased_cpu(in.x, in.bias), got = d_y.to_host();
  const std::vector<double> want = activations::forward_cpu<Activation>(sums);
  Comparison result = compare(
      got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want[i]; },
      [&](size_t i) { return Activation::bound(static_cast<double>(sums[i])); });
  result.ok = result.ok && d_x.intact() && d_bias.intact() && d_y.intact();
  return result;
}

template <class Activation>
Comparison check_backward(const Launch& version, const Inputs& in, Offsets offsets) {
  Guarded<float> d_x(in.x, offsets.inputs), d_grad_y(in.grad_y, offsets.inputs);
  Guarded<float> d_bias(in.bias, offsets.bias), d_grad_x(in.x.size(), offsets.output);
  version.backward(d_grad_x.data(), d_grad_y.data(), d_x.data(), d_bias.data(), in.shape.rows,
                   in.shape.cols, nullptr);
  const std::vector<float> sums = biased_cpu(in.x, in.bias), got = d_grad_x.to_host();
  const std::vector<double> want = activations::backward_cpu<Activation>(sums, in.grad_y);
  Comparison result = compare(
      got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want[i]; },
      [&](size_t i) {
        return activations::backward_bound<Activation>(static_cast<double>(sums[i]),
                                                       static_cast<double>(in.grad_y[i]));
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
    for_each_activation([&](auto activation) {
      using Activation = decltype(activation);
      for (const auto& version : testing::chosen(kVersions<Activation>))
        for (const Offsets& offsets : kOffsets) {
          CAPTURE(Activation::kName, version.name, shape.rows, shape.cols);
          CAPTURE(offsets.inputs, offsets.output, offsets.bias);
          REQUIRE_OK(check_forward<Activation>(version.launch, in, offsets));
          REQUIRE_OK(check_backward<Activation>(version.launch, in, offsets));
        }
    });
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
  const Inputs in({37, 301});
  const auto forward = [](auto launch) { return Launch{launch, nullptr}; };
  REQUIRE_OK(check_forward<Relu>(forward([](float* y, const float* x, const float* bias,
                                            size_t rows, size_t cols, hipStream_t) {
                                   const Forward<Relu> pass{x, bias};
                                   LAUNCH((elementwise_2d<Forward<Relu>>), dim3(3, 2), dim3(16, 4),
                                          0, y, pass, rows, cols);
                                 }),
                                 in, {0, 1, 0}));
  REQUIRE_OK(check_forward<Relu>(forward([](float* y, const float* x, const float* bias,
                                            size_t rows, size_t cols, hipStream_t) {
                                   const Forward<Relu> pass{x, bias};
                                   LAUNCH((elementwise_vectorized<Forward<Relu>>), dim3(2, 3),
                                          dim3(2, 4), 0, y, pass, rows, cols);
                                 }),
                                 in, {3, 3, 2}));
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
    const NpyArray array = read_npy(reference_path("matrix_activations_" + name + ".npy"));
    return std::vector<float>(array.values.begin(), array.values.end());
  };
  Inputs in({0, 0});
  in.x = floats("x"), in.bias = floats("bias"), in.grad_y = floats("grad_y");
  in.shape = {in.x.size() / in.bias.size(), in.bias.size()};
  const std::vector<float> sums = biased_cpu(in.x, in.bias);
  for_each_activation([&](auto activation) {
    using Activation = decltype(activation);
    const std::string name = std::string("matrix_activations_") + Activation::kName;
    const std::vector<double> y = read_npy(reference_path(name + ".npy")).values;
    const std::vector<double> grad_x = read_npy(reference_path(name + "_grad.npy")).values;
    for (const auto& version : testing::chosen(kVersions<Activation>)) {
      CAPTURE(Activation::kName, version.name);
      Guarded<float> d_x(in.x, 0), d_bias(in.bias, 0), d_grad_y(in.grad_y, 0);
      Guarded<float> d_y(in.x.size(), 0), d_grad_x(in.x.size(), 0);
      version.launch.forward(d_y.data(), d_x.data(), d_bias.data(), in.shape.rows, in.shape.cols,
                             nullptr);
      version.launch.backward(d_grad_x.data(), d_grad_y.data(), d_x.data(), d_bias.data(),
                              in.shape.rows, in.shape.cols, nullptr);
      const std::vector<float> got_y = d_y.to_host(), got_grad_x = d_grad_x.to_host();
      REQUIRE_OK(compare(
          y.size(), [&](size_t i) { return got_y[i]; }, [&](size_t i) { return y[i]; },
          [&](size_t i) { return Activation::bound(static_cast<double>(sums[i])); }));
      REQUIRE_OK(compare(
          grad_x.size(), [&](size_t i) { return got_grad_x[i]; },
          [&](size_t i) { return grad_x[i]; },
          [&](size_t i) {
            return activations::backward_bound<Activation>(static_cast<double>(sums[i]),
                                                           static_cast<double>(in.grad_y[i]));
          }));
    }
  });
}

TEST_CASE("NaN and infinities of either input reach the output, and only theirs") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  Inputs in({9, 13});
  in.x[3] = kNan, in.x[2 * 13 + 4] = kInfinity, in.x[3 * 13 + 5] = -kInfinity, in.bias[7] = kNan;
  in.grad_y[4 * 13 + 8] = kNan;
  for_each_activation([&](auto activation) {
    using Activation = decltype(activation);
    for (const auto& version : testing::chosen(kVersions<Activation>)) {
      CAPTURE(Activation::kName, version.name);
      Guarded<float> d_x(in.x, 0), d_bias(in.bias, 0), d_grad_y(in.grad_y, 0);
      Guarded<float> d_y(in.x.size(), 0), d_grad_x(in.x.size(), 0);
      version.launch.forward(d_y.data(), d_x.data(), d_bias.data(), 9, 13, nullptr);
      version.launch.backward(d_grad_x.data(), d_grad_y.data(), d_x.data(), d_bias.data(), 9, 13,
                              nullptr);
      const std::vector<float> y = d_y.to_host(), grad_x = d_grad_x.to_host();
      for (size_t i = 0; i < y.size(); ++i) {
        CAPTURE(i);
        if (std::isinf(in.x[i])) {
          const float f = Activation{}(in.x[i]);
          REQUIRE((y[i] == f || (std::isnan(y[i]) && std::isnan(f))));
          continue;
        }
        const bool nan_in = i == 3 || i % 13 == 7;
        REQUIRE(std::isnan(y[i]) == nan_in);
        REQUIRE(std::isnan(grad_x[i]) == (nan_in || i == 4 * 13 + 8));
      }
    }
  });
}

// ---- What the checks above must catch ---------------------------------------------------------

namespace {

// Mistakes of a pass, run by the kernels above.
struct BiasOfRow : Forward<Relu> {
  size_t rows, cols;
  __device__ float operator()(size_t i, size_t) const { return Relu{}(x[i] + bias[i / cols]); }
};
struct NoBiasInBackward : Backward<Sigmoid> {
  __device__ float operator()(size_t i, size_t) const {
    return grad_y[i] * Sigmoid{}.derivative(x[i]);
  }
};
struct SlopeOfOutput : Backward<Sigmoid> {  // f'(f(x)) in place of f'(x)
  __device__ float operator()(size_t i, size_t column) const {
    return grad_y[i] * Sigmoid{}.derivative(Sigmoid{}(x[i] + bias[column]));
  }
};

void launch_bias_of_row(float* y, const float* x, const float* bias, size_t rows, size_t cols,
                        hipStream_t stream) {
  BiasOfRow pass;
  pass.x = x, pass.bias = bias, pass.rows = rows, pass.cols = cols;
  launch_2d(y, pass, rows, cols, stream);
}

template <class Pass>
void launch_wrong_backward(float* grad_x, const float* grad_y, const float* x, const float* bias,
                           size_t rows, size_t cols, hipStream_t stream) {
  Pass pass;
  pass.grad_y = grad_y, pass.x = x, pass.bias = bias;
  launch_2d(grad_x, pass, rows, cols, stream);
}

// The last columns, or the last rows, that fill no block are left out.
void launch_whole_blocks(float* y, const float* x, const float* bias, size_t rows, size_t cols,
                         hipStream_t stream) {
  launch_2d(y, Forward<Relu>{x, bias}, rows / 8 * 8, cols, stream);
}

// A thread beyond the last column writes into the next row, and behind the last one.
static __global__ void without_bounds_check(float* out, Forward<Relu> pass, size_t cols) {
  const size_t column = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t i = blockIdx.y * cols + column;
  out[i] = column < cols ? pass(i, column) : 0.0f;
}
void launch_without_bounds_check(float* y, const float* x, const float* bias, size_t rows,
                                 size_t cols, hipStream_t) {
  LAUNCH(without_bounds_check,
         dim3(static_cast<unsigned>(gpu::ceil_div(cols, 8)), static_cast<unsigned>(rows)), 8, 0, y,
         (Forward<Relu>{x, bias}), cols);
}

}  // namespace

TEST_CASE("planted mistakes are caught", "[harness]") {
  const Inputs square({65, 65}), wide({17, 31});
  for (const Inputs* in : {&square, &wide}) {
    REQUIRE(!check_forward<Relu>({launch_bias_of_row, nullptr}, *in, {0, 0, 0}).ok);
    REQUIRE(!check_forward<Relu>({launch_whole_blocks, nullptr}, *in, {0, 0, 0}).ok);
    REQUIRE(!check_forward<Relu>({launch_without_bounds_check, nullptr}, *in, {0, 0, 0}).ok);
    REQUIRE(
        !check_backward<Sigmoid>({nullptr, launch_wrong_backward<NoBiasInBackward>}, *in, {0, 0, 0})
             .ok);
    REQUIRE(
        !check_backward<Sigmoid>({nullptr, launch_wrong_backward<SlopeOfOutput>}, *in, {0, 0, 0})
             .ok);
  }
}
