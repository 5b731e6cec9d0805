// Every version of the convolution on awkward shapes, alignments and values, within its bound and
// exactly on integers.
#include "stage6_cnn/01_conv2d/conv2d.h"

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/graph.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage4_forward/01_dense/dense.h"
#include "stage6_cnn/01_conv2d/detail/windows.h"
#include "stage6_cnn/01_conv2d/layer_for_tests.h"
#include "stage6_cnn/01_conv2d/problem.h"

namespace conv2d_test {

void launch_few_images(float* y, const float* x, const float* w, const float* bias,
                       const conv2d::Problem& p, size_t most);

}  // namespace conv2d_test

namespace {

using namespace conv2d;
using activations::Relu;
using dense::Linear;
using testing::random_floats;
using testing::random_integers;

struct Inputs {
  using Make = std::vector<float> (*)(size_t n, std::uint32_t stream);
  explicit Inputs(const Problem& sizes, Make make = random_floats)
      : p(sizes), x(make(size_of_x(p), 0)), w(make(size_of_w(p), 1)), bias(make(p.K, 2)) {}

  // With what a version may be off that goes through transformed tiles, or without.
  template <class Activation>
  Values expected(bool with_bias = true, bool in_tiles = false) const {
    Values y = conv2d_cpu<Activation>(x, w, with_bias ? bias : std::vector<float>(), p,
                                      all_planes(p.N * p.K));
    if (in_tiles) add_winograd_error_of_y(y, x, w, p, all_planes(p.N * p.K));
    return y;
  }
  Problem p;
  std::vector<float> x, w, bias;
};

// The device memory of one layer, guarded; the arrays begin `offset` elements behind a 16-byte
// boundary.
struct Device {
  explicit Device(const Inputs& in, size_t offset = 0)
      : p(in.p),
        d_x(in.x, offset),
        d_w(in.w, offset),
        d_bias(in.bias, offset),
        d_y(size_of_y(p), offset),
        workspace(Workspace::for_all_versions(p)) {}

  std::vector<float> run(Run launch, bool with_bias = true, hipStream_t stream = nullptr) {
    poison(d_y);
    launch(d_y.data(), d_x.data(), d_w.data(), with_bias ? d_bias.data() : nullptr, p, workspace,
           stream);
    HIP_CHECK(hipStreamSynchronize(stream));
    return d_y.to_host();
  }
  Windows windows() { return windows_of(d_y.data(), d_x.data(), d_w.data(), p); }
  bool intact() const { return d_x.intact() && d_w.intact() && d_bias.intact() && d_y.intact(); }

  Problem p;
  Guarded<float> d_x, d_w, d_bias, d_y;
  Workspace workspace;
};

void require_right(Run launch, const Inputs& in, size_t offset, const Values& want,
                   bool with_bias = true) {
  Device device(in, offset);
  REQUIRE_OK(against(device.run(launch, with_bias), want));
  REQUIRE(device.intact());
}

}  // namespace

TEST_CASE("any shape and alignment stays within its bound, with and without a bias") {
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
          require_right(version.launch.run, in, offset, relu[transforms(version.launch, p)],
                        with_bias);
        }
        require_right(forward<Linear>, in, offset, linear, with_bias);
      }
    }
  }
}

TEST_CASE("sums of integers are exact: nothing is missed, doubled or in another's place") {
  for (const Problem& p :
       {Problem{3, 5, 11, 9, 17, 3, 3, 1, 1, 1, 1}, Problem{2, 3, 12, 11, 9, 4, 3, 2, 3, 2, 1},
        Problem{3, 17, 13, 15, 33, 3, 3, 1, 1, 0, 2}}) {
    Inputs in(p, random_integers);
    in.w = exact_filters(size_of_w(p), 1, kExactFilter);
    Values y = in.expected<Linear>();
    make_exact(y);
    for (const auto& version : testing::chosen(kVersions<Linear>)) {
      CAPTURE(version.name, text(p));
      require_right(version.launch.run, in, 3, y);
    }
  }
}

TEST_CASE("every tile is right, for windows that the compiler knows and for others") {
  for (const Problem& p :
       {Problem{2, 3, 9, 8, 19, 3, 3, 1, 1, 1, 1}, Problem{2, 5, 9, 8, 71, 2, 3, 1, 2, 1, 0}}) {
    const Inputs in(p, random_integers);
    Values y = in.expected<Linear>();
    make_exact(y);
    Device device(in);
    for (const WindowTile<BiasLinear>& tile : window_tiles<BiasLinear>()) {
      CAPTURE(tile.maps, tile.pixels, text(p));
      poison(device.d_y);
      tile.launch(device.windows(), p.N, BiasLinear{device.d_bias.data()}, nullptr);
      REQUIRE_OK(against(device.d_y.to_host(), y));
      REQUIRE(device.intact());
    }
  }
}

