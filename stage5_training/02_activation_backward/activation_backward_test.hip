// The way back through activations, softmax and cross-entropy: awkward shapes, alignments and
// values, each within its bound; and the formulas against finite differences.
#include "stage5_training/02_activation_backward/activation_backward.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "common/guarded.h"
#include "common/npy.h"
#include "common/testing.h"

namespace {

using namespace activation_backward;
using activations::for_each_activation;
using activations::Relu;
using activations::Sigmoid;
using activations::Tanh;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Shape {
  size_t rows, cols;
};
constexpr Shape kShapes[] = {{0, 0},   {0, 5},   {5, 0},    {1, 1},  {2, 15},  {15, 2},
                             {16, 16}, {17, 31}, {31, 1},   {33, 4}, {63, 64}, {64, 65},
                             {127, 3}, {5, 516}, {2, 1031}, {7, 8},  {2003, 5}};
// How far the arrays begin behind a multiple of 16 bytes, in elements.
struct Offsets {
  size_t inputs, output;
};
constexpr Offsets kOffsets[] = {{0, 0}, {3, 3}, {0, 1}};

using testing::random_floats;
using testing::same_bits;

Comparison compare_with(const std::vector<float>& got, const std::vector<double>& want,
                        const std::vector<double>& bound) {
  REQUIRE(got.size() == want.size());
  return compare(
      got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want[i]; },
      [&](size_t i) { return bound[i]; });
}

struct Inputs {
  explicit Inputs(Shape matrix)
      : shape(matrix),
        x(random_floats(shape.rows * shape.cols, 0, 4)),
        grad_y(random_floats(shape.rows * shape.cols, 1, 1)),
        before(random_floats(shape.cols, 2, 1)) {}
  Shape shape;
  std::vector<float> x, grad_y, before;  // before: what grad_bias is before an accumulation
};

// f in float, as a forward pass leaves it.
template <class Activation>
std::vector<float> outputs(const std::vector<float>& x) {
  std::vector<float> y(x.size());
  for (size_t i = 0; i < y.size(); ++i) y[i] = Activation{}(x[i]);
  return y;
}

struct Results {
  std::vector<float> grad_x, grad_bias;
  bool intact;
};

// With beta = 0 grad_bias is poisoned before the launch: it must not be read.
Results run(Launch::Run launch, const Inputs& in, const std::vector<float>& kept, Offsets offsets,
            float beta, hipStream_t stream = nullptr) {
  Guarded<float> d_grad_y(in.grad_y, offsets.inputs), d_kept(kept, offsets.inputs);
  Guarded<float> d_grad_x(kept.size(), offsets.output), d_grad_bias(in.before, offsets.output);
  if (beta == 0 && !in.before.empty())
    gpu::poison(d_grad_bias.data(), in.before.size() * sizeof(float));
  Workspace workspace(in.shape.rows);
  launch(d_grad_x.data(), d_grad_bias.data(), d_grad_y.data(), d_kept.data(), in.shape.rows,
         in.shape.cols, beta, workspace, stream);
  HIP_CHECK(hipStreamSynchronize(stream));
  return {d_grad_x.to_host(), d_grad_bias.to_host(),
          d_grad_y.intact() && d_kept.intact() && d_grad_x.intact() && d_grad_bias.intact()};
}

double roundings_of(const Launch& version, Shape shape) {
  return shape.cols == 0 ? 0 : version.roundings(shape.rows, shape.cols);
}

template <class Slope>
void require_right(const Launch& version, const Inputs& in, const std::vector<float>& kept,
                   Offsets offsets, float beta) {
  const Results got = run(version.run, in, kept, offsets, beta);
  const Expected want = backward_cpu<Slope>(in.grad_y, kept, in.shape.cols,
                                            roundings_of(version, in.shape), beta, in.before);
  REQUIRE_OK(compare_with(got.grad_x, want.grad_x, want.bound_x));
  REQUIRE_OK(compare_with(got.grad_bias, want.grad_bias, want.bound_bias));
  REQUIRE(got.intact);
}

