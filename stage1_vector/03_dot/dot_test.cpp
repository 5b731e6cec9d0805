// Every version of the dot product on awkward sizes and alignments, exactly and within its bound.
#include "stage1_vector/03_dot/dot.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "common/blas.h"
#include "common/device_buffer.h"
#include "common/guarded.h"
#include "common/npy.h"
#include "common/random.h"
#include "common/testing.h"
#include "stage1_vector/03_dot/detail/grid.h"
#include "stage1_vector/03_dot/reference.h"

using testing::random_floats;
using testing::random_integers;
using testing::same_bits;

namespace {

// The device memory of one dot product, guarded; x and y begin `offset_x` and `offset_y` elements
// behind a 16-byte boundary.
struct Problem {
  Problem(const std::vector<float>& x, const std::vector<float>& y, size_t offset_x = 0,
          size_t offset_y = 0)
      : n(x.size()),
        d_x(x, offset_x),
        d_y(y, offset_y),
        d_result(1, 0),
        d_workspace(std::vector<unsigned>(dot::workspace_bytes(n) / sizeof(unsigned)), 0),
        want(dot::dot_cpu(x, y)) {}

  float run(const dot::Launch& version) {
    gpu::poison(d_result.data(), sizeof(float));
    version.run(d_result.data(), d_x.data(), d_y.data(), n, d_workspace.data(), nullptr);
    return d_result.to_host()[0];
  }
  Comparison check(const dot::Launch& version, double bound) {
    const float got = run(version);
    Comparison result = compare(
        1, [&](size_t) { return got; }, [&](size_t) { return want.value; },
        [&](size_t) { return bound; });
    result.ok = result.ok && d_x.intact() && d_y.intact() && d_result.intact() &&
                d_workspace.intact() && d_workspace.to_host()[0] == 0;
    return result;
  }
  double bound(const dot::Launch& version) {
    return dot::bound(version.depth(d_x.data(), d_y.data(), n), want);
  }

  size_t n;
  Guarded<float> d_x, d_y, d_result;
  Guarded<unsigned> d_workspace;
  rounding::Sum want;
};

}  // namespace

TEST_CASE("every version adds every product once, at any size and alignment") {
  constexpr size_t kSizes[] = {0, 1, 2, 3, 4, 5, 7, 8, 255, 256, 257, 1003, 4099, (1 << 17) + 1};
  constexpr size_t kOffsets[][2] = {{0, 0}, {1, 1}, {3, 3}, {0, 1}, {2, 3}};
  for (const size_t n : kSizes) {
    const std::vector<float> x = random_integers(n, 0), y = random_integers(n, 1);
    for (const auto& offsets : kOffsets) {
      Problem problem(x, y, offsets[0], offsets[1]);
      for (const auto& version : testing::chosen(dot::kVersions)) {
        CAPTURE(version.name, n, offsets[0], offsets[1]);
        REQUIRE_OK(problem.check(version.launch, 0));
      }
    }
  }
}

// The last block of single_pass has a thread for each of the first kBlock sums only.
TEST_CASE("every version adds the sums of more blocks than a block has threads") {
  constexpr size_t kSize = (dot::kBlock + 3) * size_t{dot::kBlock} * dot::kCpuRounds;
  Problem problem(random_integers(kSize, 0), random_integers(kSize, 1), 0, 1);
  for (const auto& version : testing::chosen(dot::kVersions)) {
    CAPTURE(version.name);
    REQUIRE_OK(problem.check(version.launch, 0));
  }
}

TEST_CASE("every version stays within its bound") {
  for (const size_t n : {size_t{1}, size_t{1003}, size_t{(1 << 17) + 1}}) {
    for (const size_t offset : {size_t{0}, size_t{1}}) {
      Problem problem(random_floats(n, 0), random_floats(n, 1), 0, offset);
      for (const auto& version : testing::chosen(dot::kVersions)) {
        CAPTURE(version.name, n, offset);
        REQUIRE_OK(problem.check(version.launch, problem.bound(version.launch)));
      }
    }
  }
}

TEST_CASE("every version and the vendor's library agree with NumPy", "[numpy]") {
  const auto floats = [](const char* name) { return read_npy(reference_path(name)).floats(); };
  Problem problem(floats("dot_x.npy"), floats("dot_y.npy"));
  const double want = read_npy(reference_path("dot_result.npy")).values.at(0);
  REQUIRE(std::fabs(problem.want.value - want) <= 1e-12 * problem.want.absolute);
  for (const auto& version : testing::chosen(dot::kVersions)) {
    CAPTURE(version.name);
    REQUIRE_OK(problem.check(version.launch, problem.bound(version.launch)));
  }
  if (blas::available()) {
    blas::dot(problem.n, problem.d_x.data(), problem.d_y.data(), problem.d_result.data());
    REQUIRE(std::fabs(static_cast<double>(problem.d_result.to_host()[0]) - want) <=
            dot::bound(static_cast<double>(problem.n), problem.want));
  }
}

