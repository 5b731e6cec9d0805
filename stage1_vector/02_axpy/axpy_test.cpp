// Every version of y = alpha * x and y = alpha * x + y on awkward sizes and alignments.
#include "stage1_vector/02_axpy/axpy.h"

#include <limits>
#include <vector>

#include "common/blas.h"
#include "common/guarded.h"
#include "common/npy.h"
#include "common/testing.h"
#include "stage1_vector/01_vector_add/few_blocks_for_tests.h"
#include "stage1_vector/02_axpy/reference.h"

using testing::random_floats;

namespace {

using Function = axpy::Launch::Function;

std::vector<float> read_floats(const char* name) { return read_npy(reference_path(name)).floats(); }

// Where x and y begin, in elements behind a 16-byte boundary.
struct Offsets {
  size_t x, y;
};

// Launches on guarded arrays and compares with the reference; a write outside y is a failure too.
Comparison check_scale(Function launch, float alpha, const std::vector<float>& x, Offsets offsets) {
  Guarded<float> d_x(x, offsets.x), d_y(x.size(), offsets.y);
  launch(d_y.data(), alpha, d_x.data(), x.size(), nullptr);
  const std::vector<double> want = axpy::scale_cpu(alpha, x);
  const std::vector<float> got = d_y.to_host();
  Comparison result = compare(
      got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want[i]; },
      [&](size_t i) { return axpy::bound(0, want[i]); });
  result.ok = result.ok && d_x.intact() && d_y.intact();
  return result;
}

Comparison check_axpy(Function launch, float alpha, const std::vector<float>& x,
                      const std::vector<float>& y, Offsets offsets) {
  Guarded<float> d_x(x, offsets.x), d_y(y, offsets.y);
  launch(d_y.data(), alpha, d_x.data(), x.size(), nullptr);
  const std::vector<double> want = axpy::axpy_cpu(alpha, x, y);
  const std::vector<float> got = d_y.to_host();
  Comparison result = compare(
      got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want[i]; },
      [&](size_t i) {
        return axpy::bound(static_cast<double>(alpha) * static_cast<double>(x[i]), want[i]);
      });
  result.ok = result.ok && d_x.intact() && d_y.intact();
  return result;
}

}  // namespace

TEST_CASE("every version scales and adds at any size, alignment and alpha") {
  constexpr size_t kLarge = (size_t{1} << 20) + 1;
  constexpr size_t kSizes[] = {0, 1, 2, 3, 4, 5, 7, 8, 255, 256, 257, 1003, 4099, kLarge};
  constexpr Offsets kOffsets[] = {{0, 0}, {1, 1}, {3, 3}, {0, 1}, {2, 3}};
  for (const size_t n : kSizes) {
    const std::vector<float> x = random_floats(n, 0), y = random_floats(n, 1);
    for (const auto& version : testing::chosen(axpy::kVersions))
      for (const Offsets& offsets : kOffsets)
        for (const float alpha : {-1.7f, 0.0f, 1e-30f}) {
          if (n == kLarge && (alpha != -1.7f || offsets.x != 1)) continue;
          CAPTURE(version.name, n, offsets.x, offsets.y, alpha);
          REQUIRE_OK(check_scale(version.launch.scale, alpha, x, offsets));
          REQUIRE_OK(check_axpy(version.launch.axpy, alpha, x, y, offsets));
        }
  }
}

TEST_CASE("the loops over the grid work for any number of blocks") {
  const std::vector<float> x = random_floats(5003, 0), y = random_floats(5003, 1);
  for (const size_t blocks : {1, 2, 3}) {
    const vector_add::FewBlocks few(blocks);
    for (const Offsets& offsets : {Offsets{0, 0}, Offsets{2, 2}, Offsets{0, 1}})
      for (const auto& version : testing::chosen(axpy::kVersions)) {
        CAPTURE(version.name, blocks, offsets.x, offsets.y);
        const Comparison sum = check_axpy(version.launch.axpy, -1.7f, x, y, offsets);
        REQUIRE_OK(sum);
      }
  }
}

TEST_CASE("x may be scaled in place") {
  const std::vector<float> x = random_floats(1003, 0);
  for (const auto& version : testing::chosen(axpy::kVersions)) {
    CAPTURE(version.name);
    Guarded<float> d_x(x, 1);
    version.launch.scale(d_x.data(), -1.7f, d_x.data(), x.size(), nullptr);
    const std::vector<float> got = d_x.to_host();
    REQUIRE_OK(compare(
        x.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return -1.7f * x[i]; },
        [](size_t) { return 0.0; }));
  }
}

