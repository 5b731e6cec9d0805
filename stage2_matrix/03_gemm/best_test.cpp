// best(), which later stages call: its tiles on the shapes of layers, slices of K, epilogues.
#include <cmath>
#include <cstddef>
#include <vector>

#include "common/guarded.h"
#include "common/testing.h"
#include "stage2_matrix/03_gemm/gemm.h"
#include "stage2_matrix/03_gemm/kernels_for_tests.h"
#include "stage2_matrix/03_gemm/products_for_tests.h"

using namespace gemm_test;

namespace {

// Shapes of layers: forward, and the two gradients.
struct Layer {
  Layout layout;
  Extents size;
};
constexpr Layer kLayers[] = {
    {Layout::NN, {64, 128, 784}}, {Layout::TN, {784, 128, 64}}, {Layout::NT, {64, 784, 128}},
    {Layout::NN, {64, 10, 128}},  {Layout::TN, {128, 10, 64}},  {Layout::NT, {64, 128, 10}},
    {Layout::NN, {512, 64, 64}},  {Layout::NN, {300, 384, 96}}, {Layout::TN, {64, 64, 1000}},
};

}  // namespace

TEST_CASE("every tile that best() chooses from is right for layers, and always the same") {
  for (const Layer& layer : kLayers) {
    CAPTURE(static_cast<int>(layer.layout), layer.size.M, layer.size.N, layer.size.K);
    Problem exact(layer.layout, layer.size, {Numbers::integers, 2, 1, 4});
    Problem problem(layer.layout, layer.size, {Numbers::floats});
    REQUIRE_OK(exact.check([](const Product& p) { gemm::best(p); }));
    for (size_t candidate = 0; candidate < gemm_test::count_candidates(); ++candidate) {
      CAPTURE(candidate);
      const auto launch = [&](const Product& p) {
        gemm_test::launch_candidate(candidate, p, nullptr);
      };
      REQUIRE_OK(exact.check(launch));
      REQUIRE_OK(problem.check(launch));
      bool untouched = false;
      const std::vector<float> first = problem.c.to_host(&untouched);
      for (int run = 0; run < 2; ++run) {
        problem.check(launch);
        REQUIRE(testing::same_bits(problem.c.to_host(&untouched), first));
      }
    }
  }
}

TEST_CASE("slices of K add up, whether they get something or nothing") {
  for (const size_t K : {0, 1, 7, 8, 9, 24, 25, 63, 64, 65, 300}) {
    for (const Layout layout : kLayouts) {
      CAPTURE(K, static_cast<int>(layout));
      Problem problem(layout, {70, 68, K}, {Numbers::integers, 1, 1, K % 2 == 0 ? 4u : 1u});
      REQUIRE_OK(problem.check([](const Product& p) { gemm_test::launch_medium(p, nullptr); }));
      REQUIRE_OK(problem.check([](const Product& p) { gemm_test::launch_small(p, nullptr); }));
    }
  }
}

TEST_CASE("an epilogue gets each sum with its row and column") {
  constexpr size_t kRows = 70, kCols = 134, kDepth = 30;
  const std::vector<float> bias = testing::random_integers(kCols, 3);
  Guarded<float> d_bias(bias, 0);
  for (const Layout layout : kLayouts) {
    Problem problem(layout, {kRows, kCols, kDepth}, {});
    const auto want = [&](size_t i) {
      return std::fmax(problem.reference.c[i] + static_cast<double>(bias[i % kCols]), 0.0);
    };
    REQUIRE_OK(problem.check(
        [&](const Product& p) { gemm_test::launch_bias_relu(p, d_bias.data(), nullptr); }, want,
        [](size_t) { return 0.0; }));
  }
}
