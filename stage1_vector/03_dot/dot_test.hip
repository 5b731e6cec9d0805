// Every version of the dot product on awkward sizes and alignments, exactly and within its bound.
#include "stage1_vector/03_dot/dot.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "common/blas.h"
#include "common/guarded.h"
#include "common/npy.h"
#include "common/random.h"
#include "common/testing.h"

namespace {

std::vector<float> random_floats(size_t n, std::uint32_t stream) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = random_numbers::uniform(7, stream, i);
  return values;
}

// Integers in [-3, 3]: their products' sums are exact in float in every order, so that an element
// that is missed or added twice can't pass as rounding.
std::vector<float> random_integers(size_t n, std::uint32_t stream) {
  std::vector<float> values = random_floats(n, stream);
  for (float& value : values) value = std::rint(3 * value);
  return values;
}

// The device memory of one dot product, guarded; x and y begin `offset_x` and `offset_y` elements
// behind a 16-byte boundary.
struct Problem {
  Problem(const std::vector<float>& x, const std::vector<float>& y, size_t offset_x = 0,
          size_t offset_y = 0)
      : n(x.size()),
        d_x(x, offset_x),
        d_y(y, offset_y),
        d_result(1, 0),
        d_partials(dot::kMaxBlocks, 0),
        d_finished(std::vector<unsigned>{0}, 0),
        want(dot::dot_cpu(x, y)) {}

  float run(const dot::Launch& version) {
    gpu::poison(d_result.data(), sizeof(float));
    version.run(d_result.data(), d_x.data(), d_y.data(), n, {d_partials.data(), d_finished.data()});
    return d_result.to_host()[0];
  }
  Comparison check(const dot::Launch& version, double bound) {
    const float got = run(version);
    Comparison result = compare(
        1, [&](size_t) { return got; }, [&](size_t) { return want.dot; },
        [&](size_t) { return bound; });
    result.ok = result.ok && d_x.intact() && d_y.intact() && d_result.intact() &&
                d_partials.intact() && d_finished.intact() && d_finished.to_host()[0] == 0;
    return result;
  }
  double bound(const dot::Launch& version) {
    const double roundings = version.roundings(dot::split_vectors(n, {d_x.data(), d_y.data()}));
    return dot::bound(roundings, static_cast<double>(n), want.absolute);
  }

  size_t n;
  Guarded<float> d_x, d_y, d_result, d_partials;
  Guarded<unsigned> d_finished;
  dot::Sums want;
};

bool same_bits(float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0; }

}  // namespace

TEST_CASE("every version adds every product once, at any size and alignment") {
  constexpr size_t kSizes[] = {0, 1, 2, 3, 4, 5, 7, 8, 255, 256, 257, 1003, 4099, (1 << 17) + 1};
  constexpr size_t kOffsets[][2] = {{0, 0}, {1, 1}, {3, 3}, {0, 1}, {2, 3}};
  for (const size_t n : kSizes) {
    const std::vector<float> x = random_integers(n, 0), y = random_integers(n, 1);
    for (const auto& offsets : kOffsets) {
      Problem problem(x, y, offsets[0], offsets[1]);
      for (const auto& version : dot::kVersions) {
        CAPTURE(version.name, n, offsets[0], offsets[1]);
        REQUIRE_OK(problem.check(version.launch, 0));
      }
    }
  }
}

TEST_CASE("every version stays within its bound") {
  for (const size_t n : {size_t{1}, size_t{1003}, size_t{(1 << 17) + 1}}) {
    for (const size_t offset : {size_t{0}, size_t{1}}) {
      Problem problem(random_floats(n, 0), random_floats(n, 1), 0, offset);
      for (const auto& version : dot::kVersions) {
        CAPTURE(version.name, n, offset);
        REQUIRE_OK(problem.check(version.launch, problem.bound(version.launch)));
      }
    }
  }
}

TEST_CASE("every version and the vendor's library agree with NumPy", "[numpy]") {
  const auto floats = [](const char* name) {
    const NpyArray array = read_npy(reference_path(name));
    return std::vector<float>(array.values.begin(), array.values.end());
  };
  Problem problem(floats("dot_x.npy"), floats("dot_y.npy"));
  const double want = read_npy(reference_path("dot_result.npy")).values.at(0);
  REQUIRE(std::fabs(problem.want.dot - want) <= 1e-12 * problem.want.absolute);
  for (const auto& version : dot::kVersions) {
    CAPTURE(version.name);
    REQUIRE_OK(problem.check(version.launch, problem.bound(version.launch)));
  }
  if (blas::available()) {
    blas::dot(problem.n, problem.d_x.data(), problem.d_y.data(), problem.d_result.data());
    const double n = static_cast<double>(problem.n);
    REQUIRE(std::fabs(static_cast<double>(problem.d_result.to_host()[0]) - want) <=
            dot::bound(n, n, problem.want.absolute));
  }
}

