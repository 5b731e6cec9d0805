// Every version of the layer's backward pass on awkward shapes, alignments and values, within its
// bound; and the formulas against finite differences.
#include "stage5_training/01_dense_backward/dense_backward.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/graph.h"
#include "common/guarded.h"
#include "common/npy.h"
#include "common/testing.h"
#include "stage5_training/01_dense_backward/problem.h"
#include "stage5_training/01_dense_backward/reference.h"
#include "stage5_training/01_dense_backward/slices.h"

namespace {

using namespace dense_backward;
constexpr Shape kShapes[] = {{0, 3, 2},     {3, 0, 2},   {3, 2, 0},     {1, 1, 1},     {2, 15, 16},
                             {17, 31, 33},  {63, 64, 1}, {1, 129, 127}, {65, 63, 129}, {129, 2, 65},
                             {255, 31, 15}, {3, 1, 300}, {1003, 5, 6}};

using testing::random_floats;
using testing::random_integers;

// The gradients, or what they are before the launch.
struct HostGradients {
  std::vector<float> w, bias, x;
};

std::vector<size_t> all_rows(size_t rows) {
  std::vector<size_t> numbers(rows);
  std::iota(numbers.begin(), numbers.end(), size_t{0});
  return numbers;
}

struct Inputs {
  using Make = std::vector<float> (*)(size_t n, std::uint32_t stream);
  explicit Inputs(const Shape& sizes, Make make = random_floats)
      : shape(sizes),
        x(make(shape.batch * shape.in, 0)),
        w(make(shape.out * shape.in, 1)),
        grad_y(make(shape.batch * shape.out, 2)),
        before{make(shape.out * shape.in, 3), make(shape.out, 4), make(shape.batch * shape.in, 5)} {
  }

  ExpectedGradients expected(float beta) const {
    return {expect_w(shape, grad_y, x, beta, before.w, all_rows(shape.out)),
            expect_bias(shape, grad_y, beta, before.bias),
            expect_x(shape, grad_y, w, beta, before.x, all_rows(shape.batch))};
  }
  Shape shape;
  std::vector<float> x, w, grad_y;
  HostGradients before;
};

// The device memory of one layer, guarded; the arrays begin `offset` elements behind a 16-byte
// boundary.
struct Problem {
  explicit Problem(const Inputs& in, size_t offset = 0)
      : shape(in.shape),
        before(in.before),
        d_x(in.x, offset),
        d_w(in.w, offset),
        d_grad_y(in.grad_y, offset),
        d_grad_w(in.before.w.size(), offset),
        d_grad_bias(in.before.bias.size(), offset),
        d_grad_x(in.before.x.size(), offset),
        workspace(shape.batch, shape.in, shape.out) {}

  Layer layer() { return {shape.in, shape.out, d_w.data(), nullptr}; }
  Gradients gradients() { return {d_grad_w.data(), d_grad_bias.data(), d_grad_x.data()}; }

  // With beta = 0 the gradients are poisoned before the launch: it must not read them.
  HostGradients run(Launch launch, float beta, hipStream_t stream = nullptr) {
    const auto prepare = [&](Guarded<float>& gradient, const std::vector<float>& old) {
      if (old.empty()) return;
      if (beta == 0)
        gpu::poison(gradient.data(), old.size() * sizeof(float));
      else
        HIP_CHECK(hipMemcpy(gradient.data(), old.data(), old.size() * sizeof(float),
                            hipMemcpyHostToDevice));
    };
    prepare(d_grad_w, before.w), prepare(d_grad_bias, before.bias), prepare(d_grad_x, before.x);
    launch(gradients(), d_grad_y.data(), d_x.data(), shape.batch, layer(), beta, workspace,
           {stream, &branches});
    HIP_CHECK(hipStreamSynchronize(stream));
    return {d_grad_w.to_host(), d_grad_bias.to_host(), d_grad_x.to_host()};
  }
  bool intact() const {
    for (const Guarded<float>* array : {&d_x, &d_w, &d_grad_y, &d_grad_w, &d_grad_bias, &d_grad_x})
      if (!array->intact()) return false;
    return true;
  }

