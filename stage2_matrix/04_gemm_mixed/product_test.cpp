// Products of 16-bit matrices in any layout.
#include "stage2_matrix/04_gemm_mixed/product.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/testing.h"
#include "stage2_matrix/04_gemm_mixed/layout_products_for_tests.h"
#include "stage2_matrix/04_gemm_mixed/product_kernels_for_tests.h"

using namespace gemm_mixed_test;

using gpu::bfloat16, gpu::half;

namespace {

constexpr size_t kSizes[] = {1, 7, 64, 65, 129, 200, 257};

template <class T, class C>
bool is_right_by(Kernel kernel, LayoutProblem<T, C>& problem) {
  return problem.is_right([&](const auto& p) {
    const bool has_whole_chunks = kernel != Kernel::pairs || p.N * sizeof(C) % 16 == 0;
    if (!gemm_mixed::has(kernel) || !has_whole_chunks) return gemm_mixed::best(p);
    REQUIRE(gemm_mixed::takes(kernel, p));
    gemm_mixed::launch(kernel, p);
  });
}

template <class T, class C>
void check_layouts(size_t first, size_t every) {
  size_t i = first;
  for (const Layout layout : kLayouts)
    for (const size_t M : kSizes)
      for (const size_t N : kSizes) {
        const size_t K = kSizes[++i % 7];
        if (i % every != 0) continue;
        CAPTURE(static_cast<int>(layout), M, N, K);
        LayoutProblem<T, C> plain(layout, M, N, K);
        REQUIRE(plain.is_right([](const auto& p) { gemm_mixed::best(p); }));
        LayoutProblem<T, C> whole_rows(layout, M, N, K, aligned(layout, M, N, K, sizeof(C)));
        REQUIRE(is_right_by(Kernel::pairs, whole_rows));
        Extras gaps;
        gaps.gap_a = 3, gaps.gap_b = 1, gaps.gap_c = 2;
        gaps.offset_a = 1, gaps.offset_b = 3, gaps.offset_c = 1;
        LayoutProblem<T, C> odd_rows(layout, M, N, K, gaps);
        REQUIRE(odd_rows.is_right([](const auto& p) { gemm_mixed::best(p); }));
        REQUIRE(is_right_by(Kernel::units, odd_rows));
        REQUIRE(is_right_by(Kernel::mma, odd_rows));
        REQUIRE(is_right_by(Kernel::mma, whole_rows));
      }
}

// CPU backends take one in a few: their blocks are slow.
#if defined(GPU_BACKEND_CPU)
constexpr size_t kEvery = 8;
#else
constexpr size_t kEvery = 1;
#endif

template <class F>
std::string refused(F&& product) {
  return testing::what_of<std::invalid_argument>(product);
}

}  // namespace

TEST_CASE("products of bf16 in every layout add every term once", "[long]") {
  check_layouts<bfloat16, float>(0, kEvery);
  check_layouts<bfloat16, bfloat16>(3, kEvery);
}
TEST_CASE("products of fp16 in every layout add every term once", "[long]") {
  check_layouts<half, float>(5, kEvery);
  check_layouts<half, half>(6, kEvery);
}

TEMPLATE_TEST_CASE("a batch has its strides, and C what it had", "[long]", float, bfloat16) {
  for (const Layout layout : kLayouts)
    for (const Kernel kernel : {Kernel::pairs, Kernel::mma, Kernel::units})
      for (const bool same_b : {false, true}) {
        CAPTURE(static_cast<int>(layout), static_cast<int>(kernel), same_b);
        Extras e = aligned(layout, 70, 304, 90, sizeof(TestType));
        e.gap_a += 8, e.gap_b += 16, e.gap_c += 8;
        e.batch = 3, e.gap_matrices = 24, e.same_b = same_b;
        e.alpha = 2, e.beta = -1;
        LayoutProblem<bfloat16, TestType> problem(layout, 70, 304, 90, e);
        REQUIRE(is_right_by(kernel, problem));
        REQUIRE(problem.is_right([](const auto& p) { gemm_mixed::best(p); }));
      }
}

TEST_CASE("a gap between the rows of one matrix alone") {
  for (const size_t matrix : {0, 1, 2}) {
    CAPTURE(matrix);
    Extras e;
    (matrix == 0 ? e.gap_a : matrix == 1 ? e.gap_b : e.gap_c) = 8;
    LayoutProblem<bfloat16, float> problem(Layout::NN, 40, 72, 64, e);
    REQUIRE(problem.is_right([](const auto& p) { gemm_mixed::best(p); }));
  }
}