template <class Slope>
bool is_right(const Launch& version, const Inputs& in, float beta) {
  const Results got = run(version.run, in, in.x, {0, 0}, beta);
  const Expected want = backward_cpu<Slope>(in.grad_y, in.x, in.shape.cols,
                                            roundings_of(version, in.shape), beta, in.before);
  return compare_with(got.grad_x, want.grad_x, want.bound_x).ok &&
         compare_with(got.grad_bias, want.grad_bias, want.bound_bias).ok && got.intact;
}

// Calls visit(version, kept, slope) for every version that f has.
template <class Activation, class Visit>
void for_each_version(const std::vector<float>& x, Visit&& visit) {
  for (const auto& version : testing::chosen(kVersions<Activation>)) {
    CAPTURE(Activation::kName, version.name);
    if (version.launch.run == nullptr) continue;
    if constexpr (kHasOfOutput<Activation>)
      if (version.launch.from_output) {
        visit(version.launch, outputs<Activation>(x), OfOutput<Activation>{});
        continue;
      }
    visit(version.launch, x, Activation{});
  }
}

}  // namespace

// ---- Activations ------------------------------------------------------------------------------

TEST_CASE("every activation on any shape and alignment, overwriting and accumulating the bias") {
  for (const Shape& shape : kShapes) {
    const Inputs in(shape);
    for_each_activation([&](auto activation) {
      for_each_version<decltype(activation)>(
          in.x, [&](const Launch& version, const auto& kept, auto slope) {
            for (const Offsets& offsets : kOffsets) {
              const float beta = offsets.inputs == 0 ? 0.0f : -0.75f;
              CAPTURE(shape.rows, shape.cols, offsets.inputs, offsets.output, beta);
              require_right<decltype(slope)>(version, in, kept, offsets, beta);
            }
          });
    });
  }
}

TEST_CASE("sums of integers are exact: no row is missed, doubled or in another's column") {
  for (const Shape& shape : {Shape{1003, 32}, Shape{1003, 33}, Shape{3, 700}}) {
    Inputs in(shape);
    for (float& value : in.grad_y) value = std::rint(3 * value);
    std::vector<float> want_x(in.x.size()), want_bias(shape.cols);
    for (size_t i = 0; i < in.x.size(); ++i) {
      want_x[i] = in.x[i] > 0 ? in.grad_y[i] : 0.0f;
      want_bias[i % shape.cols] += want_x[i];
    }
    for_each_version<Relu>(in.x, [&](const Launch& version, const auto& kept, auto) {
      for (const Offsets& offsets : kOffsets) {
        CAPTURE(shape.rows, shape.cols, offsets.inputs, offsets.output);
        const Results got = run(version.run, in, kept, offsets, 0);
        for (size_t i = 0; i < want_x.size(); ++i) REQUIRE(got.grad_x[i] == want_x[i]);
        REQUIRE(got.grad_bias == want_bias);
        REQUIRE(got.intact);
      }
    });
  }
}

TEST_CASE("slices of any length make the same sums, and one slice needs no second pass") {
  const Inputs in({37, 24});
  for (const size_t slice : {size_t{1}, size_t{5}, size_t{8}, size_t{36}, size_t{37}, size_t{90}}) {
    Guarded<float> d_grad_y(in.grad_y, 0), d_kept(in.x, 0), d_grad_x(in.x.size(), 0);
    Guarded<float> d_grad_bias(24, 0);
    Workspace workspace(37);
    float* partials = workspace.partials.data();
    const unsigned slices = static_cast<unsigned>(gpu::ceil_div(37, slice));
    const gemv::Product sums{
        slices, 24, 1, partials, 24, workspace.ones.data(), 0, d_grad_bias.data()};
    LAUNCH((backward_with_bias<float4, 4, Tanh>), dim3(2, slices), dim3(4, 2), 0, d_grad_x.data(),
           d_grad_y.data(), d_kept.data(), 37, slice, sums, partials);
    if (slices > 1) gemv::launch_columns(sums, {partials}, {4, kSumWidth, 1}, nullptr);
    const Expected want = backward_cpu<Tanh>(in.grad_y, in.x, 24, 37 + 64, 0, {});
    CAPTURE(slice);
    REQUIRE_OK(compare_with(d_grad_x.to_host(), want.grad_x, want.bound_x));
    REQUIRE_OK(compare_with(d_grad_bias.to_host(), want.grad_bias, want.bound_bias));
    REQUIRE((d_grad_x.intact() && d_grad_bias.intact()));
  }
}