TEST_CASE("deterministic versions give the same bits 100 times") {
  Problem problem(random_floats(100003, 0), random_floats(100003, 1));
  for (const auto& version : dot::kVersions) {
    if (!version.launch.deterministic) continue;
    CAPTURE(version.name);
    const float first = problem.run(version.launch);
    for (int run = 1; run < 100; ++run) REQUIRE(same_bits(problem.run(version.launch), first));
  }
}

TEST_CASE("two_pass adds in an order that follows from n alone") {
  // The same additions on the host: 4 sums per thread, a tree per block, a tree over the blocks.
  // On integers every order gives the same sum, so the numbers here are chosen to round.
  constexpr size_t kSize = 4 * dot::kBlock * dot::kFixedBlocks * dot::kLoads + 1027;
  std::vector<float> x = random_floats(kSize, 0);
  const std::vector<float> y(kSize, 1.0f);  // products are exact, fused or not
  Problem problem(x, y);

  const auto tree = [](std::vector<float> sums) {
    for (size_t half = sums.size() / 2; half > 0; half /= 2)
      for (size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
    return sums[0];
  };
  constexpr size_t kThreads = size_t{dot::kFixedBlocks} * dot::kBlock;
  std::vector<float> partials;
  for (size_t block = 0; block < dot::kFixedBlocks; ++block) {
    std::vector<float> sums;
    for (size_t t = block * dot::kBlock; t < (block + 1) * dot::kBlock; ++t) {
      float sum[4] = {};
      for (size_t v = t; v < kSize / 4; v += kThreads)
        for (size_t k = 0; k < 4; ++k) sum[k] += x[4 * v + k];
      for (size_t s = t; s < kSize % 4; s += kThreads) sum[0] += x[kSize / 4 * 4 + s];
      sums.push_back((sum[0] + sum[1]) + (sum[2] + sum[3]));
    }
    partials.push_back(tree(sums));
  }
  std::vector<float> sums(dot::kBlock);
  for (size_t b = 0; b < partials.size(); ++b) sums[b % dot::kBlock] += partials[b];
  const float want = tree(sums);

  for (const auto& version : dot::kVersions)
    if (std::string(version.name) == "two_pass")
      REQUIRE(same_bits(problem.run(version.launch), want));
}

TEST_CASE("infinities and NaN reach the result") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> x = random_floats(1003, 0), y = random_floats(1003, 1);
  y[700] = 0.5f;
  for (const auto& version : dot::kVersions) {
    CAPTURE(version.name);
    x[700] = kInfinity;
    REQUIRE(Problem(x, y).run(version.launch) == kInfinity);
    x[700] = -kInfinity;
    REQUIRE(Problem(x, y).run(version.launch) == -kInfinity);
    x[700] = kNan;
    REQUIRE(std::isnan(Problem(x, y).run(version.launch)));
  }
}

// ---- What the checks above must catch ---------------------------------------------------------

namespace {

void launch_all_but_last(float* result, const float* x, const float* y, size_t n,
                         const dot::Workspace& workspace) {
  dot::launch_two_pass(result, x, y, n - 1, workspace);
}

void launch_without_clearing(float* result, const float* x, const float* y, size_t n,
                             const dot::Workspace&) {
  LAUNCH(dot::dot_atomic, static_cast<unsigned>(gpu::ceil_div(n, dot::kBlock)), dot::kBlock, 0,
         result, x, y, n);
}

}  // namespace

TEST_CASE("a missing product and an uncleared result are caught") {
  std::vector<float> x = random_integers(1003, 0), y = random_integers(1003, 1);
  x.back() = y.back() = 1.0f;
  Problem problem(x, y);
  REQUIRE(!problem.check({launch_all_but_last, dot::roundings_two_pass, true}, 0).ok);
  REQUIRE(!problem.check({launch_without_clearing, dot::roundings_atomic, false}, 0).ok);
}
