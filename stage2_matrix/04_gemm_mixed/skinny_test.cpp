// skinny: how many blocks a cluster has, and products of few rows.
#include <array>
#include <cstring>
#include <vector>

#include "common/program.h"
#include "common/testing.h"
#include "stage2_matrix/04_gemm_mixed/detail/cluster_shape.h"
#include "stage2_matrix/04_gemm_mixed/mixed_products_for_tests.h"

using namespace gemm_mixed_test;

using gemm_mixed::ClusterShape;
using AtOnce = std::array<unsigned, gemm_mixed::kMostBlocks + 1>;

namespace {

// 132 multiprocessors, 18 in two groups and 16 in six; and with a group of 14.
constexpr AtOnce kEvenGroups = {0, 132, 66, 42, 32, 24, 18, 16, 16};
constexpr AtOnce kOddGroups = {0, 132, 66, 42, 31, 24, 19, 16, 15};

bool is(ClusterShape shape, unsigned slices, unsigned sharers) {
  return shape.slices == slices && shape.sharers == sharers;
}

bool can_run() { return missing(gemm_mixed::kNeedsOfWgmma<gpu::half>).empty(); }

}  // namespace

TEST_CASE("clusters of skinny take the fewest rounds of stages") {
  using gemm_mixed::choose_cluster;
  REQUIRE(is(choose_cluster(128, 128, kEvenGroups), 1, 2));  // a block for each tile
  REQUIRE(is(choose_cluster(64, 128, kEvenGroups), 2, 2));   // one round of 128 blocks
  REQUIRE(is(choose_cluster(64, 128, kOddGroups), 2, 1));    // 31 clusters of 4 are too few
  REQUIRE(is(choose_cluster(1, 128, kEvenGroups), 8, 1));
  REQUIRE(is(choose_cluster(2, 128, kEvenGroups), 8, 1));
  REQUIRE(is(choose_cluster(1, 3, kEvenGroups), 3, 1));  // no slice without a step
  REQUIRE(is(choose_cluster(132, 128, kEvenGroups), 1, 2));
  REQUIRE(is(choose_cluster(64, 128, AtOnce{}), 4, 2));  // one cluster after the other
}

TEST_CASE("the slices of skinny have every step once, and none is empty") {
  for (const unsigned slices : {1u, 2u, 3u, 7u, 8u})
    for (const int steps : {8, 9, 15, 128, 131}) {
      CAPTURE(slices, steps);
      const ClusterShape shape{slices, 1};
      REQUIRE(gemm_mixed::slice_begin(steps, 0, shape) == 0);
      REQUIRE(gemm_mixed::slice_begin(steps, slices, shape) == steps);
      for (unsigned s = 0; s < slices; ++s)
        REQUIRE(gemm_mixed::slice_begin(steps, s, shape) <
                gemm_mixed::slice_begin(steps, s + 1, shape));
    }
}

TEMPLATE_TEST_CASE("skinny adds every product once, with few rows and one more", "[long]",
                   gpu::half, gpu::bfloat16) {
  if (!can_run()) return;
  // N and K at the edges of tiles and stages; unaligned rows; 1 to 8 slices and more stages than
  // the ring has, one tile, two and an odd number of them.
  constexpr size_t kColumns[] = {8, 56, 64, 72, 136, 392}, kDepths[] = {8, 64, 72, 200, 520};
  size_t i = 0;
  for (const size_t M : {1, 7, 16, 17, 64, 65, 100, 128, 129})
    for (int repeat = 0; repeat < 3; ++repeat, ++i) {
      const Shape shape{M, kColumns[i % 6], kDepths[i % 5]};
      CAPTURE(shape.M, shape.N, shape.K);
      auto problem = integer_problem<TestType>(shape);
      REQUIRE_OK(problem.check(gemm_mixed::launch_skinny<TestType>, true));
    }
#if !defined(GPU_BACKEND_CPU)
  // Enough tiles for blocks that share A, and more stages than the ring has.
  for (const Shape& shape :
       {Shape{16, 8192, 2048}, Shape{64, 8200, 1544}, Shape{128, 8192, 1032}}) {
    CAPTURE(shape.M, shape.N, shape.K);
    auto problem = integer_problem<TestType>(shape);
    REQUIRE_OK(problem.check(gemm_mixed::launch_skinny<TestType>, true));
  }
#endif
  for (const Shape& shape : {Shape{16, 8, 8200}, Shape{60, 136, 8200}, Shape{128, 8, 5000},
                             Shape{16, 131, 67}, Shape{100, 40, 71}, Shape{7, 5, 0}}) {
    CAPTURE(shape.M, shape.N, shape.K);
    auto problem = integer_problem<TestType>(shape);
    REQUIRE_OK(problem.check(gemm_mixed::launch_skinny<TestType>, true));
  }
}

TEST_CASE("every slice of skinny goes round its ring") {
  if (!can_run()) return;
  // 44 steps in at most 4 slices of two tiles: 11 for each, where the ring has 8 stages.
  auto problem = integer_problem<gpu::half>({128, 136, 2800});
  REQUIRE_OK(problem.check(gemm_mixed::launch_skinny<gpu::half>, true));
}

TEMPLATE_TEST_CASE("skinny stays within its bound and gives the same bits every time", "[long]",
                   gpu::half, gpu::bfloat16) {
  if (!can_run()) return;
  for (const size_t M : {16, 50, 128}) {
    CAPTURE(M);
    auto problem = random_problem<TestType>({M, 264, 584});
    const std::vector<float> first = problem.run(gemm_mixed::launch_skinny<TestType>);
    REQUIRE_OK(problem.compare(first, false));
    for (int repeat = 0; repeat < 2; ++repeat) {
      const std::vector<float> again = problem.run(gemm_mixed::launch_skinny<TestType>);
      REQUIRE(std::memcmp(first.data(), again.data(), first.size() * sizeof(float)) == 0);
    }
  }
}