  Shape shape;
  HostGradients before;
  Guarded<float> d_x, d_w, d_grad_y, d_grad_w, d_grad_bias, d_grad_x;
  Workspace workspace;
  Branches branches;
};

Comparison compare_with(const std::vector<float>& got, const Expected& want) {
  REQUIRE(got.size() == want.value.size());
  return compare(
      got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want.value[i]; },
      [&](size_t i) { return want.bound[i]; });
}

void require_right(Launch launch, const Inputs& in, size_t offset, float beta,
                   const ExpectedGradients& want) {
  Problem problem(in, offset);
  const HostGradients got = problem.run(launch, beta);
  REQUIRE_OK(compare_with(got.w, want.w));
  REQUIRE_OK(compare_with(got.bias, want.bias));
  REQUIRE_OK(compare_with(got.x, want.x));
  REQUIRE(problem.intact());
}

bool is_right(Launch launch, const Inputs& in, float beta) {
  Problem problem(in);
  const HostGradients got = problem.run(launch, beta);
  const ExpectedGradients want = in.expected(beta);
  return compare_with(got.w, want.w).ok && compare_with(got.bias, want.bias).ok &&
         compare_with(got.x, want.x).ok && problem.intact();
}

// What later stages call, with the versions.
std::vector<Version<Launch>> all_versions() {
  std::vector<Version<Launch>> versions(std::begin(kVersions), std::end(kVersions));
  versions.push_back({"backward", backward, ""});
  return versions;
}

}  // namespace

TEST_CASE("any shape and alignment stays within its bound, overwriting and accumulating") {
  for (const Shape& shape : kShapes) {
    const Inputs in(shape);
    for (const float beta : {0.0f, 1.0f, -0.75f}) {
      const ExpectedGradients want = in.expected(beta);
      for (const auto& version : testing::chosen(all_versions()))
        for (const size_t offset : {size_t{0}, size_t{1}}) {
          CAPTURE(version.name, shape.batch, shape.in, shape.out, offset, beta);
          require_right(version.launch, in, offset, beta, want);
        }
    }
  }
}

TEST_CASE("products of integers are exact: nothing is missed, doubled or in another's place") {
  for (const Shape& shape : {Shape{33, 65, 17}, Shape{300, 31, 131}}) {
    const Inputs in(shape, random_integers);
    for (const float beta : {0.0f, 1.0f}) {
      ExpectedGradients want = in.expected(beta);
      for (Expected* gradient : {&want.w, &want.bias, &want.x})
        gradient->bound.assign(gradient->bound.size(), 0);
      for (const auto& version : testing::chosen(kVersions)) {
        CAPTURE(version.name, shape.batch, beta);
        require_right(version.launch, in, 3, beta, want);
      }
    }
  }
}

TEST_CASE("the gradients agree with NumPy", "[numpy]") {
  const auto array = [](const std::string& name) {
    return read_npy(reference_path("dense_backward_" + name + ".npy"));
  };
  const auto floats = [&](const std::string& name) { return array(name).floats(); };
  Inputs in({array("x").shape.at(0), array("x").shape.at(1), array("w").shape.at(0)});
  in.x = floats("x"), in.w = floats("w"), in.grad_y = floats("grad_y");
  ExpectedGradients want = in.expected(0);
  want.w.value = array("grad_w").values, want.bias.value = array("grad_bias").values;
  want.x.value = array("grad_x").values;
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    require_right(version.launch, in, 0, 0, want);
  }
}