TEST_CASE("the convolution agrees with NumPy", "[numpy]") {
  const auto require_same = [&](const std::string& name, const Problem& p) {
    Inputs in(p);
    in.x = numpy_floats(name + "_x"), in.w = numpy_floats(name + "_w");
    in.bias = numpy_floats(name + "_bias");
    Values linear = in.expected<Linear>();
    linear.value = numpy_values(name + "_linear");
    require_right(forward<Linear>, in, 0, linear);
    for (const auto& version : testing::chosen(kVersions<Relu>)) {
      CAPTURE(version.name, name);
      Values relu = in.expected<Relu>(true, transforms(version.launch, p));
      relu.value = numpy_values(name + "_relu");
      require_right(version.launch.run, in, 0, relu);
    }
  };
  require_same("any", {3, 5, 11, 9, 7, 4, 2, 3, 2, 2, 1});
  require_same("three", {5, 3, 8, 7, 9, 3, 3, 1, 1, 1, 1});
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
      if (transforms(version.launch, p)) continue;  // there it reaches the whole tile
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

TEST_CASE("NaN of a filter or of a bias stays with its filter") {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const Problem p{2, 3, 6, 7, 5, 3, 3, 1, 1, 1, 1};
  Inputs in(p);
  in.w[(2 * p.C + 1) * 9 + 4] = kNan, in.bias[4] = kNan;  // the middle of filter 2
  for (const auto& version : testing::chosen(kVersions<Linear>)) {
    CAPTURE(version.name);
    const std::vector<float> y = Device(in).run(version.launch.run);
    for (size_t i = 0; i < y.size(); ++i) {
      const size_t k = i / 42 % p.K;
      REQUIRE(std::isnan(y[i]) == (k == 2 || k == 4));
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
    if (transforms(version.launch, p)) continue;  // which subtract infinite numbers
    const std::vector<float> y = Device(in).run(version.launch.run);
    for (size_t i = 0; i < y.size(); ++i) {
      CAPTURE(i, y[i]);
      REQUIRE(!std::isnan(y[i]));
      REQUIRE(std::isinf(y[i]) == (i / (y.size() / p.N / p.K) % p.K == 2));
    }
  }
}

// Only the tests of all versions ask for it: a learner's `direct` may as well leave the zeros of
// the padding out.
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
      if (of_filter && !transforms(version.launch, p)) REQUIRE(std::isnan(y[i]) == over_padding);
    }
  }
}

TEST_CASE("launches of few images give the same as one of all") {
  const Problem p{7, 3, 5, 6, 4, 3, 3, 1, 1, 1, 1};
  const Inputs in(p, random_integers);
  Device device(in);
  const std::vector<float> y = device.run(launch_right_tile<Linear>);
  for (const size_t images : {1, 2, 6}) {
    CAPTURE(images);
    poison(device.d_y);
    conv2d_test::launch_few_images(device.d_y.data(), device.d_x.data(), device.d_w.data(),
                                   device.d_bias.data(), p, images * 30);
    REQUIRE(device.d_y.to_host() == y);
  }
  for (const size_t images : {1, 3}) {
    device.workspace.columns = gpu::DeviceBuffer<float>(images * columns_per_image(p) + 5);
    REQUIRE(device.run(launch_im2col<Linear>) == y);
  }
  // What transformed tiles add up for an image is the same, too.
  const std::vector<float> transformed = device.run(launch_winograd<Linear>);
  for (const size_t images : {1, 2, 3}) {
    device.workspace.tiles = gpu::DeviceBuffer<float>(transformed_filters(p.C, p.K) + 5 +
                                                      images * tiles_per_image(p.C, p.K, p.H, p.W));
    REQUIRE(device.run(launch_winograd<Linear>) == transformed);
  }
}

