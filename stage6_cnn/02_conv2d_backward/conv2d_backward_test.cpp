// Every version of the gradients on awkward shapes, alignments and values, within its bound and
// exactly on integers.
#include "stage6_cnn/02_conv2d_backward/conv2d_backward.h"

#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "common/graph.h"
#include "stage6_cnn/01_conv2d/detail/windows.h"
#include "stage6_cnn/01_conv2d/layer_for_tests.h"
#include "stage6_cnn/01_conv2d/problem.h"
#include "stage6_cnn/02_conv2d_backward/detail/filter_sums.h"
#include "stage6_cnn/02_conv2d_backward/detail/kinds.h"
#include "stage6_cnn/02_conv2d_backward/problem.h"
#include "stage6_cnn/02_conv2d_backward/reference.h"

namespace {

using namespace conv2d_backward;
using conv2d::all_planes, conv2d::against, conv2d::kProblems, conv2d::make_exact;
using conv2d::poison, conv2d::text, conv2d::transforms;
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
        grad_y(make(size_of_y(p), 3)),
        before{make(size_of_w(p), 4), make(p.K, 5), {}} {}

  // With what a version may be off that goes through transformed tiles, or without.
  ExpectedGradients expected(float beta, bool in_tiles = false) const {
    ExpectedGradients to{grad_w_cpu(grad_y, x, p, beta, before.w, all_planes(p.K * p.C)),
                         grad_bias_cpu(grad_y, p, beta, before.bias),
                         grad_x_cpu(grad_y, w, p, all_planes(p.N * p.C))};
    if (in_tiles) add_winograd_error_of_x(to.x, grad_y, w, p, all_planes(p.N * p.C));
    return to;
  }
  Problem p;
  std::vector<float> x, w, grad_y;
  HostGradients before;
};

// The device memory of one layer, guarded; the arrays begin `offset` elements behind a 16-byte
// boundary.
struct Device {
  explicit Device(const Inputs& in, size_t offset = 0)
      : p(in.p),
        before(in.before),
        d_x(in.x, offset),
        d_w(in.w, offset),
        d_grad_y(in.grad_y, offset),
        d_grad_w(size_of_w(p), offset),
        d_grad_bias(p.K, offset),
        d_grad_x(size_of_x(p), offset),
        workspace(Workspace::for_all_versions(p)) {}

  Gradients gradients() { return {d_grad_w.data(), d_grad_bias.data(), d_grad_x.data()}; }

  // With beta = 0 the gradients are poisoned before the launch: it must not read them. That of x is
  // never read.
  void prepare(float beta) {
    const auto put = [&](Guarded<float>& gradient, const std::vector<float>& old) {
      if (beta == 0)
        poison(gradient);
      else if (!old.empty())
        HIP_CHECK(hipMemcpy(gradient.data(), old.data(), old.size() * sizeof(float),
                            hipMemcpyHostToDevice));
    };
    put(d_grad_w, before.w), put(d_grad_bias, before.bias), poison(d_grad_x);
  }
  void launch(Run version, float beta, hipStream_t stream) {
    version(gradients(), d_grad_y.data(), d_x.data(), d_w.data(), p, beta, workspace, stream);
  }
  HostGradients run(Run version, float beta, hipStream_t stream = nullptr) {
    prepare(beta);
    launch(version, beta, stream);
    HIP_CHECK(hipStreamSynchronize(stream));
    return result();
  }
  HostGradients result() const {
    return {d_grad_w.to_host(), d_grad_bias.to_host(), d_grad_x.to_host()};
  }
  bool intact() const {
    for (const Guarded<float>* array : {&d_x, &d_w, &d_grad_y, &d_grad_w, &d_grad_bias, &d_grad_x})
      if (!array->intact()) return false;
    return true;
  }

  Problem p;
  HostGradients before;
  Guarded<float> d_x, d_w, d_grad_y, d_grad_w, d_grad_bias, d_grad_x;
  Workspace workspace;
};