// The loss is the sum of grad_y * Y, so that its gradient by Y is grad_y. It is a polynomial of
// degree 1 in each parameter: the central difference (L(p + e) - L(p - e)) / 2e has no error but
// that of rounding in double, for any e.
TEST_CASE("the gradients agree with finite differences in double") {
  const Shape shape{7, 5, 4};
  const Inputs in(shape);
  std::vector<double> x(in.x.begin(), in.x.end()), w(in.w.begin(), in.w.end());
  std::vector<double> bias(shape.out, 0.25);
  const auto loss = [&] {
    double sum = 0;
    for (size_t s = 0; s < shape.batch; ++s)
      for (size_t o = 0; o < shape.out; ++o) {
        double y = bias[o];
        for (size_t k = 0; k < shape.in; ++k) y += x[s * shape.in + k] * w[o * shape.in + k];
        sum += static_cast<double>(in.grad_y[s * shape.out + o]) * y;
      }
    return sum;
  };
  const auto differences = [&](std::vector<double>& parameters) {
    constexpr double kStep = 1e-3;
    std::vector<double> slopes;
    for (double& parameter : parameters) {
      const double value = parameter;
      parameter = value + kStep;
      const double above = loss();
      parameter = value - kStep;
      const double below = loss();
      parameter = value;
      slopes.push_back((above - below) / (2 * kStep));
    }
    return slopes;
  };
  const ExpectedGradients reference = in.expected(0);
  const auto require_near = [](const std::vector<double>& slopes, const Expected& gradient) {
    REQUIRE(slopes.size() == gradient.value.size());
    for (size_t i = 0; i < slopes.size(); ++i)
      REQUIRE(std::fabs(slopes[i] - gradient.value[i]) <= 1e-10);
  };
  require_near(differences(w), reference.w);
  require_near(differences(bias), reference.bias);
  require_near(differences(x), reference.x);
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    require_right(version.launch, in, 0, 0, reference);
  }
}

TEST_CASE("two halves of a batch, accumulated, are the whole batch") {
  const Inputs in({64, 31, 17}, random_integers);
  Problem problem(in);
  const HostGradients whole = problem.run(launch_row_slices, 0);
  const auto halves = [](const Gradients& to, const float* grad_y, const float* x, size_t batch,
                         const Layer& layer, float, Workspace& workspace, const Streams& stream) {
    const size_t half = batch / 2;
    backward(to, grad_y, x, half, layer, 0, workspace, stream);
    backward({to.w, to.bias, nullptr}, grad_y + half * layer.out, x + half * layer.in, batch - half,
             layer, 1, workspace, stream);
    backward({nullptr, nullptr, to.x + half * layer.in}, grad_y + half * layer.out, nullptr,
             batch - half, layer, 0, workspace, stream);
  };
  const HostGradients sum = problem.run(halves, 0);
  REQUIRE(sum.w == whole.w);
  REQUIRE(sum.bias == whole.bias);
  REQUIRE(sum.x == whole.x);
}

TEST_CASE("a gradient that nobody wants is left alone") {
  const Inputs in({33, 17, 9});
  for (const auto& version : testing::chosen(all_versions())) {
    CAPTURE(version.name);
    Problem problem(in);
    const Gradients all = problem.gradients();
    for (const Gradients& wanted :
         {Gradients{nullptr, all.bias, nullptr}, Gradients{all.w, nullptr, nullptr}}) {
      for (Guarded<float>* gradient : {&problem.d_grad_w, &problem.d_grad_bias, &problem.d_grad_x})
        gpu::poison(gradient->data(), gradient->size() * sizeof(float));
      version.launch(wanted, problem.d_grad_y.data(), problem.d_x.data(), 33, problem.layer(), 0,
                     problem.workspace, {nullptr, &problem.branches});
      const auto written = [](const Guarded<float>& gradient) {
        return !is_poison(gradient.to_host().front());
      };
      REQUIRE(written(problem.d_grad_w) == (wanted.w != nullptr));
      REQUIRE(written(problem.d_grad_bias) == (wanted.bias != nullptr));
      REQUIRE(!written(problem.d_grad_x));
    }
  }
}