TEST_CASE("every run gives the same bits, on any stream and from a graph") {
  const Inputs in({9, 3, 11, 10, 17, 3, 3, 1, 1, 1, 1});
  const gpu::Stream stream;
  Device device(in);
  for (const auto& version : testing::chosen(kVersions<Relu>)) {
    CAPTURE(version.name);
    const std::vector<float> first = device.run(version.launch.run);
    REQUIRE(device.run(version.launch.run, true, stream) == first);
    testing::require_same_in_graph([&] { poison(device.d_y); },
                                   [&](hipStream_t captured) {
                                     version.launch.run(device.d_y.data(), device.d_x.data(),
                                                        device.d_w.data(), device.d_bias.data(),
                                                        in.p, device.workspace, captured);
                                   },
                                   [&] { return device.d_y.to_host(); });
  }
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
    REQUIRE_THROWS_WITH(launch(nullptr, x, w, in.p), "conv2d: y is null");
    REQUIRE_THROWS_WITH(launch(y, nullptr, w, in.p), "conv2d: x is null");
    REQUIRE_THROWS_WITH(launch(y, x, nullptr, in.p), "conv2d: w is null");
    REQUIRE_THROWS_AS(launch(y, x, w, {2, 3, 5, 5, 4, 8, 3, 1, 1, 1, 1}), std::invalid_argument);
    REQUIRE_NOTHROW(launch(y, nullptr, nullptr, {2, 0, 5, 5, 4, 3, 3, 1, 1, 1, 1}));
  }
  d.workspace.columns = gpu::DeviceBuffer<float>(columns_per_image(in.p) - 1);
  REQUIRE_THROWS_AS(d.run(launch_im2col<Relu>), std::invalid_argument);
  d.workspace.tiles = gpu::DeviceBuffer<float>(100);
  REQUIRE_THROWS_AS(d.run(launch_winograd<Relu>), std::invalid_argument);
}

TEST_CASE("windows of no images, maps, rows or columns write nothing") {
  const Inputs in({2, 3, 5, 6, 4, 3, 3, 1, 1, 1, 1});
  Device device(in);
  poison(device.d_y);
  const auto launch = [&](const Windows& windows, size_t images) {
    const BiasLinear epilogue{device.d_bias.data()};
    launch_right_tile(windows, images, epilogue, nullptr);
    launch_winograd(windows, images, epilogue, device.workspace.tiles.data(),
                    device.workspace.tiles.size(), nullptr);
  };
  REQUIRE_NOTHROW(launch(device.windows(), 0));
  for (int Windows::*size : {&Windows::maps, &Windows::rows, &Windows::cols}) {
    Windows windows = device.windows();
    windows.*size = 0;
    REQUIRE_NOTHROW(launch(windows, in.p.N));
  }
  for (const float value : device.d_y.to_host()) REQUIRE(is_poison(value));
  REQUIRE(device.intact());
}

// ---- What the checks above must catch ---------------------------------------------------------

namespace {

// Descriptions of the sums with a mistake, run by the kernels of the versions.
enum class Mistake {
  none,
  no_padding,
  swapped_strides,
  first_channels_filter,
  neighbours_bias,
  next_weight
};

bool is_right(const Inputs& in, Mistake mistake, bool in_tiles = false) {
  Device device(in);
  poison(device.d_y);
  Windows windows = device.windows();
  if (mistake == Mistake::no_padding) windows.first_h = windows.first_w = 0;
  if (mistake == Mistake::swapped_strides) std::swap(windows.step_h, windows.step_w);
  if (mistake == Mistake::next_weight) windows.filter += 1;
  if (mistake == Mistake::first_channels_filter) windows.filter_channel = 0;
  const BiasLinear epilogue{device.d_bias.data() + (mistake == Mistake::neighbours_bias)};
  if (in_tiles)
    launch_winograd(windows, in.p.N, epilogue, device.workspace.tiles.data(),
                    device.workspace.tiles.size(), nullptr);
  else
    launch_right_tile(windows, in.p.N, epilogue, nullptr);
  return against(device.d_y.to_host(), in.expected<Linear>(true, in_tiles)).ok;
}

}  // namespace

TEST_CASE("planted mistakes are caught", "[harness]") {
  // One filter more than is used, so that its neighbour's bias and weights are there.
  Inputs in({3, 4, 9, 9, 6, 3, 3, 2, 1, 1, 1});
  in.w.push_back(0.5f), in.bias.push_back(0.5f);
  REQUIRE(is_right(in, Mistake::none));
  for (const Mistake mistake :
       {Mistake::no_padding, Mistake::swapped_strides, Mistake::first_channels_filter,
        Mistake::neighbours_bias, Mistake::next_weight})
    REQUIRE(!is_right(in, mistake));
  Inputs square({3, 4, 9, 9, 6, 3, 3, 1, 1, 1, 1});
  square.w.push_back(0.5f), square.bias.push_back(0.5f);
  REQUIRE(is_right(square, Mistake::none, true));
  for (const Mistake mistake : {Mistake::no_padding, Mistake::first_channels_filter,
                                Mistake::neighbours_bias, Mistake::next_weight})
    REQUIRE(!is_right(square, mistake, true));
}