TEST_CASE("activations agree with NumPy", "[numpy]") {
  const auto array = [](const std::string& name) {
    return read_npy(reference_path("activation_backward_" + name + ".npy"));
  };
  const auto floats = [&](const std::string& name) {
    const std::vector<double> values = array(name).values;
    return std::vector<float>(values.begin(), values.end());
  };
  Inputs in({array("x").shape.at(0), array("x").shape.at(1)});
  in.x = floats("x"), in.grad_y = floats("grad_y");
  for_each_activation([&](auto activation) {
    using Activation = decltype(activation);
    for_each_version<Activation>(in.x, [&](const Launch& version, const auto& kept, auto slope) {
      const Results got = run(version.run, in, kept, {0, 0}, 0);
      Expected want = backward_cpu<decltype(slope)>(in.grad_y, kept, in.shape.cols,
                                                    roundings_of(version, in.shape), 0, {});
      want.grad_x = array(std::string(Activation::kName) + "_grad_x").values;
      want.grad_bias = array(std::string(Activation::kName) + "_grad_bias").values;
      if (version.from_output)  // y's rounding moves the slope: see "the slope from the output"
        for (size_t i = 0; i < in.x.size(); ++i) {
          const double moved = 2.02 * std::fabs(static_cast<double>(in.grad_y[i])) *
                               Activation::bound(static_cast<double>(in.x[i]));
          want.bound_x[i] += moved, want.bound_bias[i % in.shape.cols] += 1.01 * moved;
        }
      REQUIRE_OK(compare_with(got.grad_x, want.grad_x, want.bound_x));
      REQUIRE_OK(compare_with(got.grad_bias, want.grad_bias, want.bound_bias));
    });
  });
}

// The loss is the sum of grad_y * f(x + b), whose gradient by b is grad_bias. The central
// difference of step e is off by e^2 / 6 times the third derivative, which for these functions is
// below 4, and by rounding: some 1e-16 / e. With e = 1e-5 both are below 1e-10. |x| > 1e-3 keeps
// ReLU's kink out of the step's reach.
TEST_CASE("the gradients agree with finite differences in double") {
  Inputs in({11, 6});
  for (float& x : in.x)
    if (std::fabs(x) < 1e-3f) x = 0.25f;
  constexpr double kStep = 1e-5;
  for_each_activation([&](auto activation) {
    using Activation = decltype(activation);
    const Expected want = backward_cpu<Activation>(in.grad_y, in.x, in.shape.cols, 0, 0, {});
    const auto slope = [&](size_t i) {
      const double x = static_cast<double>(in.x[i]);
      return static_cast<double>(in.grad_y[i]) *
             (Activation::cpu(x + kStep) - Activation::cpu(x - kStep)) / (2 * kStep);
    };
    std::vector<double> of_bias(in.shape.cols);
    for (size_t i = 0; i < in.x.size(); ++i) {
      CAPTURE(Activation::kName, i, in.x[i]);
      REQUIRE(std::fabs(slope(i) - want.grad_x[i]) <= 2e-10);
      of_bias[i % in.shape.cols] += slope(i);
    }
    for (size_t col = 0; col < in.shape.cols; ++col)
      REQUIRE(std::fabs(of_bias[col] - want.grad_bias[col]) <= 11 * 2e-10);
  });
}