TEST_CASE("slices need no more memory than the workspace has") {
  const Inputs in({1003, 5, 6}, random_integers);
  ExpectedGradients want = in.expected(1);
  for (Expected* gradient : {&want.w, &want.bias, &want.x})
    gradient->bound.assign(gradient->bound.size(), 0);
  for (const size_t room : {0, 1, 2, 3, 100}) {
    CAPTURE(room);
    Problem problem(in);
    problem.workspace.slices_of_gradients = gpu::DeviceBuffer<float>(room * slice_row(5, 6) + 1);
    for (const Launch launch : {launch_weight_slices, launch_bias_by_tiles}) {
      const HostGradients got = problem.run(launch, 1);
      REQUIRE_OK(compare_with(got.w, want.w));
      REQUIRE_OK(compare_with(got.bias, want.bias));
    }
    REQUIRE(problem.intact());
  }
}

TEST_CASE("every run gives the same bits, on any stream") {
  const Inputs in({1003, 33, 65});
  hipStream_t stream = nullptr;
  HIP_CHECK(hipStreamCreate(&stream));
  Problem problem(in);
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    const HostGradients first = problem.run(version.launch, 0);
    for (int run = 0; run < 5; ++run) {
      const HostGradients again = problem.run(version.launch, 0, stream);
      REQUIRE((again.w == first.w && again.bias == first.bias && again.x == first.x));
    }
  }
  HIP_CHECK(hipStreamDestroy(stream));
}

TEST_CASE("backward gives the same bits with branches and without, of a batch in slices or not") {
  const Launch alone = [](auto& to, auto g, auto x, auto n, auto& l, auto beta, auto& w, auto& s) {
    backward(to, g, x, n, l, beta, w, s.caller);
  };
  for (const Shape& shape : {Shape{300, 33, 40}, {1003, 33, 40}}) {
    Problem problem{Inputs(shape)};
    const HostGradients got = problem.run(alone, 0), want = problem.run(backward, 0);
    REQUIRE((got.w == want.w && got.bias == want.bias && got.x == want.x));
  }
}

TEST_CASE("a graph captures all streams") {
  const Inputs in({33, 17, 9});
  Problem problem(in);
  const HostGradients want = problem.run(launch_concurrent, 0);
  const auto replay = [](const Gradients& to, const float* grad_y, const float* x, size_t batch,
                         const Layer& layer, float beta, Workspace& workspace,
                         const Streams& streams) {
    const gpu::Graph graph(streams.caller, [&] {
      launch_concurrent(to, grad_y, x, batch, layer, beta, workspace, streams);
    });
    graph.launch(streams.caller);
    HIP_CHECK(hipStreamSynchronize(streams.caller));
  };
  const gpu::Stream stream;
  const HostGradients got = problem.run(replay, 0, stream);
  REQUIRE((got.w == want.w && got.bias == want.bias && got.x == want.x));
}

TEST_CASE("NaN of a sample reaches what it belongs to, and no other") {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const Shape shape{9, 33, 13};
  Inputs in(shape);
  in.grad_y[2 * shape.out + 7] = kNan;  // sample 2, unit 7
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    const HostGradients got = Problem(in).run(version.launch, 0);
    for (size_t i = 0; i < got.w.size(); ++i) REQUIRE(std::isnan(got.w[i]) == (i / shape.in == 7));
    for (size_t i = 0; i < got.bias.size(); ++i) REQUIRE(std::isnan(got.bias[i]) == (i == 7));
    for (size_t i = 0; i < got.x.size(); ++i) REQUIRE(std::isnan(got.x[i]) == (i / shape.in == 2));
  }
}