TEST_CASE("more pairs of tiles than blocks, and more stages than the ring has") {
  for (const Layout layout : kLayouts) {
    CAPTURE(static_cast<int>(layout));
    LayoutProblem<bfloat16, float> problem(layout, 520, 600, 456);
    REQUIRE(is_right_by(Kernel::pairs, problem));
    REQUIRE(is_right_by(Kernel::mma, problem));
  }
}

TEST_CASE("empty products and empty sums") {
  for (const Layout layout : kLayouts) {
    CAPTURE(static_cast<int>(layout));
    for (const size_t K : {0, 64}) {
      LayoutProblem<bfloat16, float> no_rows(layout, 0, 64, K), no_columns(layout, 64, 0, K);
      REQUIRE(no_rows.is_right([](const auto& p) { gemm_mixed::best(p); }));
      REQUIRE(no_columns.is_right([](const auto& p) { gemm_mixed::best(p); }));
    }
    for (const float beta : {0.0f, 2.0f}) {
      Extras e;
      e.beta = beta;
      LayoutProblem<bfloat16, float> no_terms(layout, 65, 72, 0, e);
      REQUIRE(no_terms.is_right([](auto p) {
        p.a = nullptr, p.b = nullptr;
        p.alpha = std::numeric_limits<float>::infinity();
        gemm_mixed::best(p);
      }));
      e.alpha = 0;
      LayoutProblem<bfloat16, float> no_alpha(layout, 65, 72, 64, e);
      REQUIRE(no_alpha.is_right([](auto p) {
        p.a = nullptr, p.b = nullptr;
        gemm_mixed::best(p);
      }));
    }
  }
  auto nothing = gemm_mixed::contiguous<half, half>(Layout::NT, nullptr, nullptr, nullptr, 8, 8, 8);
  nothing.batch = 0;
  gemm_mixed::best(nothing);
}

TEST_CASE("what is no product is refused in one line") {
  LayoutProblem<bfloat16, bfloat16> problem(Layout::TN, 8, 16, 24);
  auto p = problem.p;
  REQUIRE(gemm_mixed::takes(Kernel::units, p));
  p.lda = 7;
  REQUIRE(refused([&] { gemm_mixed::best(p); }) ==
          "gemm_mixed: lda = 7 is less than the 8 elements of a row of a");
  p = problem.p, p.ldc = 15;
  REQUIRE(refused([&] { gemm_mixed::best(p); }) ==
          "gemm_mixed: ldc = 15 is less than the 16 elements of a row of c");
  p = problem.p, p.b = nullptr;
  REQUIRE(refused([&] { gemm_mixed::best(p); }) == "gemm_mixed: b is null");
  p = problem.p, p.a = reinterpret_cast<const bfloat16*>(reinterpret_cast<const char*>(p.a) + 1);
  REQUIRE(refused([&] { gemm_mixed::best(p); }) == "gemm_mixed: a is not aligned to 2 bytes");
  p = problem.p, p.N = 15;  // a row of C ends within 16 bytes
  REQUIRE(!gemm_mixed::takes(Kernel::pairs, p));
  p = problem.p, p.lda = 9;
  REQUIRE(!gemm_mixed::takes(Kernel::pairs, p));
  REQUIRE(refused([&] { gemm_mixed::launch(Kernel::pairs, p); }) ==
          "gemm_mixed: not a product for this kernel");
}

TEST_CASE("wrong distances and a wrong layout are caught", "[harness]") {
  for (const Layout layout : kLayouts) {
    CAPTURE(static_cast<int>(layout));
    Extras e;
    e.gap_a = e.gap_b = e.gap_c = 8;
    e.batch = 2, e.gap_matrices = 8;
    LayoutProblem<half, float> problem(layout, 64, 64, 64, e);
    const auto is_caught = [&](auto&& spoil) {
      return !problem.is_right([&](auto p) {
        spoil(p);
        gemm_mixed::best(p);
      });
    };
    REQUIRE(!is_caught([](auto&) {}));
    REQUIRE(is_caught([](auto& p) { p.lda -= 8; }));
    REQUIRE(is_caught([](auto& p) { p.ldb -= 8; }));
    REQUIRE(is_caught([](auto& p) { p.ldc -= 8; }));
    REQUIRE(is_caught([](auto& p) { p.stride_a = 0; }));
    REQUIRE(is_caught([](auto& p) { p.stride_b -= 8; }));
    REQUIRE(is_caught([](auto& p) { p.stride_c -= 8; }));
    REQUIRE(is_caught([](auto& p) { p.batch = 1; }));
    REQUIRE(is_caught([](auto& p) { p.K -= 1; }));
    REQUIRE(
        is_caught([](auto& p) { p.layout = p.layout == Layout::NN ? Layout::NT : Layout::NN; }));
  }
}