// With y = f(x) (1 + d), the slope from y moves by its derivative by y times what y is off: at most
// |1 - 2y|, |2y| or exp(-y), none above 2. (0.02 more for the second order.)
TEST_CASE("the slope from the output is off by no more than the output's own rounding") {
  const auto require_near = [](auto activation) {
    using Activation = decltype(activation);
    for (float x = -120; x <= 120; x += 0.37f) {
      const double wide_x = static_cast<double>(x), y = static_cast<double>(Activation{}(x));
      const double got = static_cast<double>(OfOutput<Activation>{}.derivative(Activation{}(x)));
      CAPTURE(Activation::kName, x, got);
      REQUIRE(std::fabs(got - Activation::derivative_cpu(wide_x)) <=
              2.02 * Activation::bound(wide_x) + OfOutput<Activation>::derivative_bound(y));
    }
  };
  require_near(Relu{}), require_near(Sigmoid{}), require_near(Tanh{});
  require_near(activations::Softplus{});
}

TEST_CASE("grad_x may take the place of an input") {
  for (const Shape& shape : {Shape{133, 64}, Shape{133, 61}}) {
    const Inputs in(shape);
    for_each_version<Sigmoid>(in.x, [&](const Launch& version, const auto& kept, auto) {
      const Results want = run(version.run, in, kept, {1, 1}, 0);
      for (const bool over_grad_y : {true, false}) {
        Guarded<float> d_grad_y(in.grad_y, 1), d_kept(kept, 1), d_grad_bias(shape.cols, 1);
        Guarded<float>& d_grad_x = over_grad_y ? d_grad_y : d_kept;
        Workspace workspace(shape.rows);
        version.run(d_grad_x.data(), d_grad_bias.data(), d_grad_y.data(), d_kept.data(), shape.rows,
                    shape.cols, 0, workspace, nullptr);
        REQUIRE(same_bits(d_grad_x.to_host(), want.grad_x));
        REQUIRE(same_bits(d_grad_bias.to_host(), want.grad_bias));
      }
    });
  }
}

TEST_CASE("every run gives the same bits, on any stream") {
  const Inputs in({3001, 36});
  hipStream_t stream = nullptr;
  HIP_CHECK(hipStreamCreate(&stream));
  for_each_version<Sigmoid>(in.x, [&](const Launch& version, const auto& kept, auto) {
    const Results first = run(version.run, in, kept, {0, 0}, 0);
    for (int repeat = 0; repeat < 5; ++repeat) {
      const Results again = run(version.run, in, kept, {0, 0}, 0, stream);
      REQUIRE(same_bits(again.grad_x, first.grad_x));
      REQUIRE(same_bits(again.grad_bias, first.grad_bias));
    }
  });
  HIP_CHECK(hipStreamDestroy(stream));
}

TEST_CASE("the entry of later steps: with the bias's gradient, and without") {
  const Inputs in({65, 20});
  const Results want = run(launch_vectorized<Tanh>, in, in.x, {0, 0}, 0);
  const Results got = run(backward<Tanh>, in, in.x, {0, 0}, 0);
  REQUIRE((same_bits(got.grad_x, want.grad_x) && same_bits(got.grad_bias, want.grad_bias)));
  const auto without = [](float* grad_x, float*, const float* grad_y, const float* kept,
                          size_t rows, size_t cols, float beta, Workspace& workspace,
                          hipStream_t stream) {
    backward<Tanh>(grad_x, nullptr, grad_y, kept, rows, cols, beta, workspace, stream);
  };
  REQUIRE(same_bits(run(without, in, in.x, {0, 0}, 0).grad_x, want.grad_x));
}

TEST_CASE("NaN of an element reaches its own column's sum, and no other") {
  Inputs in({9, 12});
  in.x[2 * 12 + 3] = kNan, in.grad_y[4 * 12 + 8] = kNan;
  for_each_activation([&](auto activation) {
    for_each_version<decltype(activation)>(
        in.x, [&](const Launch& version, const auto& kept, auto) {
          const Results got = run(version.run, in, kept, {0, 0}, 0);
          for (size_t i = 0; i < got.grad_x.size(); ++i)
            REQUIRE(std::isnan(got.grad_x[i]) == (i == 2 * 12 + 3 || i == 4 * 12 + 8));
          for (size_t col = 0; col < 12; ++col)
            REQUIRE(std::isnan(got.grad_bias[col]) == (col == 3 || col == 8));
        });
  });
}