TEST_CASE("missing arrays and a batch beyond the workspace are refused") {
  const Inputs in({4, 3, 2});
  for (const auto& version : testing::chosen(all_versions())) {
    CAPTURE(version.name);
    Problem problem(in);
    const auto launch = [&](const Gradients& to, const float* grad_y, const float* x,
                            const Layer& layer, size_t batch = 4) {
      version.launch(to, grad_y, x, batch, layer, 0, problem.workspace,
                     {nullptr, &problem.branches});
    };
    const Gradients all = problem.gradients();
    const float *grad_y = problem.d_grad_y.data(), *x = problem.d_x.data();
    const Layer layer = problem.layer(), one{3, 1, nullptr, nullptr};
    REQUIRE_NOTHROW(launch(all, nullptr, x, {3, 0, nullptr, nullptr}));  // nothing of it is needed
    REQUIRE_THROWS_AS(launch({nullptr, all.bias, nullptr}, nullptr, x, one, 1),
                      std::invalid_argument);
    REQUIRE_THROWS_AS(launch(all, nullptr, x, layer), std::invalid_argument);
    REQUIRE_THROWS_AS(launch(all, grad_y, nullptr, layer), std::invalid_argument);
    REQUIRE_THROWS_AS(launch(all, grad_y, x, {3, 2, nullptr, nullptr}), std::invalid_argument);
    problem.workspace.ones = gpu::DeviceBuffer<float>(3);
    if (version.launch == launch_naive)  // it needs no workspace
      REQUIRE_NOTHROW(launch(all, grad_y, x, layer));
    else
      REQUIRE_THROWS_AS(launch(all, grad_y, x, layer), std::invalid_argument);
    REQUIRE_NOTHROW(launch({all.w, nullptr, nullptr}, grad_y, x, layer));  // only the bias needs it
  }
  HIP_CHECK(hipDeviceSynchronize());
}

TEST_CASE("concurrent refuses to run without branches, and backward does without them") {
  const Inputs in({4, 3, 2}, random_integers);
  Problem problem(in);
  const auto launch = [&](Launch function) {
    function(problem.gradients(), problem.d_grad_y.data(), problem.d_x.data(), 4, problem.layer(),
             0, problem.workspace, nullptr);
  };
  REQUIRE_THROWS_AS(launch(launch_concurrent), std::invalid_argument);
  REQUIRE_NOTHROW(launch(backward));
  REQUIRE(compare_with(problem.d_grad_w.to_host(), in.expected(0).w).ok);
}

// ---- What the checks above must catch ---------------------------------------------------------

namespace {

// Each launches the gradients of `row_slices` but for one mistake.
void launch_swapped_weights(const Gradients& to, const float* grad_y, const float* x, size_t batch,
                            const Layer& layer, float beta, Workspace& workspace,
                            const Streams& stream) {
  launch_row_slices({to.w, to.bias, nullptr}, grad_y, x, batch, layer, beta, workspace, stream);
  gemm::Product p = product_of_x(to.x, grad_y, batch, layer, beta);
  p.layout = gemm::Layout::NT;  // grad_y w^T: the same sizes, as w is square
  gemm::best(p, stream.caller);
}

void launch_transposed_grad_w(const Gradients& to, const float* grad_y, const float* x,
                              size_t batch, const Layer& layer, float beta, Workspace& workspace,
                              const Streams& stream) {
  launch_row_slices({nullptr, to.bias, to.x}, grad_y, x, batch, layer, beta, workspace, stream);
  launch_grad_w(to, x, grad_y, batch, layer, beta, stream.caller);  // x^T grad_y
}

void launch_mean_over_batch(const Gradients& to, const float* grad_y, const float* x, size_t batch,
                            const Layer& layer, float beta, Workspace& workspace,
                            const Streams& stream) {
  launch_row_slices({nullptr, to.bias, to.x}, grad_y, x, batch, layer, beta, workspace, stream);
  gemm::Product p = product_of_w(to.w, grad_y, x, batch, layer, beta);
  p.alpha = 1 / static_cast<float>(batch);
  gemm::best(p, stream.caller);
}

void launch_without_last_sample(const Gradients& to, const float* grad_y, const float* x,
                                size_t batch, const Layer& layer, float beta, Workspace& workspace,
                                const Streams& stream) {
  launch_row_slices({to.w, nullptr, to.x}, grad_y, x, batch, layer, beta, workspace, stream);
  launch_row_slices({nullptr, to.bias, nullptr}, grad_y, x, batch - 1, layer, beta, workspace,
                    stream);
}

void launch_without_last_slice(const Gradients& to, const float* grad_y, const float* x,
                               size_t batch, const Layer& layer, float beta, Workspace& workspace,
                               const Streams& stream) {
  launch_weight_slices(to, grad_y, x, batch, layer, beta, workspace, stream);
  const size_t rows = batch / count_slices(batch, layer.in, layer.out);
  launch_grad_w(to, grad_y, x, batch - rows, layer, beta, stream.caller);
}

void launch_without_beta(const Gradients& to, const float* grad_y, const float* x, size_t batch,
                         const Layer& layer, float, Workspace& workspace, const Streams& stream) {
  launch_row_slices(to, grad_y, x, batch, layer, 0, workspace, stream);
}

void launch_always_accumulating(const Gradients& to, const float* grad_y, const float* x,
                                size_t batch, const Layer& layer, float, Workspace& workspace,
                                const Streams& stream) {
  launch_row_slices(to, grad_y, x, batch, layer, 1, workspace, stream);
}

}  // namespace