void require_right(Run launch, const Inputs& in, size_t offset, float beta,
                   const ExpectedGradients& want) {
  Device device(in, offset);
  const HostGradients got = device.run(launch, beta);
  REQUIRE_OK(against(got.w, want.w));
  REQUIRE_OK(against(got.bias, want.bias));
  REQUIRE_OK(against(got.x, want.x));
  REQUIRE(device.intact());
}

}  // namespace

TEST_CASE("any shape and alignment stays within its bound, overwriting and adding") {
  for (const Problem& p : kProblems) {
    const Inputs in(p);
    for (const float beta : {0.0f, 1.0f}) {
      const ExpectedGradients want[] = {in.expected(beta), in.expected(beta, fits_winograd(p))};
      for (const auto& version : testing::chosen(kVersions))
        for (const size_t offset : {size_t{0}, size_t{1}}) {
          CAPTURE(version.name, text(p), offset, beta);
          require_right(version.launch.run, in, offset, beta, want[transforms(version.launch, p)]);
        }
    }
  }
}

TEST_CASE("sums of integers are exact: nothing is missed, doubled or in another's place") {
  for (const Problem& p :
       {Problem{3, 5, 11, 9, 17, 3, 3, 1, 1, 1, 1}, Problem{2, 3, 12, 11, 9, 4, 3, 2, 3, 2, 1},
        Problem{3, 17, 13, 15, 33, 3, 3, 1, 1, 0, 2}}) {
    Inputs in(p, random_integers);
    in.w = conv2d::exact_filters(size_of_w(p), 1, conv2d::kExactFilter);
    ExpectedGradients want = in.expected(1);
    make_exact(want.w), make_exact(want.bias), make_exact(want.x);
    for (const auto& version : testing::chosen(kVersions)) {
      CAPTURE(version.name, text(p));
      require_right(version.launch.run, in, 3, 1, want);
    }
  }
}

TEST_CASE("every tile of the filters' gradient is right, in one slice and in three") {
  for (const Problem& p :
       {Problem{2, 3, 9, 8, 19, 3, 3, 1, 1, 1, 1}, Problem{2, 5, 9, 8, 71, 2, 3, 1, 2, 1, 0}}) {
    const Inputs in(p, random_integers);
    Device device(in);
    ExpectedGradients want = in.expected(0);
    make_exact(want.w);
    for (const FilterTile& tile : filter_tiles())
      for (const int slices : {1, 3}) {
        CAPTURE(tile.filters, tile.elements, slices, text(p));
        gpu::DeviceBuffer<float> sums(static_cast<size_t>(slices) * size_of_w(p));
        sums.poison();
        FilterSums of{};
        of.grad_y = device.d_grad_y.data(), of.x = device.d_x.data();
        of.g = conv2d::geometry_of(p);
        of.sums.M = p.K, of.sums.N = of.sums.ldc = window_of(p), of.sums.c = sums.data();
        of.sums.stride_c = size_of_w(p);
        of.pixels = static_cast<int>(p.N) * of.g.pixels();
        of.share = of.pixels / slices + tile.pixels;
        of.share -= of.share % tile.pixels;
        of.by_pixels = conv2d::Divisor(of.g.pixels()), of.by_cols = conv2d::Divisor(of.g.Q);
        tile.launch(of, static_cast<size_t>(slices), nullptr);
        const std::vector<float> parts = sums.to_host();
        std::vector<float> grad_w(size_of_w(p));
        for (size_t i = 0; i < parts.size(); ++i) grad_w[i % grad_w.size()] += parts[i];
        REQUIRE_OK(against(grad_w, want.w));
      }
  }
}

