// Back through activations: awkward shapes, alignments and values, each within its bound; formulas
// against finite differences; and mistakes that must be caught.
#include "stage5_training/02_activation_backward/inputs_for_tests.h"

using namespace activation_backward_test;

namespace activation_backward_test {

// Of activation_backward_test.hip: a mistake each, as a launcher of Launch::Run.
void launch_slope_at_output(float* grad_x, float* grad_bias, const float* grad_y, const float* kept,
                            size_t rows, size_t cols, float beta, Workspace& workspace,
                            hipStream_t stream);
void launch_output_for_input(float* grad_x, float* grad_bias, const float* grad_y,
                             const float* kept, size_t rows, size_t cols, float beta,
                             Workspace& workspace, hipStream_t stream);
void launch_without_second_pass(float* grad_x, float* grad_bias, const float* grad_y,
                                const float* kept, size_t rows, size_t cols, float beta,
                                Workspace& workspace, hipStream_t stream);
// tanh's gradients in slices of so many rows, of 24 columns.
void launch_in_slices(float* grad_x, float* grad_bias, const float* grad_y, const float* kept,
                      size_t rows, size_t slice, Workspace& workspace);

}  // namespace activation_backward_test

namespace {

using activations::for_each_activation;
using activations::Relu;
using activations::Sigmoid;
using activations::Tanh;

constexpr Shape kShapes[] = {{0, 0},   {0, 5},   {5, 0},    {1, 1},  {2, 15},  {15, 2},
                             {16, 16}, {17, 31}, {31, 1},   {33, 4}, {63, 64}, {64, 65},
                             {127, 3}, {5, 516}, {2, 1031}, {7, 8},  {2003, 5}};
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
        visit(version.launch, outputs<Activation>(x), SlopeOfOutput<Activation>{});
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
    launch_in_slices(d_grad_x.data(), d_grad_bias.data(), d_grad_y.data(), d_kept.data(), 37, slice,
                     workspace);
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
  const auto floats = [&](const std::string& name) { return array(name).floats(); };
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
      const double got = static_cast<double>(slope_of_output<Activation>(Activation{}(x)));
      CAPTURE(Activation::kName, x, got);
      REQUIRE(std::fabs(got - Activation::derivative_cpu(wide_x)) <=
              2.02 * Activation::bound(wide_x) + SlopeOfOutput<Activation>::derivative_bound(y));
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
    const auto launch = [&](float* grad_bias, size_t max_batch, size_t rows = 4, size_t cols = 3) {
      Workspace workspace(max_batch);
      version.launch.run(d_grad_x.data(), grad_bias, d_grad_y.data(), d_x.data(), rows, cols, 0,
                         workspace, nullptr);
    };
    REQUIRE_NOTHROW(launch(d_grad_bias.data(), 4));
    REQUIRE_THROWS_AS(launch(d_grad_bias.data(), 3), std::invalid_argument);
    REQUIRE_THROWS_AS(launch(nullptr, 4), std::invalid_argument);
    REQUIRE_THROWS_AS(launch(nullptr, 4, 0, 3), std::invalid_argument);  // it becomes 0
    REQUIRE_NOTHROW(launch(nullptr, 4, 4, 0));
  }
}

// ---- What the checks above must catch ---------------------------------------------------------

namespace {

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
}  // namespace

TEST_CASE("planted mistakes are caught", "[harness]") {
  const Inputs in({66, 33});
  const Launch right = kVersions<Sigmoid>[2].launch;
  REQUIRE(is_right<Sigmoid>(right, in, 0));
  for (const Launch::Run launch :
       {launch_slope_at_output, launch_output_for_input, launch_sum_of_grad_y,
        launch_without_last_row, launch_without_second_pass})
    REQUIRE(!is_right<Sigmoid>({launch, right.roundings, false}, in, 0));
  REQUIRE(!is_right<Sigmoid>({launch_without_beta, right.roundings, false}, in, 1));
}