TEST_CASE("planted mistakes are caught", "[harness]") {
  const Inputs in({33, 33, 33});
  REQUIRE(is_right(launch_row_slices, in, 0));
  for (const Launch launch :
       {launch_swapped_weights, launch_transposed_grad_w, launch_mean_over_batch,
        launch_without_last_sample, launch_always_accumulating})
    REQUIRE(!is_right(launch, in, 0));
  REQUIRE(!is_right(launch_without_beta, in, 1));
  const Inputs long_batch({1003, 5, 6});
  REQUIRE(is_right(launch_weight_slices, long_batch, 0));
  REQUIRE(!is_right(launch_without_last_slice, long_batch, 0));
}

TEST_CASE("the program's checks refuse a wrong term or row at every shape that it prints",
          "[harness]") {
  for (const bool quick : {false, true}) {
    const std::vector<size_t> size = usual_sizes(sizes(), quick, gpu::kBackend);
    for (const Shape& shape : printed({size[0], size[1], size[2]}, quick))
      for (const bool exact : {true, false}) {
        CAPTURE(name(shape), exact);
        const Inputs in(shape, exact ? Inputs::Make{random_integers} : Inputs::Make{random_floats});
        const Samples samples = samples_of(shape, 7);
        const ExpectedGradients want = expect(shape, samples, in.x, in.w, in.grad_y);
        // A term of median size, among the first 64 of the sum over coefficient times value.
        const auto require_refusals = [&](const Expected& of, size_t cols, size_t terms,
                                          auto&& coefficient, auto&& value) {
          testing::require_refusals(
              of.value, [&](size_t i) { return exact ? 0 : of.mean_zero_bound[i]; }, cols,
              [&](size_t i) {
                return testing::median_term(std::min(terms, size_t{64}), [&](size_t k) {
                  return static_cast<double>(coefficient(i / cols, k)) *
                         static_cast<double>(value(k, i % cols));
                });
              });
        };
        const auto grad_y = [&](size_t s, size_t o) { return in.grad_y[s * shape.out + o]; };
        require_refusals(
            want.w, shape.in, shape.batch,
            [&](size_t row, size_t s) { return grad_y(s, samples.w.rows[row]); },
            [&](size_t s, size_t k) { return in.x[s * shape.in + k]; });
        require_refusals(
            want.bias, shape.out, shape.batch, [](size_t, size_t) { return 1.0f; }, grad_y);
        require_refusals(
            want.x, shape.in, shape.out,
            [&](size_t row, size_t o) { return grad_y(samples.x.rows[row], o); },
            [&](size_t o, size_t k) { return in.w[o * shape.in + k]; });
      }
  }
}
