// Every version of the convolution and of its gradients on awkward shapes, alignments and values,
// within its bound; and the formulas against NumPy and finite differences.
#include "stage6_cnn/01_conv2d/conv2d.h"

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/guarded.h"
#include "common/npy.h"
#include "common/testing.h"

namespace {

using namespace conv2d;
using activations::Relu;
using dense::Linear;

// N, C, H, W, K, R, S, strides, padding
const Problem kProblems[] = {
    {1, 1, 1, 1, 1, 1, 1},                 // one product
    {1, 3, 1, 1, 2, 3, 3, 1, 1, 1, 1},     // an image of one pixel
    {2, 3, 3, 2, 4, 5, 7, 1, 1, 2, 3},     // filters larger than the image
    {2, 3, 11, 9, 5, 2, 3, 4, 5, 0, 1},    // strides longer than the filter
    {3, 2, 7, 7, 3, 3, 3, 100, 1, 1, 0},   // one that leads out of the image
    {5, 1, 9, 8, 7, 3, 3, 1, 1, 1, 1},     // a whole number of float4s
    {1, 7, 8, 8, 64, 3, 3, 1, 1, 1, 1},    // 64 filters
    {5, 64, 5, 6, 3, 3, 3, 2, 1, 1, 0},    // 64 channels
    {3, 4, 10, 12, 9, 3, 3, 2, 2, 1, 1},   // as networks make images smaller
    {2, 5, 7, 9, 6, 3, 3, 1, 1, 0, 2},     // tiles of 4 x 4 that stick out
    {2, 4, 6, 8, 3, 3, 3, 1, 1, 3, 4},     // more padding than the filter needs
    {1, 3, 17, 19, 65, 1, 1},              // 1 x 1: a product of matrices
    {1, 2, 13, 12, 3, 9, 11, 1, 1, 4, 5},  // more rows and columns than a piece
    {2, 2, 3, 3, 3, 2, 2, 1, 1, 3, 4},     // windows that lie in the padding as a whole
    {1, 1, 200, 7, 2, 3, 3, 64, 2, 1, 1},  // patches too large for shared memory
    {0, 3, 5, 5, 2, 3, 3},                 // no images
    {2, 0, 4, 4, 3, 3, 3, 1, 1, 1, 1},     // no channels
    {2, 3, 4, 4, 0, 3, 3},                 // no filters
};

using testing::random_floats;
using testing::random_integers;

// The gradients, or what they are before the launch.
struct HostGradients {
  std::vector<float> w, bias, x;
  bool operator==(const HostGradients& other) const {
    return w == other.w && bias == other.bias && x == other.x;
  }
};
struct ExpectedGradients {
  Values w, bias, x;
};

struct Inputs {
  using Make = std::vector<float> (*)(size_t n, std::uint32_t stream);
  explicit Inputs(const Problem& sizes, Make make = random_floats)
      : p(sizes),
        x(make(size_of_x(p), 0)),
        w(make(size_of_w(p), 1)),
        bias(make(p.K, 2)),
        grad_y(make(size_of_y(p), 3)),
        before{make(size_of_w(p), 4), make(p.K, 5), {}} {}

  // With what a version may be off that goes through transformed tiles, or without.
  template <class Activation>
  Values expected(bool with_bias = true, bool transforms = false) const {
    Values y = conv2d_cpu<Activation>(dense::exactly(x), w, with_bias ? bias : std::vector<float>(),
                                      p, all_planes(p.N * p.K));
    if (transforms) add_winograd_error_of_y(y, x, w, p, all_planes(p.N * p.K));
    return y;
  }
  ExpectedGradients gradients(float beta, bool transforms = false) const {
    ExpectedGradients to{grad_w_cpu(grad_y, x, p, beta, before.w, all_planes(p.K * p.C)),
                         grad_bias_cpu(grad_y, p, beta, before.bias),
                         grad_x_cpu(grad_y, w, p, all_planes(p.N * p.C))};
    if (transforms) add_winograd_error_of_x(to.x, grad_y, w, p, all_planes(p.N * p.C));
    return to;
  }
  Problem p;
  std::vector<float> x, w, bias, grad_y;
  HostGradients before;
};

void make_exact(Values& values) { values.error.assign(values.error.size(), 0); }

// The device memory of one layer, guarded; the arrays begin `offset` elements behind a 16-byte
// boundary.
struct Device {
  explicit Device(const Inputs& in, size_t offset = 0)
      : p(in.p),
        before(in.before),
        d_x(in.x, offset),
        d_w(in.w, offset),
        d_bias(in.bias, offset),
        d_y(size_of_y(p), offset),
        d_grad_y(in.grad_y, offset),
        d_grad_w(size_of_w(p), offset),
        d_grad_bias(p.K, offset),
        d_grad_x(size_of_x(p), offset),
        workspace(Workspace::for_all_versions(p)) {}

  std::vector<float> run(Run launch, bool with_bias = true, hipStream_t stream = nullptr) {
    poison(d_y);
    launch(d_y.data(), d_x.data(), d_w.data(), with_bias ? d_bias.data() : nullptr, p, workspace,
           stream);
    HIP_CHECK(hipStreamSynchronize(stream));
    return d_y.to_host();
  }
  Gradients gradients() { return {d_grad_w.data(), d_grad_bias.data(), d_grad_x.data()}; }