TEST_CASE("deterministic versions give the same bits 100 times") {
  Problem problem(random_floats(100003, 0), random_floats(100003, 1));
  for (const auto& version : testing::chosen(dot::kVersions)) {
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

  for (const auto& version : testing::chosen(dot::kVersions))
    if (std::string(version.name) == "two_pass")
      REQUIRE(same_bits(problem.run(version.launch), want));
}

TEST_CASE("infinities and NaN reach the result") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> x = random_floats(1003, 0), y = random_floats(1003, 1);
  y[700] = 0.5f;
  for (const auto& version : testing::chosen(dot::kVersions)) {
    CAPTURE(version.name);
    x[700] = kInfinity;
    REQUIRE(Problem(x, y).run(version.launch) == kInfinity);
    x[700] = -kInfinity;
    REQUIRE(Problem(x, y).run(version.launch) == -kInfinity);
    x[700] = kNan;
    REQUIRE(std::isnan(Problem(x, y).run(version.launch)));
  }
}

TEST_CASE("a smaller problem may use a larger workspace, again and again") {
  Problem large(random_integers(100003, 0), random_integers(100003, 1));
  Problem small(random_integers(17, 0), random_integers(17, 1));
  for (const auto& version : testing::chosen(dot::kVersions)) {
    CAPTURE(version.name);
    for (Problem* problem : {&large, &small, &large}) {
      version.launch.run(problem->d_result.data(), problem->d_x.data(), problem->d_y.data(),
                         problem->n, large.d_workspace.data(), nullptr);
      REQUIRE(static_cast<double>(problem->d_result.to_host()[0]) == problem->want.value);
    }
  }
}

TEST_CASE("every version may be recorded in a graph") {
  Problem problem(random_floats(20011, 0), random_floats(20011, 1));
  for (const auto& version : testing::chosen(dot::kVersions)) {
    if (!version.launch.deterministic) continue;
    CAPTURE(version.name);
    testing::require_same_in_graph([&] { gpu::poison(problem.d_result.data(), sizeof(float)); },
                                   [&](hipStream_t stream) {
                                     version.launch.run(problem.d_result.data(), problem.d_x.data(),
                                                        problem.d_y.data(), problem.n,
                                                        problem.d_workspace.data(), stream);
                                   },
                                   [&] { return problem.d_result.to_host(); });
  }
}

// ---- What the checks above must catch ---------------------------------------------------------

namespace {

void launch_all_but_last(float* result, const float* x, const float* y, size_t n, void* workspace,
                         hipStream_t stream) {
  dot::launch_two_pass(result, x, y, n - 1, workspace, stream);
}

void launch_nothing(float*, const float*, const float*, size_t, void*, hipStream_t) {}

}  // namespace

TEST_CASE("a missing product and a result that is never written are caught", "[harness]") {
  std::vector<float> x = random_integers(1003, 0), y = random_integers(1003, 1);
  x.back() = y.back() = 1.0f;
  Problem problem(x, y);
  REQUIRE(!problem.check({launch_all_but_last, dot::depth_two_pass, true}, 0).ok);
  REQUIRE(!problem.check({launch_nothing, dot::depth_two_pass, true}, 0).ok);
}

TEST_CASE("the program's checks refuse a missing and a doubled product", "[harness]") {
  // The program's sizes on this backend.
  const bool is_cpu = std::string(gpu::kBackend) == "cpu";
  for (const size_t n : {size_t{1} << (is_cpu ? 19 : 28), size_t{20011}}) {
    constexpr size_t kPiece = size_t{1} << 19;
    gpu::DeviceBuffer<float> d_x(kPiece), d_y(kPiece);
    rounding::Sum want;
    double term = 0;
    for (size_t begin = 0; begin < n; begin += kPiece) {
      const size_t count = std::min(kPiece, n - begin);
      const auto seed = static_cast<std::uint64_t>(7 + begin);
      random_numbers::launch_fill_uniform(d_x.data(), count, seed, 0);
      random_numbers::launch_fill_uniform(d_y.data(), count, seed, 1);
      std::vector<float> x = d_x.to_host(), y = d_y.to_host();
      x.resize(count), y.resize(count);
      want += dot::dot_cpu(x, y);
      const auto product = [&](size_t i) {
        return static_cast<double>(x[i]) * static_cast<double>(y[i]);
      };
      if (begin == 0) term = testing::median_term(count, product);
    }
    for (const auto& version : testing::chosen(dot::kVersions)) {
      const double depth = version.launch.depth(nullptr, nullptr, n);  // as both arrays are aligned
      CAPTURE(version.name, n, depth);
      // A sum of millions of terms one by one is really off by more than one of them: there, atomic
      // has only the check on integers.
      if (depth < 1 << 21)
        testing::require_refusals(
            {want.value}, [&](size_t) { return dot::bound(depth, want); }, 1,
            [&](size_t) { return term; });
    }
  }
  // The check on integers accepts nothing but the sum: the smallest product counts.
  const rounding::Sum exact = dot::dot_cpu(random_integers(20011, 0), random_integers(20011, 1));
  testing::require_refusals({exact.value}, 0.0, 1, [](size_t) { return 1.0; });
}