TEST_CASE("a missing array and a batch beyond the workspace are refused") {
  const Inputs in({4, 3});
  for (const auto& version : testing::chosen(kVersions<Relu>)) {
    CAPTURE(version.name);
    Guarded<float> d_x(in.x, 0), d_grad_y(in.grad_y, 0), d_grad_x(12, 0), d_grad_bias(3, 0);
    const auto launch = [&](float* grad_bias, size_t max_batch) {
      Workspace workspace(max_batch);
      version.launch.run(d_grad_x.data(), grad_bias, d_grad_y.data(), d_x.data(), 4, 3, 0,
                         workspace, nullptr);
    };
    REQUIRE_NOTHROW(launch(d_grad_bias.data(), 4));
    REQUIRE_THROWS_AS(launch(d_grad_bias.data(), 3), std::invalid_argument);
    REQUIRE_THROWS_AS(launch(nullptr, 4), std::invalid_argument);
  }
}

// ---- Softmax ----------------------------------------------------------------------------------

namespace {

struct SoftmaxInputs {
  explicit SoftmaxInputs(Shape matrix)
      : shape(matrix), grad_p(random_floats(shape.rows * shape.cols, 3, 1)) {
    const std::vector<double> wide =
        softmax::softmax_cpu(random_floats(shape.rows * shape.cols, 4, 4), shape.cols);
    p.assign(wide.begin(), wide.end());
  }
  Shape shape;
  std::vector<float> grad_p, p;
};

Comparison check_softmax(const SoftmaxLaunch& version, const SoftmaxInputs& in, Offsets offsets) {
  Guarded<float> d_grad_p(in.grad_p, offsets.inputs), d_p(in.p, offsets.inputs);
  Guarded<float> d_grad_x(in.p.size(), offsets.output);
  version.run(d_grad_x.data(), d_grad_p.data(), d_p.data(), in.shape.rows, in.shape.cols, nullptr);
  std::vector<double> want, bound;
  softmax_backward_cpu(in.grad_p, in.p, in.shape.cols, version.roundings(in.shape.cols), want,
                       bound);
  Comparison result = compare_with(d_grad_x.to_host(), want, bound);
  result.ok = result.ok && d_grad_p.intact() && d_p.intact() && d_grad_x.intact();
  return result;
}

}  // namespace

TEST_CASE("softmax backward on any shape and alignment") {
  for (const Shape& shape : {Shape{0, 5}, Shape{5, 0}, Shape{1, 1}, Shape{33, 2}, Shape{17, 31},
                             Shape{9, 129}, Shape{5, 516}, Shape{4, 1030}, Shape{3, 2049},
                             Shape{2, 4100}, Shape{1, 16387}, Shape{1, 20001}}) {
    const SoftmaxInputs in(shape);
    for (const Offsets& offsets : kOffsets)
      for (const auto& version : testing::chosen(kSoftmaxVersions)) {
        if (shape.cols > 5000 && !version.launch.in_place) continue;  // cols^2 operations per row
        CAPTURE(version.name, shape.rows, shape.cols, offsets.inputs, offsets.output);
        REQUIRE_OK(check_softmax(version.launch, in, offsets));
      }
  }
}

// Powers of two: 1/2, 1/4, 1/8, ... with integers for gradients leave nothing to round.
TEST_CASE("softmax backward of exact numbers is exact") {
  for (const size_t cols : {size_t{4}, size_t{11}}) {
    SoftmaxInputs in({7, cols});
    for (size_t i = 0; i < in.p.size(); ++i) {
      in.p[i] = std::ldexp(1.0f, -static_cast<int>(std::min(i % cols + 1, cols - 1)));
      in.grad_p[i] = std::rint(7 * in.grad_p[i]);
    }
    std::vector<double> want, bound;
    softmax_backward_cpu(in.grad_p, in.p, cols, 0, want, bound);
    for (const auto& version : testing::chosen(kSoftmaxVersions)) {
      CAPTURE(version.name, cols);
      Guarded<float> d_grad_p(in.grad_p, 1), d_p(in.p, 1), d_grad_x(in.p.size(), 1);
      version.launch.run(d_grad_x.data(), d_grad_p.data(), d_p.data(), 7, cols, nullptr);
      REQUIRE_OK(compare_with(d_grad_x.to_host(), want, std::vector<double>(want.size())));
    }
  }
}