TEST_CASE("the gradients agree with NumPy", "[numpy]") {
  using conv2d::numpy_floats, conv2d::numpy_values;
  const auto require_same = [&](const std::string& name, const Problem& p) {
    Inputs in(p);
    in.x = numpy_floats(name + "_x"), in.w = numpy_floats(name + "_w");
    in.grad_y = numpy_floats(name + "_grad_y");
    for (const auto& version : testing::chosen(kVersions)) {
      CAPTURE(version.name, name);
      ExpectedGradients want = in.expected(0, transforms(version.launch, p));
      want.w.value = numpy_values(name + "_grad_w");
      want.bias.value = numpy_values(name + "_grad_bias");
      want.x.value = numpy_values(name + "_grad_x");
      require_right(version.launch.run, in, 0, 0, want);
    }
  };
  require_same("any", {3, 5, 11, 9, 7, 4, 2, 3, 2, 2, 1});
  require_same("three", {5, 3, 8, 7, 9, 3, 3, 1, 1, 1, 1});
}

TEST_CASE("NaN of an output's gradient stays with its filter, or with its neighbourhood") {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const Problem p{2, 3, 6, 7, 5, 3, 3, 1, 1, 1, 1};
  Inputs in(p);
  in.grad_y[(p.K + 3) * 42 + 3 * 7 + 2] = kNan;  // image 1, filter 3, a pixel with neighbours
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    if (transforms(version.launch, p)) continue;  // there it reaches the whole tile
    const HostGradients got = Device(in).run(version.launch.run, 0);
    for (size_t i = 0; i < got.w.size(); ++i) REQUIRE(std::isnan(got.w[i]) == (i / (p.C * 9) == 3));
    for (size_t i = 0; i < got.bias.size(); ++i) REQUIRE(std::isnan(got.bias[i]) == (i == 3));
    for (size_t i = 0; i < got.x.size(); ++i) {
      const size_t row = i / 7 % 6, col = i % 7;
      const bool is_near = row + 1 >= 3 && row <= 4 && col + 1 >= 2 && col <= 3;
      REQUIRE(std::isnan(got.x[i]) == (i >= got.x.size() / 2 && is_near));
    }
  }
}

TEST_CASE("launches of few images give the same as one of all") {
  const Problem p{7, 3, 5, 6, 4, 3, 3, 1, 1, 1, 1};
  const Inputs in(p, random_integers);
  Device device(in);
  for (const size_t images : {1, 2, 6})
    for (const float beta : {0.0f, 1.0f}) {
      CAPTURE(images, beta);
      device.prepare(beta);
      launch_grad_w({device.d_grad_w.data(), device.d_grad_bias.data(), nullptr},
                    device.d_grad_y.data(), device.d_x.data(), p, beta, device.workspace, 8,
                    nullptr, images * 30);
      ExpectedGradients want = in.expected(beta);
      make_exact(want.w), make_exact(want.bias);
      REQUIRE_OK(against(device.d_grad_w.to_host(), want.w));
      REQUIRE_OK(against(device.d_grad_bias.to_host(), want.bias));
    }
  const HostGradients want = device.run(launch_winograd, 1);
  for (const size_t images : {1, 2, 3}) {
    device.workspace.tiles =
        gpu::DeviceBuffer<float>(conv2d::transformed_filters(p.C, p.K) + 5 +
                                 images * conv2d::tiles_per_image(p.C, p.K, p.H, p.W));
    REQUIRE(device.run(launch_winograd, 1) == want);
  }
}