  // With beta = 0 the gradients are poisoned before the launch: it must not read them. That of x is
  // never read.
  HostGradients run(BackwardRun launch, float beta, hipStream_t stream = nullptr) {
    const auto prepare = [&](Guarded<float>& gradient, const std::vector<float>& old) {
      if (beta == 0)
        poison(gradient);
      else if (!old.empty())
        HIP_CHECK(hipMemcpy(gradient.data(), old.data(), old.size() * sizeof(float),
                            hipMemcpyHostToDevice));
    };
    prepare(d_grad_w, before.w), prepare(d_grad_bias, before.bias), poison(d_grad_x);
    launch(gradients(), d_grad_y.data(), d_x.data(), d_w.data(), p, beta, workspace, stream);
    HIP_CHECK(hipStreamSynchronize(stream));
    return {d_grad_w.to_host(), d_grad_bias.to_host(), d_grad_x.to_host()};
  }
  static void poison(Guarded<float>& array) {
    if (array.size() > 0) gpu::poison(array.data(), array.size() * sizeof(float));
  }
  bool intact() const {
    for (const Guarded<float>* array :
         {&d_x, &d_w, &d_bias, &d_y, &d_grad_y, &d_grad_w, &d_grad_bias, &d_grad_x})
      if (!array->intact()) return false;
    return true;
  }

  Problem p;
  HostGradients before;
  Guarded<float> d_x, d_w, d_bias, d_y, d_grad_y, d_grad_w, d_grad_bias, d_grad_x;
  Workspace workspace;
};

Comparison compare_with(const std::vector<float>& got, const Values& want) {
  REQUIRE(got.size() == want.value.size());
  return compare(
      got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want.value[i]; },
      [&](size_t i) { return want.error[i]; });
}

void require_right(Run launch, const Inputs& in, size_t offset, const Values& want,
                   bool with_bias = true) {
  Device device(in, offset);
  REQUIRE_OK(compare_with(device.run(launch, with_bias), want));
  REQUIRE(device.intact());
}

void require_right(BackwardRun launch, const Inputs& in, size_t offset, float beta,
                   const ExpectedGradients& want) {
  Device device(in, offset);
  const HostGradients got = device.run(launch, beta);
  REQUIRE_OK(compare_with(got.w, want.w));
  REQUIRE_OK(compare_with(got.bias, want.bias));
  REQUIRE_OK(compare_with(got.x, want.x));
  REQUIRE(device.intact());
}

std::string text(const Problem& p) {
  std::string sizes;
  for (const size_t size :
       {p.N, p.C, p.H, p.W, p.K, p.R, p.S, p.stride_h, p.stride_w, p.pad_h, p.pad_w})
    sizes += " " + std::to_string(size);
  return sizes;
}

}  // namespace

TEST_CASE("forward: any shape and alignment stays within its bound, with and without a bias") {
  for (const Problem& p : kProblems) {
    const Inputs in(p);
    for (const bool with_bias : {true, false}) {
      const Values linear = in.expected<Linear>(with_bias);
      const Values relu[] = {in.expected<Relu>(with_bias),
                             in.expected<Relu>(with_bias, fits_winograd(p))};
      for (const size_t offset : {size_t{0}, size_t{1}}) {
        CAPTURE(text(p), offset, with_bias);
        for (const auto& version : testing::chosen(kVersions<Relu>)) {
          CAPTURE(version.name);
          require_right(version.launch.run, in, offset, relu[version.launch.transforms(p)],
                        with_bias);
        }
        require_right(forward<Linear>, in, offset, linear, with_bias);
      }
    }
  }
}

TEST_CASE("backward: any shape and alignment stays within its bound, overwriting and adding") {
  for (const Problem& p : kProblems) {
    const Inputs in(p);
    for (const float beta : {0.0f, 1.0f}) {
      const ExpectedGradients want[] = {in.gradients(beta), in.gradients(beta, fits_winograd(p))};
      for (const auto& version : testing::chosen(kBackwardVersions))
        for (const size_t offset : {size_t{0}, size_t{1}}) {
          CAPTURE(version.name, text(p), offset, beta);
          require_right(version.launch.run, in, offset, beta, want[version.launch.transforms(p)]);
        }
    }
  }
}

// Of the transforms only that of the filters divides, by 24: they are exact for multiples of 576.
TEST_CASE("sums of integers are exact: nothing is missed, doubled or in another's place") {
  for (const Problem& p :
       {Problem{3, 5, 11, 9, 17, 3, 3, 1, 1, 1, 1}, Problem{2, 3, 12, 11, 9, 4, 3, 2, 3, 2, 1},
        Problem{3, 17, 13, 15, 33, 3, 3, 1, 1, 0, 2}}) {
    const Inputs in(p, random_integers);
    Values y = in.expected<Linear>();
    make_exact(y);
    for (const auto& version : testing::chosen(kVersions<Linear>)) {
      CAPTURE(version.name, text(p));
      if (!version.launch.transforms(p)) require_right(version.launch.run, in, 3, y);
    }
    ExpectedGradients want = in.gradients(1);
    make_exact(want.w), make_exact(want.bias), make_exact(want.x);
    for (const auto& version : testing::chosen(kBackwardVersions)) {
      CAPTURE(version.name, text(p));
      if (!version.launch.transforms(p)) require_right(version.launch.run, in, 3, 1, want);
    }
  }
}

