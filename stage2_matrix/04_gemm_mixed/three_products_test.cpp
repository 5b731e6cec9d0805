// The versions of floats: numbers that are no tf32, exactly and within the bound of float
// arithmetic; special values; and what accurate() chooses.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "common/graph.h"
#include "common/program.h"
#include "common/testing.h"
#include "stage2_matrix/04_gemm_mixed/accurate.h"
#include "stage2_matrix/04_gemm_mixed/detail/split.h"
#include "stage2_matrix/04_gemm_mixed/floats_for_tests.h"

using namespace floats_test;

namespace {

constexpr float kInfinity = gemm_test::kInfinity;
constexpr float kLargest = std::numeric_limits<float>::max();

template <class Check>
void for_each_version_of_floats(Check&& check) {
  for (const auto& version : testing::chosen(gemm_mixed::kVersionsOfFloats)) {
    if (!missing(version.needs).empty()) continue;
    CAPTURE(version.name);
    check(version.launch);
  }
}

float sum_of_parts(float value) {
  const gemm_mixed::TwoParts parts = gemm_mixed::split(value);
  float large, small;
  std::memcpy(&large, &parts.large, sizeof large);
  std::memcpy(&small, &parts.small, sizeof small);
  return large + small;
}

}  // namespace

TEST_CASE("the parts of a float are tf32, and off by one bit together") {
  std::vector<float> values = testing::random_floats(1000, 0);
  for (const float scale : {0x1p+127f, 0x1p-100f})
    for (size_t i = 0; i < 200; ++i) values.push_back(values[i] * scale);
  for (const float value :
       {0.0f, 1.0f, 1 + 0x1p-11f, 1 + 0x1p-23f, 1 + 0x1.002p-12f, 2 - 0x1p-23f, 0x1p-126f})
    values.push_back(value), values.push_back(-value);
  for (const float value : values) {
    CAPTURE(value);
    const gemm_mixed::TwoParts parts = gemm_mixed::split(value);
    REQUIRE((parts.large % (1u << 13) == 0 && parts.small % (1u << 13) == 0));
    REQUIRE(std::fabs(sum_of_parts(value) - value) <= 0x1p-23f * std::fabs(value));
  }
  // Where rounding would give an infinity, 11 bits are kept.
  REQUIRE(std::fabs(sum_of_parts(kLargest) / kLargest - 1) <= 0x1p-10f);
  REQUIRE(std::isfinite(sum_of_parts(-kLargest)));
  REQUIRE(sum_of_parts(kInfinity) == kInfinity);
  REQUIRE(sum_of_parts(-kInfinity) == -kInfinity);
  REQUIRE(std::isnan(sum_of_parts(std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("the versions of floats multiply numbers of more bits than a tf32 has, exactly") {
  for (const Extents size :
       {Extents{1, 1, 1}, Extents{1, 4, 1}, Extents{64, 128, 32}, Extents{150, 300, 70},
        Extents{33, 40, 7}, Extents{5, 8, 300}, Extents{17, 13, 5}, Extents{3, 8, 0},
        Extents{0, 8, 3}, Extents{3, 0, 3}, Extents{0, 0, 0}}) {
    CAPTURE(size.M, size.N, size.K);
    gemm_test::Problem problem = wide_problem(size);
    for_each_version_of_floats(
        [&](auto launch) { REQUIRE_OK(problem.check(with_workspace(launch))); });
  }
}

TEST_CASE("the versions of floats take many tiles per block and many stages per tile") {
#if defined(GPU_BACKEND_CPU)
  const std::vector<Extents> sizes = {{300, 776, 72}};  // of few multiprocessors
#else
  // More pairs of tiles than clusters, an odd number of them; more stages than the rings have.
  const std::vector<Extents> sizes = {{2300, 4104, 40}, {300, 1000, 1032}, {513, 264, 1033}};
#endif
  for (const Extents size : sizes) {
    CAPTURE(size.M, size.N, size.K);
    gemm_test::Problem problem = wide_problem(size);
    for_each_version_of_floats(
        [&](auto launch) { REQUIRE_OK(problem.check(with_workspace(launch))); });
  }
}

TEST_CASE("the versions of floats stay within the bound of float arithmetic") {
  Variant options;
  options.numbers = Numbers::floats;
  for (const Extents size : {Extents{1, 4, 1}, Extents{17, 36, 129}, Extents{72, 136, 1000}}) {
    CAPTURE(size.M, size.N, size.K);
    gemm_test::Problem problem(gemm::Layout::NN, size, options);
    for_each_version_of_floats(
        [&](auto launch) { REQUIRE_OK(problem.check(with_workspace(launch))); });
  }
  // Of positive numbers, whose sums matrix units cut off in one direction.
  gemm_test::Problem positive(gemm::Layout::NN, {8, 8, gemm_mixed::kOnCpu ? 600u : 8192u}, options);
  const gemm::Product& p = positive.product;
  for (size_t k = 0; k < p.K; ++k)
    for (size_t i = 0; i < 8; ++i)
      for (float* value : {&positive.a.at(i, k), &positive.b.at(k, i)}) *value = std::fabs(*value);
  positive.compute_reference();
  for_each_version_of_floats([&](auto launch) {
    REQUIRE_OK(positive.check(
        with_workspace(launch), [&](size_t i) { return positive.reference.c[i]; },
        [&](size_t i) { return gemm::bound(p, positive.reference, i); }));
  });
}

TEST_CASE("no version of floats needs more alignment than its elements") {
  // Elements of a, b and c, and bytes of the workspace, behind a 16-byte boundary.
  constexpr std::array<size_t, 4> kOffsets[] = {
      {1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}, {2, 3, 1, 0}, {0, 0, 0, 4}};
  for (const auto& offsets : kOffsets) {
    CAPTURE(offsets[0], offsets[1], offsets[2], offsets[3]);
    Variant options;
    options.offset_a = offsets[0], options.offset_b = offsets[1], options.offset_c = offsets[2];
    for (const size_t K : {88, 87}) {
      gemm_test::Problem problem = wide_problem({72, 80, K}, options);
      for_each_version_of_floats(
          [&](auto launch) { REQUIRE_OK(problem.check(with_workspace(launch, offsets[3]))); });
    }
  }
}

TEST_CASE("a version of floats runs in a captured graph, more than once") {
  gemm_test::Problem problem = wide_problem({136, 264, 200});
  for_each_version_of_floats([&](auto launch) {
    REQUIRE_OK(problem.check([&](const gemm::Product& p) {
      Workspace workspace(p);
      gpu::Stream stream;
      const gpu::Graph graph(stream, [&] { launch(p, workspace.bytes.data(), stream); });
      for (int repeat = 0; repeat < 2; ++repeat) {
        gpu::poison(p.c, p.M * p.N * sizeof(float));
        HIP_CHECK(hipDeviceSynchronize());
        graph.launch(stream);
        stream.wait();
      }
    }));
  });
}

TEST_CASE("infinities and NaN reach their rows and columns of floats, and no others") {
  for (const size_t K : {50, 56})
    for (const float value : {kInfinity, -kInfinity, gemm_test::kNan}) {
      CAPTURE(K, value);
      Variant options;
      options.numbers = Numbers::floats;
      gemm_test::Problem problem(gemm::Layout::NN, {33, 40, K}, options);
      problem.a.at(20, K - 1) = value;
      problem.b.at(7, 39) = value;
      problem.b.at(K - 1, 11) = value;  // meets that of A
      problem.compute_reference();
      for_each_version_of_floats(
          [&](auto launch) { REQUIRE_OK(problem.check(with_workspace(launch))); });
    }
}

TEST_CASE(
    "special values give products as float arithmetic does, up to the limits that are named") {
  const float tiny = 0x1p-126f;
  std::vector<float> values = {0,        1,           1 + 0x1p-23f,     3e38f,
                               kLargest, kInfinity,   gemm_test::kNan,  0x1.fffffep+63f,
                               tiny,     0x1.3p-130f, 0x1.fffffep-120f, 0x1p+100f};
  for (size_t i = 0, n = values.size(); i < n; ++i) values.push_back(-values[i]);
  const size_t n = values.size();
  gemm_test::Problem problem(gemm::Layout::NN, {n, n, 1}, {});
  for (size_t i = 0; i < n; ++i) problem.a.at(i, 0) = problem.b.at(0, i) = values[i];
  problem.compute_reference();
  const auto exact = [&](size_t i) {
    return static_cast<double>(values[i / n]) * static_cast<double>(values[i % n]);
  };
  // A float beyond the largest one is infinite or NaN: any of them will do.
  const double nearly = static_cast<double>(kLargest) * (1 - 0x1p-10);
  const auto is_limit = [&](size_t i) {
    return std::isfinite(exact(i)) && std::fabs(exact(i)) > nearly;
  };
  const auto bound = [&](size_t i) {
    const double a = std::fabs(static_cast<double>(values[i / n]));
    const double b = std::fabs(static_cast<double>(values[i % n]));
    if (!std::isfinite(a * b)) return 0.0;
    const double relative = std::max(a, b) > nearly ? 0x1p-10 : 0x1p-21;  // 11 bits of the largest
    return relative * a * b + 0x1p-136 * (a + b) + 0x1p-126;
  };
  for_each_version_of_floats([&](auto launch) {
    std::vector<float> got;
    const auto keep = [&](const gemm::Product& p) {
      with_workspace(launch)(p);
      got.resize(n * n);
      HIP_CHECK(hipMemcpy(got.data(), p.c, n * n * sizeof(float), hipMemcpyDeviceToHost));
    };
    static_cast<void>(problem.check(keep));
    for (size_t i = 0; i < n * n; ++i) {
      CAPTURE(values[i / n], values[i % n], got[i]);
      if (is_limit(i)) {
        REQUIRE(!(std::fabs(static_cast<double>(got[i])) < nearly * (1 - 0x1p-10)));
      } else {
        REQUIRE_OK(compare(
            1, [&](size_t) { return got[i]; }, [&](size_t) { return exact(i); },
            [&](size_t) { return bound(i); }));
      }
    }
  });
}

TEST_CASE("accurate takes every product, and matrix units for large ones as they want them") {
  const auto check = [](gemm_test::Problem& problem, bool on_units) {
    require_choice(problem, gemm_mixed::accurate, on_units);
  };
  const size_t wide = 256 * (gpu::multiprocessors() / 4 + 1);
  gemm_test::Problem large = wide_problem({wide, 64, 40});
  check(large, missing(gemm_mixed::kNeedsOfSm90).empty());
  Variant gap, alpha, beta;
  gap.gap = 4, alpha.alpha = 2, beta.beta = -1;
  for (const Variant& options : {gap, alpha, beta}) {
    gemm_test::Problem problem = wide_problem({wide, 64, 40}, options);
    check(problem, false);
  }
  // The leading dimensions are those of NN, too.
  gemm_test::Problem nt = wide_problem({wide, 64, 64}, {}, gemm::Layout::NT);
  check(nt, false);
  gemm_test::Problem tn = wide_problem({64, wide, 64}, {}, gemm::Layout::TN);
  check(tn, false);
  if (gpu::multiprocessors() < 8) return;
  gemm_test::Problem small = wide_problem({40, 24, 8});
  check(small, false);
}

#if defined(GPU_BACKEND_HIP)
TEST_CASE("three_products says what it needs") {
  REQUIRE_THROWS_AS(gemm_mixed::launch_three_products({}, nullptr), std::runtime_error);
}
#endif