TEST_CASE("a gradient that nobody wants is left alone") {
  const Inputs in({3, 4, 6, 5, 7, 3, 3, 1, 1, 1, 1});
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    Device device(in);
    const HostGradients want = device.run(version.launch.run, 0);
    for (int wanted = 0; wanted < 8; ++wanted) {
      CAPTURE(wanted);
      for (Guarded<float>* array : {&device.d_grad_w, &device.d_grad_bias, &device.d_grad_x})
        poison(*array);
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

TEST_CASE("slices need no more memory than the workspace has") {
  const Inputs in({9, 2, 9, 7, 5, 3, 3, 1, 1, 1, 1}, random_integers);
  ExpectedGradients want = in.expected(1);
  make_exact(want.w), make_exact(want.bias);
  const size_t stride = size_of_w(in.p) + in.p.K;
  for (const size_t room : {1, 2, 3, 100}) {
    CAPTURE(room);
    Device device(in);
    device.workspace.slices = gpu::DeviceBuffer<float>(room * stride + 1);
    const HostGradients got = device.run(backward, 1);
    REQUIRE_OK(against(got.w, want.w));
    REQUIRE_OK(against(got.bias, want.bias));
  }
  Device device(in);
  device.workspace.slices = gpu::DeviceBuffer<float>(stride - 1);
  REQUIRE_THROWS_AS(device.run(backward, 1), std::invalid_argument);
}

TEST_CASE("every run gives the same bits, on any stream and from a graph") {
  const Inputs in({9, 3, 11, 10, 17, 3, 3, 1, 1, 1, 1});
  const gpu::Stream stream;
  Device device(in);
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    const HostGradients first = device.run(version.launch.run, 0);
    for (int run = 0; run < 3; ++run) REQUIRE(device.run(version.launch.run, 0, stream) == first);
    device.prepare(0);
    testing::run_captured(
        [&](hipStream_t captured) { device.launch(version.launch.run, 0, captured); });
    REQUIRE(device.result() == first);
  }
}

TEST_CASE("arrays that are missing are refused") {
  const Inputs in({2, 3, 5, 5, 4, 3, 3, 1, 1, 1, 1});
  Device d(in);
  const float *const x = d.d_x.data(), *const w = d.d_w.data(), *const y = d.d_grad_y.data();
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    const auto launch = [&](const float* grad_y, const float* from, const float* filter) {
      version.launch.run(d.gradients(), grad_y, from, filter, in.p, 0, d.workspace, nullptr);
    };
    REQUIRE_THROWS_AS(launch(nullptr, x, w), std::invalid_argument);
    REQUIRE_THROWS_AS(launch(y, nullptr, w), std::invalid_argument);
    REQUIRE_THROWS_AS(launch(y, x, nullptr), std::invalid_argument);
  }
  d.workspace.tiles = gpu::DeviceBuffer<float>(100);
  REQUIRE_THROWS_AS(d.run(launch_winograd, 0), std::invalid_argument);
}

// ---- What the checks above must catch ---------------------------------------------------------

namespace {

// The filter as it lies, not turned.
void launch_unturned(const Gradients& to, const float* grad_y, const float* x, const float* w,
                     const Problem& p, float beta, Workspace& workspace, hipStream_t stream) {
  launch_grad_w(to, grad_y, x, p, beta, workspace, 1, stream);
  const Geometry g = conv2d::geometry_of(p);
  Windows windows = windows_of_kind(to.x, grad_y, w, g, kind_of(0, g.H, g.R, 1, g.pad_h),
                                    kind_of(0, g.W, g.S, 1, g.pad_w));
  windows.filter = w, windows.filter_row = g.S, windows.filter_col = 1;
  conv2d::launch_right_tile(windows, p.N, conv2d::BiasLinear{nullptr}, stream);
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

bool is_right(Run launch, const Inputs& in) {
  const HostGradients got = Device(in).run(launch, 1);
  const ExpectedGradients want = in.expected(1);
  return against(got.w, want.w).ok && against(got.bias, want.bias).ok && against(got.x, want.x).ok;
}

}  // namespace

TEST_CASE("planted mistakes are caught", "[harness]") {
  const Inputs in({3, 4, 9, 9, 6, 3, 3, 1, 1, 1, 1});
  REQUIRE(is_right(backward, in));
  REQUIRE(!is_right(launch_unturned, in));
  REQUIRE(!is_right(launch_without_last_image, in));
  REQUIRE(!is_right(launch_without_beta, in));
}