TEST_CASE("softmax backward: grad_x may take the place of an input") {
  const SoftmaxInputs in({37, 133});
  for (const auto& version : testing::chosen(kSoftmaxVersions)) {
    if (!version.launch.in_place) continue;
    CAPTURE(version.name);
    Guarded<float> d_grad_p(in.grad_p, 0), d_p(in.p, 0), d_grad_x(in.p.size(), 0);
    const auto launch = [&](Guarded<float>& to) {
      version.launch.run(to.data(), d_grad_p.data(), d_p.data(), 37, 133, nullptr);
      return to.to_host();
    };
    const std::vector<float> want = launch(d_grad_x);
    REQUIRE(same_bits(launch(d_grad_p), want));
  }
}

TEST_CASE("softmax backward: NaN and infinity stay in their row") {
  SoftmaxInputs in({5, 36});
  in.grad_p[36 + 7] = kNan, in.grad_p[3 * 36 + 1] = kInfinity;
  for (const auto& version : testing::chosen(kSoftmaxVersions)) {
    CAPTURE(version.name);
    Guarded<float> d_grad_p(in.grad_p, 0), d_p(in.p, 0), d_grad_x(in.p.size(), 0);
    version.launch.run(d_grad_x.data(), d_grad_p.data(), d_p.data(), 5, 36, nullptr);
    const std::vector<float> got = d_grad_x.to_host();
    for (size_t i = 0; i < got.size(); ++i)
      REQUIRE(std::isfinite(got[i]) == (i / 36 != 1 && i / 36 != 3));
  }
}

// ---- Softmax and cross-entropy ----------------------------------------------------------------

namespace {

std::vector<float> run_loss(const LossLaunch& version, const losses::HostRows& rows,
                            const std::vector<float>& p) {
  Guarded<float> d_logits(rows.logits, 0), d_p(p, 0), d_grad(p.size(), 0);
  Guarded<int> d_labels(rows.labels, 0);
  losses::Buffers buffers(rows.labels.size());
  version.run(d_grad.data(), d_logits.data(), d_p.data(),
              {d_labels.data(), rows.labels.size(), rows.classes, rows.ignore_index},
              buffers.workspace(), nullptr);
  REQUIRE((d_logits.intact() && d_p.intact() && d_grad.intact()));
  return d_grad.to_host();
}

}  // namespace

TEST_CASE("softmax's Jacobian times the loss's gradient is (p - 1[label]) / count") {
  for (const Shape& shape : {Shape{1, 1}, Shape{33, 2}, Shape{17, 31}, Shape{9, 132}}) {
    losses::HostRows rows{shape.cols, random_floats(shape.rows * shape.cols, 8, 4), {}, 0, -1};
    for (size_t row = 0; row < shape.rows; ++row) {
      rows.labels.push_back(row % 5 == 4 ? -1 : static_cast<int>(row % shape.cols));
      rows.count += row % 5 == 4 ? 0 : 1;
    }
    const std::vector<double> wide = softmax::softmax_cpu(rows.logits, shape.cols);
    const std::vector<float> p(wide.begin(), wide.end());
    for (const auto& version : testing::chosen(kLossVersions)) {
      CAPTURE(version.name, shape.rows, shape.cols);
      const LossGradient want = cross_entropy_backward_cpu(rows, p, version.launch.from_logits);
      REQUIRE_OK(compare_with(run_loss(version.launch, rows, p), want.grad, want.bound));
    }
  }
}

TEST_CASE("a probability that has underflowed has no quotient, but a gradient") {
  const losses::HostRows rows{3, {0, -200, -200, 0, 0, 0}, {2, 1}, 2};
  const std::vector<float> p = {1, 0, 0, 0.25f, 0.5f, 0.25f};
  const std::vector<float> fused = run_loss({launch_from_probabilities, false}, rows, p);
  REQUIRE(fused == std::vector<float>{0.5f, 0, -0.5f, 0.125f, -0.25f, 0.125f});
  const std::vector<float> composed = run_loss({launch_composed, false}, rows, p);
  REQUIRE(!std::isfinite(composed[2]));
  REQUIRE(composed[4] == fused[4]);
}

