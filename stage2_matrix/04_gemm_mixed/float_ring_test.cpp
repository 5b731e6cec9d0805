// float_ring in all layouts: awkward sizes, gaps, alpha and beta, many tiles and stages; what it
// leaves to gemm::best, and what float_best() chooses.
#include <cstddef>
#include <vector>

#include "common/program.h"
#include "common/testing.h"
#include "stage2_matrix/04_gemm_mixed/accurate.h"
#include "stage2_matrix/04_gemm_mixed/floats_for_tests.h"

using namespace floats_test;
using gemm::Layout;

namespace {

constexpr Layout kLayouts[] = {Layout::NN, Layout::NT, Layout::TN};

bool has_ring() { return missing(gemm_mixed::kNeedsOfSm90).empty(); }
auto ring(size_t offset = 0) { return with_workspace(gemm_mixed::launch_float_ring, offset); }

}  // namespace

TEST_CASE("float_ring multiplies every pair of numbers once, in every layout") {
  if (!has_ring()) return;
  size_t turn = 0;
  for (const Extents size :
       {Extents{1, 1, 1}, Extents{4, 4, 4}, Extents{256, 128, 32}, Extents{260, 132, 36},
        Extents{256, 128, 128}, Extents{255, 127, 160}, Extents{40, 12, 300}, Extents{17, 13, 5},
        Extents{252, 124, 28}, Extents{0, 8, 4}, Extents{8, 0, 4}, Extents{12, 16, 0}})
    for (const Layout layout : kLayouts) {
      Variant options;
      options.alpha = ++turn % 2 == 0 ? 1 : -2;
      options.beta = static_cast<float>(turn % 3);
      options.gap = turn % 4 == 0 ? 4 : 0;
      CAPTURE(size.M, size.N, size.K, static_cast<int>(layout), options.gap);
      gemm_test::Problem problem(layout, size, options);
      REQUIRE_OK(problem.check(ring()));
    }
}

TEST_CASE("float_ring takes many tiles per block and many stages per tile") {
  if (!has_ring()) return;
#if defined(GPU_BACKEND_CPU)
  // Of few multiprocessors; and more rows of tiles than are taken below each other.
  const std::vector<Extents> sizes = {{520, 260, 200}, {2308, 132, 8}};
#else
  const std::vector<Extents> sizes = {{4100, 2052, 40}, {300, 1000, 1032}};
#endif
  for (const Extents size : sizes)
    for (const Layout layout : kLayouts) {
      CAPTURE(size.M, size.N, size.K, static_cast<int>(layout));
      gemm_test::Problem problem = wide_problem(size, {}, layout);
      REQUIRE_OK(problem.check(ring()));
    }
}

TEST_CASE("float_ring stays within the bound of float arithmetic, infinities and NaN included") {
  if (!has_ring()) return;
  for (const Layout layout : kLayouts) {
    Variant options;
    options.numbers = Numbers::floats, options.alpha = -1.7f, options.beta = 0.3f;
    CAPTURE(static_cast<int>(layout));
    gemm_test::Problem problem(layout, {72, 136, 600}, options);
    REQUIRE_OK(problem.check(ring()));
    problem.a.at(20, 0) = gemm_test::kInfinity, problem.b.at(0, 7) = gemm_test::kNan;
    problem.compute_reference();
    REQUIRE_OK(problem.check(ring()));
  }
}

TEST_CASE("float_ring leaves to gemm::best what the TMA does not take") {
  if (!has_ring()) return;
  for (const Layout layout : kLayouts) {
    for (size_t one = 0; one < 7; ++one) {
      Variant options;
      options.offset_a = one == 0, options.offset_b = one == 1, options.offset_c = one == 2;
      options.gap = one == 3 ? 1 : 0;
      if (one == 4) options.alpha = 0, options.beta = 2;
      CAPTURE(static_cast<int>(layout), one);
      gemm_test::Problem problem(layout, {68, one == 6 ? 70u : 72u, one == 5 ? 43u : 44u}, options);
      REQUIRE_OK(problem.check(ring(layout == Layout::NT && one == 5 ? 4 : 0)));
    }
  }
}

TEST_CASE("float_ring takes a single row, but no batch, no empty product and none with alpha = 0") {
  if (!has_ring()) return;
  const auto takes = [](Extents size, size_t batch = 1, float alpha = 1) {
    gemm_test::Problem problem(Layout::NN, size, {});
    problem.product.batch = batch, problem.product.alpha = alpha;
    return gemm_mixed::float_ring_takes(problem.product, nullptr);
  };
  REQUIRE((takes({8, 8, 20}) && takes({1, 8, 20})));
  REQUIRE_FALSE(takes({8, 8, 20}, 2));
  REQUIRE_FALSE(takes({8, 8, 20}, 1, 0));
  REQUIRE_FALSE(takes({0, 8, 20}));
  REQUIRE_FALSE(takes({8, 0, 20}));
}

TEST_CASE("float_ring needs memory for a copy of B in NT only") {
  if (!has_ring()) return;
  for (const Layout layout : kLayouts) {
    const gemm_test::Problem problem(layout, {8, 12, 20}, {});
    REQUIRE(gemm_mixed::float_ring_bytes(problem.product) ==
            (layout == Layout::NT ? 12 * 20 * sizeof(float) : 0));
  }
}

TEST_CASE("float_best copies B only for the ring, and the ring needs full multiprocessors") {
  const auto check = [](gemm_test::Problem& problem, bool on_ring) {
    require_choice(problem, gemm_mixed::float_best, on_ring);
  };
  const size_t rows = 256 * gpu::multiprocessors();
  gemm_test::Problem full(Layout::NT, {rows, 16, 512}, {});
  check(full, has_ring());
  gemm_test::Problem short_sums(Layout::NT, {rows, 16, 508}, {});
  check(short_sums, false);
  if (gpu::multiprocessors() < 2) return;
  gemm_test::Problem one_more(Layout::NT, {rows + 4, 16, 512}, {});
  check(one_more, false);
}

#if defined(GPU_BACKEND_HIP)
TEST_CASE("float_ring says what it needs") {
  REQUIRE_THROWS_AS(gemm_mixed::launch_float_ring({}, nullptr), std::runtime_error);
}
#endif