TEST_CASE("every version and the vendor's library agree with NumPy", "[numpy]") {
  const std::vector<float> x = read_floats("axpy_x.npy"), y = read_floats("axpy_y.npy");
  const float alpha = read_floats("axpy_alpha.npy").at(0);
  const std::vector<double> scaled = read_npy(reference_path("axpy_scaled.npy")).values;
  const std::vector<double> sum = read_npy(reference_path("axpy_result.npy")).values;
  REQUIRE(x.size() > 0);
  const auto near = [&](Guarded<float>& array, const std::vector<double>& want) {
    const std::vector<float> got = array.to_host();
    return compare(
        got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want[i]; },
        [&](size_t i) { return axpy::bound(scaled[i], want[i]); });
  };
  for (const auto& version : testing::chosen(axpy::kVersions)) {
    CAPTURE(version.name);
    Guarded<float> d_x(x, 0), d_scaled(x.size(), 0), d_sum(y, 0);
    version.launch.scale(d_scaled.data(), alpha, d_x.data(), x.size(), nullptr);
    version.launch.axpy(d_sum.data(), alpha, d_x.data(), x.size(), nullptr);
    REQUIRE_OK(near(d_scaled, scaled));
    REQUIRE_OK(near(d_sum, sum));
  }
  if (blas::available()) {
    Guarded<float> d_x(x, 0), d_scaled(x, 0), d_sum(y, 0);
    blas::scal(x.size(), alpha, d_scaled.data());
    blas::axpy(x.size(), alpha, d_x.data(), d_sum.data());
    REQUIRE_OK(near(d_scaled, scaled));
    REQUIRE_OK(near(d_sum, sum));
  }
}

TEST_CASE("infinities and NaN go through as IEEE 754 says") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> specials = {0.0f, 1.5f, -kInfinity, kInfinity, kNan};
  std::vector<float> x, y;
  for (const float first : specials)
    for (const float second : specials) x.push_back(first), y.push_back(second);
  for (const auto& version : testing::chosen(axpy::kVersions))
    for (const float alpha : {0.0f, -2.0f, kInfinity, kNan}) {
      CAPTURE(version.name, alpha);
      REQUIRE_OK(check_scale(version.launch.scale, alpha, x, {0, 0}));
      REQUIRE_OK(check_axpy(version.launch.axpy, alpha, x, y, {0, 0}));
    }
}

// ---- What the checks above must catch ---------------------------------------------------------

namespace {

void launch_nothing(float*, float, const float*, size_t, hipStream_t) {}

void launch_last_twice(float* y, float alpha, const float* x, size_t n, hipStream_t stream) {
  axpy::launch_naive_axpy(y, alpha, x, n, stream);
  axpy::launch_naive_axpy(y + n - 1, alpha, x + n - 1, 1, stream);
}

}  // namespace

TEST_CASE("an update that is forgotten or done twice is caught", "[harness]") {
  const std::vector<float> x = random_floats(300, 0), y = random_floats(300, 1);
  REQUIRE(!check_axpy(launch_nothing, -1.7f, x, y, {0, 0}).ok);
  REQUIRE(!check_scale(launch_nothing, -1.7f, x, {0, 0}).ok);
  const Comparison twice = check_axpy(launch_last_twice, -1.7f, x, y, {0, 0});
  REQUIRE(!twice.ok);
  REQUIRE(twice.failed == 1);
  REQUIRE(twice.index == 299);
}

TEST_CASE("the program's check refuses missing, doubled and swapped terms", "[harness]") {
  const std::vector<float> x = random_floats(20011, 0), y = random_floats(20011, 1);
  const double alpha = -0.9990234375;
  const auto product = [&](size_t i) { return alpha * static_cast<double>(x[i]); };
  const std::vector<double> scaled = axpy::scale_cpu(alpha, x);  // of one term each
  testing::require_refusals(
      scaled, [&](size_t i) { return axpy::bound(0, scaled[i]); }, 1, product);
  const std::vector<double> sum = axpy::axpy_cpu(alpha, x, y);
  testing::require_refusals(
      sum, [&](size_t i) { return axpy::bound(product(i), sum[i]); }, 1, product);
}

TEST_CASE("every version may be recorded in a graph") {
  const std::vector<float> x = random_floats(1003, 0), y = random_floats(1003, 1);
  Guarded<float> d_x(x, 0), d_y(y, 0);
  const auto reset = [&] {
    HIP_CHECK(hipMemcpy(d_y.data(), y.data(), y.size() * sizeof(float), hipMemcpyHostToDevice));
  };
  const auto read = [&] { return d_y.to_host(); };
  for (const auto& version : testing::chosen(axpy::kVersions)) {
    CAPTURE(version.name);
    testing::require_same_in_graph(
        reset,
        [&](hipStream_t stream) {
          version.launch.scale(d_y.data(), -1.7f, d_x.data(), x.size(), stream);
        },
        read);
    testing::require_same_in_graph(
        reset,
        [&](hipStream_t stream) {
          version.launch.axpy(d_y.data(), -1.7f, d_x.data(), x.size(), stream);
        },
        read, false);
  }
}