TEST_CASE("softmax agrees with NumPy", "[numpy]") {
  const auto array = [](const std::string& name) {
    return read_npy(reference_path("activation_backward_" + name + ".npy"));
  };
  const std::vector<double> wide_p = array("p").values, wide_grad = array("grad_y").values;
  const std::vector<double> wide_labels = array("labels").values;
  SoftmaxInputs in({array("p").shape.at(0), array("p").shape.at(1)});
  in.p.assign(wide_p.begin(), wide_p.end()), in.grad_p.assign(wide_grad.begin(), wide_grad.end());
  std::vector<double> want, bound;
  for (const auto& version : testing::chosen(kSoftmaxVersions)) {
    CAPTURE(version.name);
    softmax_backward_cpu(in.grad_p, in.p, in.shape.cols, version.launch.roundings(in.shape.cols),
                         want, bound);
    Guarded<float> d_grad_p(in.grad_p, 0), d_p(in.p, 0), d_grad_x(in.p.size(), 0);
    version.launch.run(d_grad_x.data(), d_grad_p.data(), d_p.data(), in.shape.rows, in.shape.cols,
                       nullptr);
    REQUIRE_OK(compare_with(d_grad_x.to_host(), array("softmax").values, bound));
  }
  const std::vector<double> wide_x = array("x").values;
  const losses::HostRows rows{in.shape.cols,
                              {wide_x.begin(), wide_x.end()},
                              {wide_labels.begin(), wide_labels.end()},
                              static_cast<double>(in.shape.rows)};
  for (const auto& version : testing::chosen(kLossVersions)) {
    CAPTURE(version.name);
    LossGradient reference = cross_entropy_backward_cpu(rows, in.p, version.launch.from_logits);
    if (version.launch.from_logits)  // NumPy's is of p as it is stored, which is rounded
      for (size_t i = 0; i < in.p.size(); ++i)
        reference.bound[i] += kFloatRoundoff * static_cast<double>(in.p[i]) / rows.count;
    REQUIRE_OK(compare_with(run_loss(version.launch, rows, in.p), array("cross_entropy").values,
                            reference.bound));
  }
}

// The loss is the sum of grad_p * softmax(x); step and bounds as above.
TEST_CASE("softmax's formula agrees with finite differences in double") {
  const std::vector<float> x = random_floats(9, 5, 2), grad_p = random_floats(9, 6, 1);
  const auto loss = [&](size_t moved, double by) {
    double sum = 0, total = 0;
    for (size_t i = 0; i < 9; ++i) {
      const double e = std::exp(static_cast<double>(x[i]) + (i == moved ? by : 0));
      sum += e, total += static_cast<double>(grad_p[i]) * e;
    }
    return total / sum;
  };
  const std::vector<double> p = softmax::softmax_cpu(x, 9);
  double sum = 0;
  for (size_t i = 0; i < 9; ++i) sum += p[i] * static_cast<double>(grad_p[i]);
  for (size_t i = 0; i < 9; ++i) {
    const double slope = (loss(i, 1e-5) - loss(i, -1e-5)) / 2e-5;
    REQUIRE(std::fabs(slope - p[i] * (static_cast<double>(grad_p[i]) - sum)) <= 2e-10);
  }
}

// ---- What the checks above must catch ---------------------------------------------------------

