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
      REQUIRE_OK(problem.check([](const Product& p) { gemm_test::launch_half(p, nullptr); }));
      REQUIRE_OK(problem.check([](const Product& p) { gemm_test::launch_small(p, nullptr); }));
    }
  }
}

TEST_CASE("the large tile: whole tiles beside edges, and sums that end in a tile or behind one") {
  for (const Extents extents : {Extents{128, 128, 0}, Extents{128, 128, 4}, Extents{256, 128, 8},
                                Extents{128, 256, 12}, Extents{132, 260, 16}, Extents{260, 132, 20},
                                Extents{128, 128, 23}, Extents{128, 128, 32}}) {
    for (const Layout layout : kLayouts) {
      CAPTURE(extents.M, extents.N, extents.K, static_cast<int>(layout));
      Problem problem(layout, extents, {Numbers::integers, 1, 1, 4});
      REQUIRE_OK(problem.check([](const Product& p) { gemm_test::launch_large(p, nullptr); }));
      REQUIRE_OK(
          problem.check([](const Product& p) { gemm::launch_large_thread_tile(p, nullptr); }));
    }
  }
}

TEST_CASE("few results: short and long sums of any size, layout, gap and batch") {
  constexpr Extents kSizes[] = {{1, 1, 1},    {1, 1, 0},    {8, 32, 16},   {9, 33, 17},
                                {4, 8, 2},    {8, 2, 4},    {64, 10, 128}, {10, 16, 64},
                                {7, 9, 255},  {8, 8, 256},  {15, 17, 257}, {3, 5, 1023},
                                {5, 3, 1024}, {9, 7, 1025}, {2, 70, 300},  {0, 5, 7}};
  size_t turn = 0;
  for (const Extents& size : kSizes)
    for (const Layout layout : kLayouts)
      for (const float alpha : {1.0f, -2.0f, 0.0f}) {
        Problem::Options options;
        options.alpha = alpha, options.beta = turn % 3 == 0 ? 0 : turn % 3 == 1 ? 1 : 3;
        options.gap = ++turn % 4;
        options.offset_a = turn / 2 % 4, options.offset_b = turn / 3 % 4;
        options.offset_c = turn / 4 % 4;
        CAPTURE(size.M, size.N, size.K, static_cast<int>(layout), alpha, options.beta, options.gap);
        Problem exact(layout, size, options);
        options.numbers = Numbers::floats;
        Problem rounded(layout, size, options);
        for (const auto launch : {gemm_test::launch_short_sums, gemm_test::launch_long_sums})
          for (Problem* problem : {&exact, &rounded})
            REQUIRE_OK(problem->check([&](const Product& p) { launch(p, nullptr); }));
      }
}

TEST_CASE("few results: a batch is as many products") {
  constexpr size_t kBatch = 3, M = 9, N = 11, K = 40;
  const std::vector<float> a = testing::random_integers(kBatch * M * K, 1);
  const std::vector<float> b = testing::random_integers(kBatch * K * N, 2);
  for (const auto launch : {gemm_test::launch_short_sums, gemm_test::launch_long_sums}) {
    Guarded<float> d_a(a, 0), d_b(b, 0), d_c(kBatch * M * N, 0);
    Product p = gemm::contiguous(d_c.data(), d_a.data(), d_b.data(), M, N, K);
    p.batch = kBatch, p.stride_a = M * K, p.stride_b = K * N, p.stride_c = M * N;
    launch(p, nullptr);
    const std::vector<float> c = d_c.to_host();
    for (size_t z = 0; z < kBatch; ++z)
      for (size_t i = 0; i < M; ++i)
        for (size_t j = 0; j < N; ++j) {
          float want = 0;
          for (size_t k = 0; k < K; ++k) want += a[(z * M + i) * K + k] * b[(z * K + k) * N + j];
          REQUIRE(c[(z * M + i) * N + j] == want);
        }
    REQUIRE((d_a.intact() && d_b.intact() && d_c.intact()));
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
    for (const auto launch : {gemm_test::launch_bias_relu, gemm_test::launch_long_sums_bias_relu,
                              gemm_test::launch_short_sums_bias_relu})
      REQUIRE_OK(problem.check([&](const Product& p) { launch(p, d_bias.data(), nullptr); }, want,
                               [](size_t) { return 0.0; }));
  }
}

// They are added to what is there, so that a row which is given twice is noticed.
TEST_CASE("the sums of op(A)'s rows are given once each, whatever the tile") {
  for (const Extents& size : {Extents{1, 1, 1}, {63, 65, 7}, {70, 134, 70}, {130, 32, 9}})
    for (const Layout layout : {Layout::NN, Layout::TN}) {
      Problem problem(layout, size, {Numbers::integers, 1, 1, 2});
      std::vector<float> want(size.M, 0);
      for (size_t row = 0; row < size.M; ++row)
        for (size_t k = 0; k < size.K; ++k)
          want[row] += layout == Layout::TN ? problem.a.at(k, row) : problem.a.at(row, k);
      for (size_t candidate = 0; candidate < gemm_test::count_candidates(); ++candidate) {
        CAPTURE(size.M, size.N, size.K, static_cast<int>(layout), candidate);
        Guarded<float> sums(std::vector<float>(size.M, 0), 0);
        REQUIRE_OK(problem.check([&](const Product& p) {
          gemm_test::launch_row_sums(candidate, p, sums.data(), nullptr);
        }));
        REQUIRE(sums.to_host() == want);
        REQUIRE(sums.intact());
      }
    }
}
