// Large arrays: rows chosen from a whole product, batches that exceed a grid, offsets beyond 2^31.
#include <cstddef>
#include <vector>

#include "common/gpu_runtime.h"
#include "common/guarded.h"
#include "common/random.h"
#include "common/sample.h"
#include "common/testing.h"
#include "stage2_matrix/03_gemm/gemm.h"
#include "stage2_matrix/03_gemm/products_for_tests.h"
#include "stage2_matrix/03_gemm/reference.h"

using namespace gemm_test;

TEST_CASE("a large product is right in rows chosen from all of it") {
  constexpr size_t kSize = 1024;
  Guarded<float> d_a(kSize * kSize, 0), d_b(kSize * kSize, 0), d_c(kSize * kSize, 0);
  random_numbers::launch_fill_uniform(d_a.data(), d_a.size(), 7, 0);
  random_numbers::launch_fill_uniform(d_b.data(), d_b.size(), 7, 1);
  const std::vector<float> a = d_a.to_host(), b = d_b.to_host();
  const RowSample sample = choose_rows(kSize, kSize, 16, 7);
  Product product{Layout::NN, kSize, kSize, kSize, 1, d_a.data(), kSize, d_b.data(), kSize};
  product.ldc = kSize, product.c = d_c.data();
  const gemm::Reference reference = gemm::gemm_cpu(product, a, b, {}, sample.rows);
  gemm::best(Layout::NN, kSize, kSize, kSize, 1, d_a.data(), kSize, d_b.data(), kSize, 0,
             d_c.data(), kSize);
  REQUIRE_OK(sample.compare(d_c.data(), reference.c, [&](size_t i) {
    return gemm::bound_of_mean_zero(product, reference, i);
  }));
}

TEST_CASE("a batch longer than a grid is high") {
  constexpr size_t kBatch = 65535 + 3;
  const std::vector<float> a = testing::random_integers(kBatch, 0);
  const std::vector<float> b = testing::random_integers(kBatch, 1);
  Guarded<float> d_a(a, 0), d_b(b, 0), d_c(kBatch, 0);
  Product p{Layout::NN, 1, 1, 1, 1, d_a.data(), 1, d_b.data(), 1};
  p.c = d_c.data(), p.ldc = 1;
  p.batch = kBatch, p.stride_a = p.stride_b = p.stride_c = 1;
  gemm::best(p);
  const std::vector<float> got = d_c.to_host();
  for (size_t i = 0; i < kBatch; ++i) REQUIRE(got[i] == a[i] * b[i]);
  REQUIRE(d_c.intact());
}

#if !defined(GPU_BACKEND_CPU)
// The CPU backend would have to fill all of this memory.
TEST_CASE("offsets beyond 2^31 elements") {
  constexpr size_t kLarge = (size_t{1} << 30) + 4, kSize = 3;  // row 2 begins behind 2^31
  constexpr size_t kElements = (kSize - 1) * kLarge + kSize;
  size_t free_bytes = 0, total = 0;
  HIP_CHECK(hipMemGetInfo(&free_bytes, &total));
  if (free_bytes < 2 * kElements * sizeof(float)) return;
  float* large = nullptr;
  HIP_CHECK(hipMalloc(reinterpret_cast<void**>(&large), kElements * sizeof(float)));
  for (const Layout layout : kLayouts) {
    for (int which = 0; which < 3; ++which) {  // which of the three matrices is that large
      Problem problem(layout, {kSize, kSize, kSize}, {});
      for (const auto& version : testing::chosen(gemm::kVersions)) {
        if (version.launch.general == nullptr) continue;
        CAPTURE(version.name, static_cast<int>(layout), which);
        const auto copy_rows = [](float* to, size_t to_ld, const float* from, size_t from_ld) {
          for (size_t row = 0; row < kSize; ++row)
            HIP_CHECK(hipMemcpy(to + row * to_ld, from + row * from_ld, kSize * sizeof(float),
                                hipMemcpyDeviceToDevice));
        };
        REQUIRE_OK(problem.check([&](Product p) {
          if (which == 0) copy_rows(large, kLarge, p.a, p.lda), p.a = large, p.lda = kLarge;
          if (which == 1) copy_rows(large, kLarge, p.b, p.ldb), p.b = large, p.ldb = kLarge;
          float* const c = p.c;
          if (which == 2) p.c = large, p.ldc = kLarge;
          version.launch.general(p, nullptr);
          if (which == 2) copy_rows(c, kSize, large, kLarge);
        }));
      }
    }
  }
  HIP_CHECK(hipFree(large));
}

TEST_CASE("more than 2^31 elements of C") {
  constexpr size_t kRows = 33000, kCols = 66000;
  size_t free_bytes = 0, total = 0;
  HIP_CHECK(hipMemGetInfo(&free_bytes, &total));
  if (free_bytes < 2 * kRows * kCols * sizeof(float)) return;
  const std::vector<float> a = testing::random_integers(kRows, 0);
  const std::vector<float> b = testing::random_integers(kCols, 1);
  Guarded<float> d_a(a, 0), d_b(b, 0);
  float* d_c = nullptr;
  HIP_CHECK(hipMalloc(reinterpret_cast<void**>(&d_c), kRows * kCols * sizeof(float)));
  const RowSample sample = choose_rows(kRows, kCols, 16, 7);
  Product product{Layout::NN, kRows, kCols, 1, 1, d_a.data(), 1, d_b.data(), kCols};
  product.c = d_c, product.ldc = kCols;
  const gemm::Reference reference = gemm::gemm_cpu(product, a, b, {}, sample.rows);
  for (const auto& version : testing::chosen(gemm::kVersions)) {
    CAPTURE(version.name);
    gpu::poison(d_c, kRows * kCols * sizeof(float));
    run(version.launch, product);
    REQUIRE_OK(sample.compare(d_c, reference.c, [](size_t) { return 0.0; }));
  }
  HIP_CHECK(hipFree(d_c));
}
#endif