namespace {

// Each launches `vectorized` but for one mistake.
struct SlopeOfValue : Sigmoid {  // f'(f(x)) in place of f'(x)
  __host__ __device__ float derivative(float x) const { return Sigmoid::derivative((*this)(x)); }
};
struct OutputForInput : Sigmoid {  // the slope from the output, given the input
  __host__ __device__ float derivative(float x) const { return x * (1.0f - x); }
};

void launch_sum_of_grad_y(float* grad_x, float* grad_bias, const float* grad_y, const float* kept,
                          size_t rows, size_t cols, float beta, Workspace& workspace,
                          hipStream_t stream) {
  launch_without_bias<Sigmoid>(grad_x, grad_y, kept, rows, cols, stream);
  dense_backward::launch_grad_bias({nullptr, grad_bias, nullptr}, grad_y, rows,
                                   {0, cols, nullptr, nullptr}, beta, workspace, stream,
                                   gemv::launch_split_columns);
}
void launch_without_last_row(float* grad_x, float* grad_bias, const float* grad_y,
                             const float* kept, size_t rows, size_t cols, float beta,
                             Workspace& workspace, hipStream_t stream) {
  launch_vectorized<Sigmoid>(grad_x, grad_bias, grad_y, kept, rows - 1, cols, beta, workspace,
                             stream);
  launch_without_bias<Sigmoid>(grad_x, grad_y, kept, rows, cols, stream);
}
void launch_without_beta(float* grad_x, float* grad_bias, const float* grad_y, const float* kept,
                         size_t rows, size_t cols, float, Workspace& workspace,
                         hipStream_t stream) {
  launch_vectorized<Sigmoid>(grad_x, grad_bias, grad_y, kept, rows, cols, 0, workspace, stream);
}
void launch_without_second_pass(float* grad_x, float* grad_bias, const float* grad_y,
                                const float* kept, size_t rows, size_t cols, float beta,
                                Workspace& workspace, hipStream_t) {
  const gemv::Product sums{
      1, cols, 1, workspace.partials.data(), cols, workspace.ones.data(), beta, grad_bias};
  float* half = grad_bias;  // the second of two slices overwrites the first
  for (const size_t begin : {size_t{0}, rows / 2}) {
    gemv::Product slice = sums;
    slice.y = half;
    LAUNCH((backward_with_bias<float, 1, Sigmoid>), 1,
           dim3(static_cast<unsigned>(cols), kBlock / static_cast<unsigned>(cols)), 0,
           grad_x + begin * cols, grad_y + begin * cols, kept + begin * cols, rows - rows / 2, rows,
           slice, nullptr);
  }
}

}  // namespace

TEST_CASE("planted mistakes are caught", "[harness]") {
  const Inputs in({66, 33});
  const Launch right = kVersions<Sigmoid>[2].launch;
  REQUIRE(is_right<Sigmoid>(right, in, 0));
  for (const Launch::Run launch :
       {launch_vectorized<SlopeOfValue>, launch_vectorized<OutputForInput>, launch_sum_of_grad_y,
        launch_without_last_row, launch_without_second_pass})
    REQUIRE(!is_right<Sigmoid>({launch, right.roundings, false}, in, 0));
  REQUIRE(!is_right<Sigmoid>({launch_without_beta, right.roundings, false}, in, 1));
}

TEST_CASE("planted mistakes of softmax are caught", "[harness]") {
  const SoftmaxInputs in({5, 33});
  const auto diagonal_only = [](float* grad_x, const float* grad_p, const float* p, size_t rows,
                                size_t cols, hipStream_t) {
    std::vector<float> result(rows * cols);  // p (1 - p) grad_p: as if no element met another
    for (size_t i = 0; i < result.size(); ++i) result[i] = p[i] * (1 - p[i]) * grad_p[i];
    HIP_CHECK(
        hipMemcpy(grad_x, result.data(), result.size() * sizeof(float), hipMemcpyHostToDevice));
  };
  Guarded<float> d_p(in.p, 0), d_grad_p(in.grad_p, 0), d_grad_x(in.p.size(), 0);
  std::vector<double> want, bound;
  softmax_backward_cpu(in.grad_p, in.p, 33, roundings_softmax_backward(33), want, bound);
  diagonal_only(d_grad_x.data(), in.grad_p.data(), in.p.data(), 5, 33, nullptr);
  REQUIRE(!compare_with(d_grad_x.to_host(), want, bound).ok);
  // Rows one element too long: each takes part of the next one's sum.
  softmax_backward(d_grad_x.data(), d_grad_p.data(), d_p.data(), 4, 34);
  REQUIRE(!compare_with(d_grad_x.to_host(), want, bound).ok);
}