TEST_CASE("every tile of the candidates is right, for known and for any windows") {
  const auto require_tiles = [](const Problem& p) {
    const Inputs in(p, random_integers);
    Values y = in.expected<Linear>();
    make_exact(y);
    Device device(in);
    using Epilogue = BiasActivation<Linear>;
    for (const Candidate<Epilogue>& candidate : kCandidates<Epilogue>) {
      CAPTURE(candidate.maps, candidate.pixels, text(p));
      Device::poison(device.d_y);
      candidate.launch(windows_of(device.d_y.data(), device.d_x.data(), device.d_w.data(), p), p.N,
                       Epilogue{device.d_bias.data()}, nullptr);
      REQUIRE_OK(compare_with(device.d_y.to_host(), y));
      REQUIRE(device.intact());
    }
    ExpectedGradients want = in.gradients(0);
    make_exact(want.w);
    for (const FilterCandidate& candidate : kFilterCandidates)
      for (const int slices : {1, 3}) {
        CAPTURE(candidate.filters, candidate.elements, slices, text(p));
        DeviceBuffer<float> sums(slices * size_of_w(p));
        sums.poison();
        FilterSums of{};
        of.grad_y = device.d_grad_y.data(), of.x = device.d_x.data(), of.g = geometry_of(p);
        of.sums.M = p.K, of.sums.N = of.sums.ldc = window_of(p), of.sums.c = sums.data();
        of.sums.stride_c = size_of_w(p);
        of.pixels = static_cast<int>(p.N) * of.g.pixels();
        of.share = of.pixels / slices + candidate.pixels;
        of.share -= of.share % candidate.pixels;
        of.by_pixels = Divisor(of.g.pixels()), of.by_cols = Divisor(of.g.Q);
        candidate.launch(of, slices, nullptr);
        const std::vector<float> parts = sums.to_host();
        std::vector<float> grad_w(size_of_w(p));
        for (size_t i = 0; i < parts.size(); ++i) grad_w[i % grad_w.size()] += parts[i];
        REQUIRE_OK(compare_with(grad_w, want.w));
      }
  };
  require_tiles({2, 3, 9, 8, 19, 3, 3, 1, 1, 1, 1});
  require_tiles({2, 5, 9, 8, 71, 2, 3, 1, 2, 1, 0});
}

TEST_CASE("the convolution and its gradients agree with NumPy", "[numpy]") {
  const auto values = [](const std::string& name) {
    return read_npy(reference_path("conv2d_" + name + ".npy")).values;
  };
  const auto floats = [&](const std::string& name) {
    const std::vector<double> wide = values(name);
    return std::vector<float>(wide.begin(), wide.end());
  };
  const auto require_same = [&](const std::string& name, const Problem& p) {
    Inputs in(p);
    in.x = floats(name + "_x"), in.w = floats(name + "_w"), in.bias = floats(name + "_bias");
    in.grad_y = floats(name + "_grad_y");
    Values linear = in.expected<Linear>();
    linear.value = values(name + "_linear");
    require_right(forward<Linear>, in, 0, linear);
    for (const auto& version : testing::chosen(kVersions<Relu>)) {
      CAPTURE(version.name, name);
      Values relu = in.expected<Relu>(true, version.launch.transforms(p));
      relu.value = values(name + "_relu");
      require_right(version.launch.run, in, 0, relu);
    }
    for (const auto& version : testing::chosen(kBackwardVersions)) {
      CAPTURE(version.name, name);
      ExpectedGradients want = in.gradients(0, version.launch.transforms(p));
      want.w.value = values(name + "_grad_w"), want.bias.value = values(name + "_grad_bias");
      want.x.value = values(name + "_grad_x");
      require_right(version.launch.run, in, 0, 0, want);
    }
  };
  require_same("any", {3, 5, 11, 9, 7, 4, 2, 3, 2, 2, 1});
  require_same("three", {5, 3, 8, 7, 9, 3, 3, 1, 1, 1, 1});
}