namespace {

// C = relu(A B + bias + residual).
template <class T, class C>
void check_residual(Layout layout) {
  constexpr size_t M = 130, N = 264, K = 72;
  for (const Kernel kernel : {Kernel::pairs, Kernel::mma, Kernel::units}) {
    if (!gemm_mixed::has(kernel)) continue;
    CAPTURE(static_cast<int>(layout), static_cast<int>(kernel));
    Extras e = aligned(layout, M, N, K, sizeof(C));
    e.gap_c += 8;
    LayoutProblem<T, C> problem(layout, M, N, K, e);
    const std::vector<float> bias = testing::random_integers(N, 3);
    const std::vector<float> residual = testing::random_integers(M * N, 4);
    Guarded<float> d_bias(bias, 1), d_residual(residual, 3);
    REQUIRE(problem.is_right(
        [&](const auto& p) { launch_residual(kernel, p, d_bias.data(), d_residual.data()); },
        [&](float sum, size_t row, size_t col, float) {
          return std::max(sum + bias[col] + residual[row * N + col], 0.0f);
        }));
  }
}

}  // namespace

TEST_CASE("an epilogue is given each sum and its place") {
  for (const Layout layout : kLayouts) {
    check_residual<bfloat16, bfloat16>(layout);
    check_residual<half, float>(layout);
  }
}

// 64 x 128 sums that lie in C as a whole, and those at its edges; biases that begin at a multiple
// of two and not; a matrix that the TMA can't store.
TEMPLATE_TEST_CASE("an epilogue may store a second matrix", "", float, bfloat16) {
  constexpr size_t M = 330, N = 456, K = 72;
  const std::vector<float> bias = testing::random_integers(N, 3);
  for (const size_t bias_at : {0, 1})
    for (const size_t kept_at : {0, 1})
      for (std::optional<Kernel> kernel : {std::optional(Kernel::pairs), std::optional(Kernel::mma),
                                           std::optional(Kernel::units), std::optional<Kernel>()}) {
        CAPTURE(bias_at, kept_at, kernel ? static_cast<int>(*kernel) : -1);
        if (kernel && !gemm_mixed::has(*kernel)) continue;
        LayoutProblem<bfloat16, TestType> problem(Layout::NT, M, N, K);
        Guarded<float> d_bias(bias, bias_at);
        Guarded<TestType> kept(M * N, kept_at);
        const auto run = [&](const auto& p) { launch_kept(kernel, p, d_bias.data(), kept.data()); };
        if (kernel == Kernel::pairs && kept_at == 1) {
          REQUIRE(refused([&] { run(problem.p); }) == "gemm_mixed: not a product for this kernel");
          continue;
        }
        REQUIRE(problem.is_right(
            run, [&](float sum, size_t, size_t col, float) { return -(sum + bias[col]); }));
        const std::vector<TestType> c = problem.c.to_host(), also = kept.to_host();
        REQUIRE(kept.intact());
        for (size_t i = 0; i < M * N; ++i)
          if (gpu::to_float(also[i]) != -gpu::to_float(c[i])) FAIL("element " << i);
      }
}

#if defined(GPU_BACKEND_CPU)
TEST_CASE("mistakes with the layouts of pairs are caught", "[harness]") {
  Extras e;
  e.gap_c = 4, e.batch = 2, e.gap_matrices = 8;
  const auto is_right = [&](Layout layout, PairMistake mistake) {
    try {
      LayoutProblem<bfloat16, float> problem(layout, 256, 256, 128, e);
      return problem.is_right([&](const auto& p) { launch_pairs(mistake, p); },
                              [](float sum, size_t row, size_t col, float) {
                                return sum + static_cast<float>(1000 * row + col);
                              });
    } catch (const gpu::Error&) {
      REQUIRE(hipDeviceReset() == hipSuccess);
      return false;
    }
  };
  for (const Layout layout : {Layout::TN, Layout::NT}) {
    REQUIRE(is_right(layout, PairMistake::none));
    for (int i = 1; i < kPairMistakes; ++i) {
      CAPTURE(static_cast<int>(layout), i);
      const auto mistake = static_cast<PairMistake>(i);
      const bool of_boxes = mistake == PairMistake::half_of_b_in_the_other_half ||
                            mistake == PairMistake::first_box_of_a_twice;
      if (!of_boxes || layout == Layout::TN) REQUIRE(!is_right(layout, mistake));
    }
  }
}
#endif
