// The network worked by hand, then every version on awkward shapes and values, within its bound.
#include "stage4_forward/02_mlp_forward/mlp_forward.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "common/guarded.h"
#include "common/npy.h"
#include "common/testing.h"

namespace {

using namespace mlp_forward;
using activations::Relu;
using activations::Sigmoid;

struct Shape {
  size_t batch, in, hidden, out;
};
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
  const auto floats = [&](const std::string& name) {
    const std::vector<double> values = array(name).values;
    return std::vector<float>(values.begin(), values.end());
  };
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
  launch_fused_layers<Linear>(y, h, x, batch, network, stream);
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

// The last group of samples, which fills no block, is left out.
void launch_whole_blocks(float* y, float* h, const float* x, size_t batch, const Network& network,
                         hipStream_t stream) {
  launch_one_kernel<Relu>(y, h, x, batch / kSamples * kSamples, network, stream);
}

}  // namespace

TEST_CASE("planted mistakes are caught", "[harness]") {
  const Inputs in({33, 17, 40, 40});
  for (const Launch launch : {launch_without_activation, launch_activated_output,
                              launch_swapped_biases, launch_whole_blocks})
    REQUIRE(!check<Relu>(launch, in).ok);
}

#if defined(GPU_BACKEND_CPU)  // a GPU may have run the waves in the right order by chance

namespace {

// mlp_one_kernel without its second barrier: a wave reads hidden values that others have not
// stored.
static __global__ void __launch_bounds__(kBlock)
    without_barrier(float* y, const float* x, size_t batch, Network network) {
  DYNAMIC_SHARED(float, shared);
  const size_t in = network.first.in, hidden = network.first.out, out = network.second.out;
  const size_t first_sample = size_t{blockIdx.x} * kSamples;
  float *x_here = shared, *h_here = shared + kSamples * in;
  for (size_t i = threadIdx.x; i < kSamples * in; i += kBlock)
    x_here[i] = first_sample + i / in < batch ? x[first_sample * in + i] : 0.0f;
  __syncthreads();  // the block's samples are in x_here
  for_each_sum(network.first, x_here, [&](int sample, size_t unit, float sum) {
    h_here[sample * hidden + unit] = Relu{}(sum);
  });
  for_each_sum(network.second, h_here, [&](int sample, size_t unit, float sum) {
    if (first_sample + sample < batch) y[(first_sample + sample) * out + unit] = sum;
  });
}
void launch_without_barrier(float* y, float*, const float* x, size_t batch, const Network& network,
                            hipStream_t) {
  LAUNCH(without_barrier, static_cast<unsigned>(gpu::ceil_div(batch, size_t{kSamples})), kBlock,
         shared_bytes(network), y, x, batch, network);
}

}  // namespace

TEST_CASE("a missing barrier is caught", "[harness]") {
  REQUIRE(!check<Relu>(launch_without_barrier, Inputs({33, 17, 40, 40})).ok);
}

#endif