// The loss is the sum of grad_y * y, so that its gradient by y is grad_y. It is a polynomial of
// degree 1 in each parameter: the central difference (L(p + e) - L(p - e)) / 2e has no error but
// that of rounding in double, for any e.
TEST_CASE("the gradients agree with finite differences in double") {
  const Problem p{2, 2, 5, 4, 3, 3, 2, 2, 1, 1, 1};
  const Inputs in(p);
  const Extent out = output_of(p);
  std::vector<double> x(in.x.begin(), in.x.end()), w(in.w.begin(), in.w.end());
  std::vector<double> bias(in.bias.begin(), in.bias.end());
  // The formula at the top of conv2d.h, as it is written there.
  const auto loss = [&] {
    double sum = 0;
    size_t i = 0;
    for (size_t n = 0; n < p.N; ++n)
      for (size_t k = 0; k < p.K; ++k)
        for (size_t row = 0; row < out.height; ++row)
          for (size_t col = 0; col < out.width; ++col, ++i) {
            double y = bias[k];
            for (size_t c = 0; c < p.C; ++c)
              for (size_t r = 0; r < p.R; ++r)
                for (size_t s = 0; s < p.S; ++s) {
                  const long h = static_cast<long>(row * p.stride_h + r) - long(p.pad_h);
                  const long v = static_cast<long>(col * p.stride_w + s) - long(p.pad_w);
                  if (h < 0 || v < 0 || h >= long(p.H) || v >= long(p.W)) continue;
                  y += w[((k * p.C + c) * p.R + r) * p.S + s] *
                       x[((n * p.C + c) * p.H + size_t(h)) * p.W + size_t(v)];
                }
            sum += static_cast<double>(in.grad_y[i]) * y;
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
  const ExpectedGradients reference = in.gradients(0);
  const auto require_near = [](const std::vector<double>& slopes, const Values& gradient) {
    REQUIRE(slopes.size() == gradient.value.size());
    for (size_t i = 0; i < slopes.size(); ++i)
      REQUIRE(std::fabs(slopes[i] - gradient.value[i]) <= 1e-10);
  };
  require_near(differences(w), reference.w);
  require_near(differences(bias), reference.bias);
  require_near(differences(x), reference.x);
}

// Where a filter is a multiple of 24, all of its transformed numbers are integers.
TEST_CASE("four sums of three products are those that the transforms make of six") {
  const std::vector<float> numbers = random_integers(60, 0), filters = random_integers(30, 1);
  for (size_t at = 0; at < 10; ++at) {
    float d[kSideIn], g[3], u[kSideIn], products[kSideIn], y[kSideOut];
    for (size_t i = 0; i < 6; ++i) d[i] = numbers[at * 6 + i];
    for (size_t i = 0; i < 3; ++i) g[i] = 24 * filters[at * 3 + i];
    const float want[kSideOut] = {
        d[0] * g[0] + d[1] * g[1] + d[2] * g[2], d[1] * g[0] + d[2] * g[1] + d[3] * g[2],
        d[2] * g[0] + d[3] * g[1] + d[4] * g[2], d[3] * g[0] + d[4] * g[1] + d[5] * g[2]};
    transform_numbers(d), transform_filter(g, u);
    for (size_t i = 0; i < 6; ++i) products[i] = d[i] * u[i];
    transform_products(products, y);
    for (size_t i = 0; i < 4; ++i) REQUIRE(y[i] == want[i]);
  }
}

TEST_CASE("the reference computes the planes that it is asked for, and passes on an input's error",
          "[harness]") {
  const Problem p{2, 3, 5, 4, 3, 3, 3, 1, 1, 1, 1};
  const Inputs in(p);
  Values x = dense::exactly(in.x);
  const Values all = in.expected<Linear>();
  const Values some = conv2d_cpu<Linear>(x, in.w, in.bias, p, {1, 5});
  const size_t pixels = 20;
  for (size_t i = 0; i < pixels; ++i) {
    REQUIRE(some.value[i] == all.value[pixels + i]);
    REQUIRE(some.value[pixels + i] == all.value[5 * pixels + i]);
  }
  // Off by 0.25 in one element of image 0, channel 1: every output that sees it is off by that
  // times a weight.
  x.error[20 + 6] = 0.25;
  const Values off = conv2d_cpu<Linear>(x, in.w, in.bias, p, all_planes(6));
  const double weight = std::fabs(static_cast<double>(in.w[9 + 4]));  // filter 0, its middle
  REQUIRE(off.error[6] >= all.error[6] + 0.25 * weight);
  REQUIRE(off.error[6] <= all.error[6] + 0.29 * weight);
  REQUIRE(off.error[19] == all.error[19]);                          // out of its reach
  REQUIRE(off.error[3 * pixels + 6] == all.error[3 * pixels + 6]);  // of another image
}

TEST_CASE("NaN of an image reaches the windows that cover it, and no other") {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const Problem& p :
       {Problem{2, 3, 6, 7, 5, 3, 3, 1, 1, 1, 1}, Problem{2, 3, 6, 7, 5, 2, 3, 2, 1, 0, 1}}) {
    Inputs in(p);
    in.x[((p.C + 2) * p.H + 3) * p.W + 4] = kNan;  // image 1, channel 2, row 3, column 4
    const Extent out = output_of(p);
    for (const auto& version : testing::chosen(kVersions<Relu>)) {
      CAPTURE(version.name, text(p));
      if (version.launch.transforms(p)) continue;  // there it reaches the whole tile
      const std::vector<float> y = Device(in).run(version.launch.run);
      for (size_t i = 0; i < y.size(); ++i) {
        const size_t row = i / out.width % out.height * p.stride_h,
                     col = i % out.width * p.stride_w;
        const bool covers = 3 + p.pad_h - row < p.R && 4 + p.pad_w - col < p.S;  // wraps around
        CAPTURE(i);
        REQUIRE(std::isnan(y[i]) == (i >= y.size() / 2 && covers));
      }
    }
  }
}

TEST_CASE("NaN of a filter, a bias or an output's gradient stays with its filter or image") {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const Problem p{2, 3, 6, 7, 5, 3, 3, 1, 1, 1, 1};
  const size_t pixels = 42, taps = 9;
  Inputs in(p);
  in.w[(2 * p.C + 1) * taps + 4] = kNan, in.bias[4] = kNan;  // the middle of filter 2
  for (const auto& version : testing::chosen(kVersions<Linear>)) {
    CAPTURE(version.name);
    const std::vector<float> y = Device(in).run(version.launch.run);
    for (size_t i = 0; i < y.size(); ++i) {
      const size_t k = i / pixels % p.K;
      REQUIRE(std::isnan(y[i]) == (k == 2 || k == 4));
    }
  }
  in = Inputs(p);
  in.grad_y[(p.K + 3) * pixels + 3 * 7 + 2] = kNan;  // image 1, filter 3, a pixel with neighbours
  for (const auto& version : testing::chosen(kBackwardVersions)) {
    CAPTURE(version.name);
    if (version.launch.transforms(p)) continue;  // there it reaches the whole tile
    const HostGradients got = Device(in).run(version.launch.run, 0);
    for (size_t i = 0; i < got.w.size(); ++i)
      REQUIRE(std::isnan(got.w[i]) == (i / (p.C * taps) == 3));
    for (size_t i = 0; i < got.bias.size(); ++i) REQUIRE(std::isnan(got.bias[i]) == (i == 3));
    for (size_t i = 0; i < got.x.size(); ++i) {
      const size_t row = i / 7 % 6, col = i % 7;
      const bool is_near = row + 1 >= 3 && row <= 4 && col + 1 >= 2 && col <= 3;
      REQUIRE(std::isnan(got.x[i]) == (i >= got.x.size() / 2 && is_near));
    }
  }
}

// Behind the last channel and tap a tile has zeros of both operands: 0 times infinity is NaN.
TEST_CASE("an infinite weight makes its filter's outputs infinite, not NaN") {
  const Problem p{2, 3, 6, 7, 5, 3, 3};  // without padding, whose zeros meet the weight
  Inputs in(p);
  for (float& element : in.x) element = 1 + std::fabs(element);
  in.w[2 * window_of(p)] = std::numeric_limits<float>::infinity();  // filter 2, its first
  for (const auto& version : testing::chosen(kVersions<Linear>)) {
    CAPTURE(version.name);
    if (version.launch.transforms(p)) continue;  // which take differences of infinite numbers
    const std::vector<float> y = Device(in).run(version.launch.run);
    for (size_t i = 0; i < y.size(); ++i) {
      CAPTURE(i, y[i]);
      REQUIRE(!std::isnan(y[i]));
      REQUIRE(std::isinf(y[i]) == (i / (y.size() / p.N / p.K) % p.K == 2));
    }
  }
}

// The padding's zeros are numbers like others. Only the tests of all versions ask for it: a
// learner's `direct` may as well leave them out.
TEST_CASE("an infinite weight over the padding makes NaN, in every version", "[harness]") {
  const Problem p{2, 3, 6, 7, 5, 3, 3, 1, 1, 1, 1};
  Inputs in(p);
  for (float& element : in.x) element = 1 + std::fabs(element);
  in.w[2 * window_of(p)] = std::numeric_limits<float>::infinity();  // filter 2, up and left
  for (const auto& version : testing::chosen(kVersions<Linear>)) {
    CAPTURE(version.name);
    const std::vector<float> y = Device(in).run(version.launch.run);
    for (size_t i = 0; i < y.size(); ++i) {
      CAPTURE(i, y[i]);
      const bool of_filter = i / 42 % p.K == 2, over_padding = i % 42 < 7 || i % 7 == 0;
      REQUIRE(std::isfinite(y[i]) == !of_filter);
      if (of_filter && !version.launch.transforms(p)) REQUIRE(std::isnan(y[i]) == over_padding);
    }
  }
}

TEST_CASE("a launch of few images after the other is the same as one of all") {
  const Problem p{7, 3, 5, 6, 4, 3, 3, 1, 1, 1, 1};
  const Inputs in(p, random_integers);
  Device device(in);
  const std::vector<float> y = device.run(launch_right_tile<Linear>);
  const HostGradients want = device.run(backward, 1);
  for (const size_t images : {1, 2, 6}) {
    CAPTURE(images);
    Device::poison(device.d_y);
    using Shape = Large::Shape<8>;
    launch_windows<Shape, Places<Shape>, AnyWindow>(
        windows_of(device.d_y.data(), device.d_x.data(), device.d_w.data(), p), p.N,
        BiasActivation<Linear>{device.d_bias.data()}, nullptr, images * 30);
    REQUIRE(device.d_y.to_host() == y);
    for (const float beta : {0.0f, 1.0f}) {
      HIP_CHECK(hipMemcpy(device.d_grad_w.data(), in.before.w.data(), size_of_w(p) * sizeof(float),
                          hipMemcpyHostToDevice));
      HIP_CHECK(hipMemcpy(device.d_grad_bias.data(), in.before.bias.data(), p.K * sizeof(float),
                          hipMemcpyHostToDevice));
      launch_grad_w({device.d_grad_w.data(), device.d_grad_bias.data(), nullptr},
                    device.d_grad_y.data(), device.d_x.data(), p, beta, device.workspace, 8,
                    nullptr, images * 30);
      ExpectedGradients gradients = in.gradients(beta);
      make_exact(gradients.w), make_exact(gradients.bias);
      REQUIRE_OK(compare_with(device.d_grad_w.to_host(), gradients.w));
      REQUIRE_OK(compare_with(device.d_grad_bias.to_host(), gradients.bias));
    }
  }
  // Columns for fewer images than there are.
  for (const size_t images : {1, 3}) {
    device.workspace.columns = DeviceBuffer<float>(images * columns_per_image(p) + 5);
    REQUIRE(device.run(launch_im2col<Linear>) == y);
  }
  REQUIRE(want == device.run(backward, 1));
  // And transformed tiles. What is added up for an image is the same.
  const std::vector<float> transformed = device.run(launch_winograd<Linear>);
  const HostGradients gradients = device.run(launch_backward_winograd, 1);
  for (const size_t images : {1, 2, 3}) {
    device.workspace.tiles = DeviceBuffer<float>(transformed_filters(p.C, p.K) + 5 +
                                                 images * tiles_per_image(p.C, p.K, p.H, p.W));
    REQUIRE(device.run(launch_winograd<Linear>) == transformed);
    REQUIRE(device.run(launch_backward_winograd, 1) == gradients);
  }
}

TEST_CASE("a gradient that nobody wants is left alone") {
  const Inputs in({3, 4, 6, 5, 7, 3, 3, 1, 1, 1, 1});
  for (const auto& version : testing::chosen(kBackwardVersions)) {
    CAPTURE(version.name);
    Device device(in);
    const HostGradients want = device.run(version.launch.run, 0);
    for (int wanted = 0; wanted < 8; ++wanted) {
      CAPTURE(wanted);
      for (Guarded<float>* array : {&device.d_grad_w, &device.d_grad_bias, &device.d_grad_x})
        Device::poison(*array);
      const Gradients to{wanted & 1 ? device.d_grad_w.data() : nullptr,
                         wanted & 2 ? device.d_grad_bias.data() : nullptr,
                         wanted & 4 ? device.d_grad_x.data() : nullptr};
      version.launch.run(to, device.d_grad_y.data(), wanted & 1 ? device.d_x.data() : nullptr,
                         wanted & 4 ? device.d_w.data() : nullptr, in.p, 0, device.workspace,
                         nullptr);
      const auto is_left = [](const Guarded<float>& array) {
        for (const float value : array.to_host())
          if (!is_poison(value)) return false;
        return true;
      };
      REQUIRE((wanted & 1 ? device.d_grad_w.to_host() == want.w : is_left(device.d_grad_w)));
      REQUIRE((wanted & 4 ? device.d_grad_x.to_host() == want.x : is_left(device.d_grad_x)));
      REQUIRE((wanted & 2) == (is_left(device.d_grad_bias) ? 0 : 2));
    }
  }
}

// A multiprocessor of the CPU backend is a thread of the host: a single one would cut nothing.
TEST_CASE("many pixels are cut into slices, few are not, and there is memory for them") {
  constexpr unsigned kMultiprocessors = 100;
  const auto slices_of = [](const Problem& p) { return count_slices(p, kMultiprocessors); };
  REQUIRE(slices_of({1, 3, 4, 4, 5, 3, 3, 1, 1, 1, 1}) == 1);
  REQUIRE(slices_of({5, 0, 4, 4, 5, 3, 3, 1, 1, 1, 1}) == 1);
  REQUIRE(slices_of({5, 3, 4, 4, 0, 3, 3, 1, 1, 1, 1}) == 1);
  const Problem p{64, 8, 14, 14, 16, 3, 3, 1, 1, 1, 1};
  REQUIRE(slices_of(p) > 1);
  size_t before = 1;
  for (size_t images = 1; images <= 64; ++images) {
    Problem fewer = p;
    fewer.N = images;
    REQUIRE(slices_of(fewer) >= before);  // a workspace for 64 images has room for fewer
    before = slices_of(fewer);
  }
  const size_t filters = size_t{1} << 12;  // tiles enough for any device
  REQUIRE(count_slices({64, filters, 14, 14, filters, 3, 3, 1, 1, 1, 1}) == 1);
}

// In as many groups as a block has on a GPU, and on the CPU backend.
TEST_CASE("the sums of all slices are added, however many slices and groups there are") {
  constexpr size_t kWeights = 41, kBiases = 6, kColumns = kWeights + kBiases, kStride = 50;
  const std::vector<float> w = random_integers(kWeights, 0), bias = random_integers(kBiases, 1);
  const auto require_sums = [&](auto groups, size_t slices, float beta) {
    constexpr int kGroups = decltype(groups)::value;
    CAPTURE(kGroups, slices, beta);
    const std::vector<float> sums = random_integers(slices * kStride, 2);
    Guarded<float> d_w(w, 0), d_bias(bias, 0), d_sums(sums, 0);
    LAUNCH(grad_w_add_slices<kGroups>, grid_of(kColumns, kSumColumns), dim3(kSumColumns, kGroups),
           0, d_w.data(), d_bias.data(), d_sums.data(), kStride, static_cast<int>(slices), kWeights,
           kColumns, beta);
    std::vector<float> got = d_w.to_host(), want;
    for (const float element : d_bias.to_host()) got.push_back(element);
    for (size_t i = 0; i < kColumns; ++i) {
      want.push_back(beta * (i < kWeights ? w[i] : bias[i - kWeights]));
      for (size_t slice = 0; slice < slices; ++slice) want[i] += sums[slice * kStride + i];
    }
    REQUIRE(got == want);
    REQUIRE((d_w.intact() && d_bias.intact() && d_sums.intact()));
  };
  for (const size_t slices : {1, 3, 16, 37})
    for (const float beta : {0.0f, 1.0f}) {
      require_sums(std::integral_constant<int, 1>{}, slices, beta);
      require_sums(std::integral_constant<int, 16>{}, slices, beta);
    }
}

TEST_CASE("slices need no more memory than the workspace has") {
  const Inputs in({9, 2, 9, 7, 5, 3, 3, 1, 1, 1, 1}, random_integers);
  ExpectedGradients want = in.gradients(1);
  make_exact(want.w), make_exact(want.bias);
  const size_t stride = size_of_w(in.p) + in.p.K;
  for (const size_t room : {1, 2, 3, 100}) {
    CAPTURE(room);
    Device device(in);
    device.workspace.slices = DeviceBuffer<float>(room * stride + 1);
    const HostGradients got = device.run(backward, 1);
    REQUIRE_OK(compare_with(got.w, want.w));
    REQUIRE_OK(compare_with(got.bias, want.bias));
  }
  Device device(in);
  device.workspace.slices = DeviceBuffer<float>(stride - 1);
  REQUIRE_THROWS_AS(device.run(backward, 1), std::invalid_argument);
}

TEST_CASE("every run gives the same bits, on any stream and from a graph") {
  const Inputs in({9, 3, 11, 10, 17, 3, 3, 1, 1, 1, 1});
  hipStream_t stream = nullptr;
  HIP_CHECK(hipStreamCreate(&stream));
  Device device(in);
  for (const auto& version : testing::chosen(kVersions<Relu>)) {
    CAPTURE(version.name);
    const std::vector<float> first = device.run(version.launch.run);
    REQUIRE(device.run(version.launch.run, true, stream) == first);
  }
  for (const auto& version : testing::chosen(kBackwardVersions)) {
    CAPTURE(version.name);
    const HostGradients first = device.run(version.launch.run, 0);
    for (int run = 0; run < 3; ++run) REQUIRE(device.run(version.launch.run, 0, stream) == first);
  }
  const std::vector<float> y = device.run(launch_winograd<Relu>);
  const HostGradients want = device.run(launch_backward_winograd, 0);
  for (Guarded<float>* array :
       {&device.d_y, &device.d_grad_w, &device.d_grad_bias, &device.d_grad_x})
    Device::poison(*array);
  testing::run_captured([&](hipStream_t captured) {
    launch_winograd<Relu>(device.d_y.data(), device.d_x.data(), device.d_w.data(),
                          device.d_bias.data(), in.p, device.workspace, captured);
    launch_backward_winograd(device.gradients(), device.d_grad_y.data(), device.d_x.data(),
                             device.d_w.data(), in.p, 0, device.workspace, captured);
  });
  REQUIRE(device.d_y.to_host() == y);
  REQUIRE(device.d_grad_w.to_host() == want.w);
  REQUIRE(device.d_grad_bias.to_host() == want.bias);
  REQUIRE(device.d_grad_x.to_host() == want.x);
  HIP_CHECK(hipStreamDestroy(stream));
}

TEST_CASE("outputs are as many as windows fit, and what can't be is one clear line") {
  const auto is_of = [](const Problem& p, size_t height, size_t width) {
    const Extent out = output_of(p);
    return out.height == height && out.width == width;
  };
  REQUIRE(is_of({1, 1, 14, 28, 1, 3, 3, 1, 1, 1, 1}, 14, 28));
  REQUIRE(is_of({1, 1, 14, 28, 1, 3, 5}, 12, 24));
  REQUIRE(is_of({1, 1, 7, 8, 1, 3, 3, 2, 2, 1, 1}, 4, 4));
  REQUIRE(is_of({1, 1, 0, 0, 1, 3, 3, 1, 1, 2, 2}, 2, 2));  // padding alone
  const auto says = [](const Problem& p) -> std::string {
    try {
      output_of(p);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  REQUIRE(says({1, 1, 3, 3, 1, 5, 3}) ==
          "conv2d: a filter of 5x3 does not fit an image of 3x3 with padding 0x0");
  REQUIRE(says({1, 1, 3, 3, 1, 3, 8, 1, 1, 0, 2}) ==
          "conv2d: a filter of 3x8 does not fit an image of 3x3 with padding 0x2");
  REQUIRE(says({1, 1, 3, 3, 1, 0, 3}) == "conv2d: a filter of 0x3 has no elements");
  REQUIRE(says({1, 1, 3, 3, 1, 3, 3, 0, 1}) == "conv2d: a stride of 0x1");
  REQUIRE(says({1, size_t{1} << 40, 3, 3, 1, 3, 3}) ==
          "conv2d: a size of 1099511627776 is not below 2^30");
  const std::string large = "conv2d: an image or the filters have 2^30 or more elements";
  REQUIRE(says({1, 1 << 20, 1 << 10, 1, 1, 1, 1}) == large);
  REQUIRE(says({1, 1, 1 << 10, 1, 1 << 20, 1, 1}) == large);
  REQUIRE(says({1, 1 << 10, 32, 32, 1 << 20, 1, 1}) == large);
  REQUIRE(says({1, 1, 1, 1, 1, 1, 1, 1, 1, 1 << 29, 0}) == large);
}

TEST_CASE("arrays that are missing are refused") {
  const Inputs in({2, 3, 5, 5, 4, 3, 3, 1, 1, 1, 1});
  Device d(in);
  float *const x = d.d_x.data(), *const w = d.d_w.data(), *const y = d.d_y.data();
  for (const auto& version : testing::chosen(kVersions<Relu>)) {
    CAPTURE(version.name);
    const auto launch = [&](float* to, const float* from, const float* filter, const Problem& p) {
      version.launch.run(to, from, filter, nullptr, p, d.workspace, nullptr);
    };
    REQUIRE_THROWS_AS(launch(nullptr, x, w, in.p), std::invalid_argument);
    REQUIRE_THROWS_AS(launch(y, nullptr, w, in.p), std::invalid_argument);
    REQUIRE_THROWS_AS(launch(y, x, nullptr, in.p), std::invalid_argument);
    REQUIRE_THROWS_AS(launch(y, x, w, {2, 3, 5, 5, 4, 8, 3, 1, 1, 1, 1}), std::invalid_argument);
  }
  for (const auto& version : testing::chosen(kBackwardVersions)) {
    CAPTURE(version.name);
    const auto launch = [&](const float* grad_y, const float* from, const float* filter) {
      version.launch.run(d.gradients(), grad_y, from, filter, in.p, 0, d.workspace, nullptr);
    };
    REQUIRE_THROWS_AS(launch(nullptr, x, w), std::invalid_argument);
    REQUIRE_THROWS_AS(launch(d.d_grad_y.data(), nullptr, w), std::invalid_argument);
    REQUIRE_THROWS_AS(launch(d.d_grad_y.data(), x, nullptr), std::invalid_argument);
  }
  d.workspace.columns = DeviceBuffer<float>(columns_per_image(in.p) - 1);
  REQUIRE_THROWS_AS(d.run(launch_im2col<Relu>), std::invalid_argument);
  d.workspace.tiles = DeviceBuffer<float>(100);
  REQUIRE_THROWS_AS(d.run(launch_winograd<Relu>), std::invalid_argument);
  REQUIRE_THROWS_AS(d.run(launch_backward_winograd, 0), std::invalid_argument);
}

TEST_CASE("the product and the shift are a division", "[harness]") {
  constexpr int kMost = std::numeric_limits<int>::max();
  for (int divisor = 1; divisor < 3000; divisor += divisor < 300 ? 1 : 97) {
    const Divisor by(divisor);
    for (const int n : {0, 1, divisor - 1, divisor, divisor + 1, 12345, 1 << 30, kMost - divisor,
                        kMost / divisor * divisor - 1, kMost / divisor * divisor, kMost}) {
      REQUIRE(by.quotient(n) == n / divisor);
      REQUIRE(by.remainder(n, by.quotient(n)) == n % divisor);
    }
  }
  for (const int divisor : {(1 << 30) - 1, 1 << 30, kMost - 1, kMost})
    for (const int n : {0, divisor - 1, divisor, kMost})
      REQUIRE(Divisor(divisor).quotient(n) == n / divisor);
}

// ---- What the checks above must catch ---------------------------------------------------------

namespace {

// Descriptions of the sums with a mistake, run by the kernel of the versions.
enum class Mistake {
  none,
  no_padding,
  swapped_strides,
  first_channels_filter,
  neighbours_bias,
  next_weight
};

template <Mistake kMistake, bool transforms = false>
void launch_wrong(float* y, const float* x, const float* w, const float* bias, const Problem& p,
                  Workspace& workspace, hipStream_t stream) {
  Windows windows = windows_of(y, x, w, p);
  if (kMistake == Mistake::no_padding) windows.first_h = windows.first_w = 0;
  if (kMistake == Mistake::swapped_strides) std::swap(windows.step_h, windows.step_w);
  if (kMistake == Mistake::next_weight) windows.filter += 1;
  if (kMistake == Mistake::first_channels_filter) windows.filter_channel = 0;
  const BiasActivation<Linear> epilogue{bias + (kMistake == Mistake::neighbours_bias)};
  if (transforms)
    launch_winograd(windows, p.N, epilogue, workspace, stream);
  else
    launch_right_tile(windows, p.N, epilogue, stream);
}

// The filter as it lies, not turned; and a stride of 1 in place of the problem's.
void launch_unturned(const Gradients& to, const float* grad_y, const float* x, const float* w,
                     const Problem& p, float beta, Workspace& workspace, hipStream_t stream) {
  launch_grad_w(to, grad_y, x, p, beta, workspace, 1, stream);
  const Geometry g = geometry_of(p);
  Windows windows = windows_of_kind(to.x, grad_y, w, g, kind_of(0, g.H, g.R, 1, g.pad_h),
                                    kind_of(0, g.W, g.S, 1, g.pad_w));
  windows.filter = w, windows.filter_row = g.S, windows.filter_col = 1;
  launch_right_tile(windows, p.N, BiasActivation<Linear>{nullptr}, stream);
}

void launch_without_last_image(const Gradients& to, const float* grad_y, const float* x,
                               const float* w, const Problem& p, float beta, Workspace& workspace,
                               hipStream_t stream) {
  backward({nullptr, nullptr, to.x}, grad_y, x, w, p, beta, workspace, stream);
  Problem fewer = p;
  --fewer.N;
  backward({to.w, to.bias, nullptr}, grad_y, x, w, fewer, beta, workspace, stream);
}

void launch_without_beta(const Gradients& to, const float* grad_y, const float* x, const float* w,
                         const Problem& p, float, Workspace& workspace, hipStream_t stream) {
  backward(to, grad_y, x, w, p, 0, workspace, stream);
}

bool is_right(Run launch, const Inputs& in, bool transforms = false) {
  return compare_with(Device(in).run(launch), in.expected<Linear>(true, transforms)).ok;
}
bool is_right(BackwardRun launch, const Inputs& in) {
  const HostGradients got = Device(in).run(launch, 1);
  const ExpectedGradients want = in.gradients(1);
  return compare_with(got.w, want.w).ok && compare_with(got.bias, want.bias).ok &&
         compare_with(got.x, want.x).ok;
}

}  // namespace

TEST_CASE("planted mistakes are caught", "[harness]") {
  // One filter more than is used, so that its neighbour's bias and weights are there.
  Inputs in({3, 4, 9, 9, 6, 3, 3, 2, 1, 1, 1});
  in.w.push_back(0.5f), in.bias.push_back(0.5f);
  REQUIRE(is_right(launch_wrong<Mistake::none>, in));
  REQUIRE(!is_right(launch_wrong<Mistake::no_padding>, in));
  REQUIRE(!is_right(launch_wrong<Mistake::swapped_strides>, in));
  REQUIRE(!is_right(launch_wrong<Mistake::first_channels_filter>, in));
  REQUIRE(!is_right(launch_wrong<Mistake::neighbours_bias>, in));
  REQUIRE(!is_right(launch_wrong<Mistake::next_weight>, in));
  Inputs square({3, 4, 9, 9, 6, 3, 3, 1, 1, 1, 1});
  square.w.push_back(0.5f), square.bias.push_back(0.5f);
  REQUIRE(is_right(launch_wrong<Mistake::none, true>, square, true));
  REQUIRE(!is_right(launch_wrong<Mistake::no_padding, true>, square, true));
  REQUIRE(!is_right(launch_wrong<Mistake::first_channels_filter, true>, square, true));
  REQUIRE(!is_right(launch_wrong<Mistake::neighbours_bias, true>, square, true));
  REQUIRE(!is_right(launch_wrong<Mistake::next_weight, true>, square, true));
  REQUIRE(is_right(backward, square));
  REQUIRE(!is_right(launch_unturned, square));
  REQUIRE(!is_right(launch_without_last_image, square));
  REQUIRE(!is_right(launch_without_beta, square));
}
