// Wrong products that the checks of the matrix product must catch.
#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "common/gpu_runtime.h"
#include "common/options.h"
#include "common/sample.h"
#include "common/testing.h"
#include "stage2_matrix/03_gemm/gemm.h"
#include "stage2_matrix/03_gemm/kernels_for_tests.h"
#include "stage2_matrix/03_gemm/problem.h"
#include "stage2_matrix/03_gemm/products_for_tests.h"
#include "stage2_matrix/03_gemm/reference.h"

using namespace gemm_test;

TEST_CASE("the program's check refuses a wrong term or row at every shape that it prints",
          "[harness]") {
  for (const bool quick : {false, true}) {
    const std::vector<size_t> size = usual_sizes(gemm::sizes(), quick, gpu::kBackend);
    for (const gemm::Table& table : gemm::printed(size[0], size[1], size[2], quick)) {
      CAPTURE(table.name());
      const Product p = gemm::product_of(table);
      const std::vector<float> a = testing::random_floats(p.M * p.K, 0);
      const std::vector<float> b = testing::random_floats(p.K * p.N, 1);
      const RowSample sample = gemm::rows_of(table, 7);
      const gemm::Reference reference = gemm::gemm_cpu(p, a, b, {}, sample.rows);
      // A term of median size, among the first 64.
      const auto term = [&](size_t i) {
        const size_t row = sample.rows[i / p.N], col = i % p.N;
        return testing::median_term(std::min(p.K, size_t{64}), [&](size_t k) {
          return static_cast<double>(p.layout == Layout::TN ? a[k * p.lda + row]
                                                            : a[row * p.lda + k]) *
                 static_cast<double>(p.layout == Layout::NT ? b[col * p.ldb + k]
                                                            : b[k * p.ldb + col]);
        });
      };
      const auto bound = [&](size_t i) { return gemm::bound_of_mean_zero(p, reference, i); };
      testing::require_refusals(reference.c, bound, p.N, term);
    }
  }
}

TEST_CASE("a missing bounds check, swapped indices and a missing product are caught", "[harness]") {
  Problem small(Layout::NN, {20, 29, 5}, {});
  REQUIRE(!small
               .check([](const Product& p) {
                 gemm_test::launch_unchecked_column(p.c, p.a, p.b, p.M, p.N, p.K, nullptr);
               })
               .ok);

  Problem square(Layout::NN, {33, 33, 33}, {});
  REQUIRE(!square
               .check([](Product p) {
                 p.layout = Layout::NT;
                 gemm::best(p);
               })
               .ok);
  REQUIRE(
      !square.check([](const Product& p) { gemm::launch_naive(p.c, p.b, p.a, p.M, p.N, p.K); }).ok);
  REQUIRE(!square
               .check([](Product p) {
                 --p.K;
                 gemm::best(p);
               })
               .ok);
  REQUIRE(!square.check([](const Product&) {}).ok);
}

#if defined(GPU_BACKEND_CPU)
// On a GPU the waves may happen to run in an order that hides it.
TEST_CASE("each missing barrier is caught", "[harness]") {
  Problem problem(Layout::NN, {33, 33, 49}, {});
  const auto check = [&](bool first, bool second) {
    return problem.check([&](const Product& p) {
      gemm_test::launch_without_barrier(first, second, p.c, p.a, p.b, p.M, p.N, p.K, nullptr);
    });
  };
  REQUIRE(check(true, true).ok);
  REQUIRE(!check(false, true).ok);
  REQUIRE(!check(true, false).ok);
  REQUIRE(!check(false, false).ok);
}
#endif
