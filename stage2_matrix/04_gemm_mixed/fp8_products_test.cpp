// The versions of fp8, exactly and within their bound; the bound, against a model of the unit; and
// the mistakes that the CPU backend must catch.
#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "common/guarded.h"
#include "common/program.h"
#include "common/testing.h"
#include "stage2_matrix/04_gemm_mixed/detail/round.h"
#include "stage2_matrix/04_gemm_mixed/fp8.h"
#include "stage2_matrix/04_gemm_mixed/fp8_mistakes_for_tests.h"
#include "stage2_matrix/04_gemm_mixed/fp8_reference.h"
#include "stage2_matrix/04_gemm_mixed/mixed_products_for_tests.h"

using gemm_mixed::Fp8Reference;
using gemm_mixed_test::Offsets;
using gemm_mixed_test::require_right_in_graph;
using gemm_mixed_test::Shape;
using testing::random_floats;
using testing::random_integers;

namespace {

using Numbers = std::vector<gpu::fp8>;

Numbers rounded(const std::vector<float>& values) {
  return gemm_mixed_test::rounded<gpu::fp8>(values);
}

// The device memory of one product, guarded.
struct Problem {
  Problem(Shape size, const Numbers& a, const Numbers& b, Offsets offsets = {})
      : shape(size),
        d_a(a, offsets.a),
        d_b(b, offsets.b),
        d_c(shape.M * shape.N, offsets.c),
        want(gemm_mixed::gemm_fp8_cpu(a, b, shape.M, shape.N, shape.K)) {}

  template <class LaunchOfProblem>
  std::vector<float> run(LaunchOfProblem&& launch) {
    if (d_c.size() > 0) gpu::poison(d_c.data(), d_c.size() * sizeof(float));
    launch(d_c.data(), d_a.data(), d_b.data(), shape.M, shape.N, shape.K, nullptr);
    return d_c.to_host();
  }
  Comparison compare(const std::vector<float>& got, bool exactly) {
    Comparison result = ::compare(
        got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want.value[i]; },
        [&](size_t i) { return exactly ? 0.0 : want.bound[i]; });
    result.ok = result.ok && d_a.intact() && d_b.intact() && d_c.intact();
    return result;
  }

  Shape shape;
  Guarded<gpu::fp8> d_a, d_b;
  Guarded<float> d_c;
  Fp8Reference want;
};

Problem integer_problem(Shape shape, Offsets offsets = {}) {
  return Problem(shape, rounded(random_integers(shape.M * shape.K, 0)),
                 rounded(random_integers(shape.N * shape.K, 1)), offsets);
}

// Calls check(launch) with each version that this device can run.
template <class Check>
void for_each_version(Check&& check) {
  for (const auto& version : testing::chosen(gemm_mixed::kVersionsOfFp8)) {
    if (!missing(version.needs).empty()) continue;
    CAPTURE(version.name);
    check(version.launch);
  }
}
void check_exactly(const std::vector<Shape>& shapes) {
  for (const Shape& shape : shapes) {
    CAPTURE(shape.M, shape.N, shape.K);
    Problem problem = integer_problem(shape);
    for_each_version([&](auto launch) { REQUIRE_OK(problem.compare(problem.run(launch), true)); });
  }
}

}  // namespace

TEST_CASE("the versions of fp8 add every product once, at any shape") {
  check_exactly({{1, 1, 1},
                 {1, 4, 16},
                 {17, 12, 48},
                 {33, 65, 129},
                 {64, 128, 31},
                 {129, 260, 16},
                 {5, 8, 300},
                 {7, 6, 32},
                 {3, 8, 0},
                 {0, 8, 3},
                 {3, 0, 3},
                 {0, 0, 0}});
}

TEST_CASE("the versions of fp8 take many tiles per block and many stages per tile") {
#if defined(GPU_BACKEND_CPU)
  check_exactly({{300, 776, 144}, {128, 256, 128}, {136, 1032, 656}});  // of few multiprocessors
#else
  // More pairs of tiles than clusters, an odd number of them; more stages than the ring has.
  check_exactly({{2300, 4104, 80},
                 {1416, 3080, 528},
                 {128, 256, 128},
                 {300, 1000, 2064},
                 {513, 264, 8192},
                 {300, 1000, 1033}});
#endif
}

TEST_CASE("the versions of fp8 stay within their bound") {
  for (const Shape& shape : {Shape{1, 4, 16}, Shape{17, 36, 129}, Shape{72, 136, 1040}}) {
    CAPTURE(shape.M, shape.N, shape.K);
    Problem problem(shape, rounded(random_floats(shape.M * shape.K, 0)),
                    rounded(random_floats(shape.N * shape.K, 1)));
    for_each_version([&](auto launch) { REQUIRE_OK(problem.compare(problem.run(launch), false)); });
  }
}

TEST_CASE("no version of fp8 needs more alignment than its elements") {
  constexpr Offsets kOffsets[] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {3, 5, 2}, {16, 16, 4}};
  for (const Offsets& offsets : kOffsets) {
    CAPTURE(offsets.a, offsets.b, offsets.c);
    Problem problem = integer_problem({72, 80, 96}, offsets);
    for_each_version([&](auto launch) { REQUIRE_OK(problem.compare(problem.run(launch), true)); });
  }
}

TEST_CASE("every pair of fp8 is multiplied exactly") {
  // Element (i, j) is i times j, alone in its sum, for each of the 256 numbers.
  constexpr size_t kCodes = 256, kDepth = 16;
  Numbers a(kCodes * kDepth, {0}), b = a;
  for (size_t i = 0; i < kCodes; ++i)
    a[i * kDepth + 5] = b[i * kDepth + 5] = {static_cast<std::uint8_t>(i)};
  Problem problem({kCodes, kCodes, kDepth}, a, b);
  for_each_version([&](auto launch) {
    const std::vector<float> got = problem.run(launch);
    size_t wrong = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      const double want = problem.want.value[i];
      wrong += std::isnan(want) ? !std::isnan(got[i]) : static_cast<double>(got[i]) != want;
    }
    REQUIRE(wrong == 0);
  });
}

TEST_CASE("a NaN of fp8 reaches its row and column, and no others") {
  constexpr Shape kShape{33, 40, 64};
  std::vector<float> a = random_floats(kShape.M * kShape.K, 0);
  std::vector<float> b = random_floats(kShape.N * kShape.K, 1);
  a[20 * kShape.K + 63] = b[39 * kShape.K + 7] = std::numeric_limits<float>::quiet_NaN();
  Problem problem(kShape, rounded(a), rounded(b));
  for_each_version([&](auto launch) {
    const std::vector<float> got = problem.run(launch);
    size_t wrong = 0;
    for (size_t i = 0; i < got.size(); ++i)
      wrong += std::isnan(got[i]) != (i / kShape.N == 20 || i % kShape.N == 39);
    REQUIRE(wrong == 0);
  });
}

TEST_CASE("inputs are rounded to fp8, and saturate") {
  const std::vector<float> values = {0, 1, -1.5f, 1.0625f, 1.1875f, 1e-9f, 448, 1e6f, -1e6f};
  const std::vector<float> nearest = {0, 1, -1.5f, 1, 1.25f, 0, 448, 448, -448};
  Guarded<float> d_values(values, 1);
  Guarded<gpu::fp8> d_rounded(values.size(), 1);
  gemm_mixed::launch_round(d_rounded.data(), d_values.data(), values.size());
  const Numbers got = d_rounded.to_host();
  for (size_t i = 0; i < values.size(); ++i) {
    CAPTURE(values[i]);
    REQUIRE(gpu::to_float(got[i]) == nearest[i]);
  }
  REQUIRE((d_values.intact() && d_rounded.intact()));
}

TEST_CASE("the versions of fp8 run in a captured graph") {
  Problem problem = integer_problem({136, 264, 208});
  for_each_version([&](auto launch) { require_right_in_graph(problem, launch); });
}

#if defined(GPU_BACKEND_HIP)
TEST_CASE("fp8 refuses a device that has no wgmma") {
  REQUIRE_THROWS_AS(gemm_mixed::launch_fp8(nullptr, nullptr, nullptr, 8, 8, 16),
                    std::runtime_error);
}
#endif

// ---- The bound ---------------------------------------------------------------------------------

namespace {

double product(const Numbers& a, const Numbers& b, size_t i, size_t j) {
  return static_cast<double>(gpu::to_float(a[i])) * static_cast<double>(gpu::to_float(b[j]));
}

// A dot product as Hopper's unit adds it up: `width` products and the sum so far are cut to 13 bits
// behind the first one of the largest of them and added; the sum is cut, too.
double matrix_unit_dot(const Numbers& a, const Numbers& b, size_t row, size_t column, size_t K,
                       size_t width) {
  constexpr int kBits = 13;
  double sum = 0;
  for (size_t begin = 0; begin < K; begin += width) {
    std::vector<double> numbers = {sum};
    for (size_t k = begin; k < std::min(begin + width, K); ++k)
      numbers.push_back(product(a, b, row * K + k, column * K + k));
    double largest = 0;
    for (const double number : numbers) largest = std::max(largest, std::fabs(number));
    if (largest == 0) continue;
    const int shift = kBits - std::ilogb(largest);
    double steps = 0;
    for (const double number : numbers) steps += std::trunc(std::ldexp(number, shift));
    if (steps != 0) {
      const int dropped = std::max(std::ilogb(steps) - kBits, 0);
      steps = std::ldexp(std::trunc(std::ldexp(steps, -dropped)), dropped);
    }
    sum = std::ldexp(steps, -shift);
  }
  return sum;
}

}  // namespace

TEST_CASE("a unit with 14 bits stays below fp8's bound, and comes near enough to need it",
          "[harness]") {
  for (const size_t width : {16, 32}) {
    double largest_share = 0;
    for (const size_t K : {1, 5, 64, 1000, 8192, 32768}) {
      constexpr size_t kRows = 8;
      const Numbers a = rounded(random_floats(kRows * K, 0));
      const Numbers b = rounded(random_floats(kRows * K, 1));
      const Fp8Reference want = gemm_mixed::gemm_fp8_cpu(a, b, kRows, kRows, K);
      double share = 0;
      for (size_t i = 0; i < want.value.size(); ++i) {
        const double got = matrix_unit_dot(a, b, i / kRows, i % kRows, K, width);
        share = std::max(share, std::fabs(got - want.value[i]) / want.bound[i]);
      }
      CAPTURE(width, K, share);
      REQUIRE(share < 0.5);
      largest_share = std::max(largest_share, share);
    }
    CAPTURE(width, largest_share);
    REQUIRE(largest_share > 0.02);
  }
}

TEST_CASE("a unit with 14 bits adds the integers of the exact check exactly", "[harness]") {
  constexpr size_t kRows = 8, kDepth = 8192;
  const Numbers a = rounded(random_integers(kRows * kDepth, 0));
  const Numbers b = rounded(random_integers(kRows * kDepth, 1));
  const Fp8Reference want = gemm_mixed::gemm_fp8_cpu(a, b, kRows, kRows, kDepth);
  for (size_t i = 0; i < want.value.size(); ++i)
    REQUIRE(matrix_unit_dot(a, b, i / kRows, i % kRows, kDepth, 32) == want.value[i]);
}

TEST_CASE("the checks of fp8 refuse a dropped term, a doubled term, swapped rows and zeros",
          "[harness]") {
  for (const Shape& shape : {Shape{160, 160, 160}, Shape{129, 64, 240}, Shape{4, 64, 8192}})
    for (const bool exactly : {false, true}) {
      // Where there are more, a single term shows in integers only. Of 240, four do. Of 8192, a
      // stage does in many elements, and whoever leaves one out does so in all elements of a tile.
      const size_t depth = exactly || shape.K <= 160 ? 1 : shape.K <= 240 ? 4 : 128;
      CAPTURE(shape.M, shape.N, shape.K, exactly);
      const auto inputs = [&](size_t n, std::uint32_t stream) {
        return rounded(exactly ? random_integers(n, stream) : random_floats(n, stream));
      };
      const Numbers a = inputs(shape.M * shape.K, 0), b = inputs(shape.N * shape.K, 1);
      const Fp8Reference want = gemm_mixed::gemm_fp8_cpu(a, b, shape.M, shape.N, shape.K);
      const auto term = [&](size_t i) {
        const size_t row = i / shape.N, column = i % shape.N;
        const auto terms = [&](size_t at) {
          double sum = 0;
          for (size_t k = at * depth; k < (at + 1) * depth; ++k)
            sum += product(a, b, row * shape.K + k, column * shape.K + k);
          return sum;
        };
        const double typical = testing::median_term(shape.K / depth, terms);
        return depth < 128 || std::fabs(typical) > want.bound[i] ? typical : 0.0;
      };
      const auto bound = [&](size_t i) { return exactly ? 0.0 : want.bound[i]; };
      testing::require_refusals(want.value, bound, shape.N, term);
    }
}

// ---- What the CPU backend must catch -----------------------------------------------------------

#if defined(GPU_BACKEND_CPU)

namespace {

using gemm_mixed_test::Fp8Mistake;

enum class Outcome { right, wrong, stopped };

Outcome outcome_of(Fp8Mistake mistake) {
  try {
    Problem problem = integer_problem({256, 256, 1280});
    const auto launch = [&](auto... arguments) {
      gemm_mixed_test::launch_fp8_pair(mistake, arguments...);
    };
    return problem.compare(problem.run(launch), true).ok ? Outcome::right : Outcome::wrong;
  } catch (const gpu::Error&) {
    REQUIRE(hipDeviceReset() == hipSuccess);
    return Outcome::stopped;
  }
}

}  // namespace

TEST_CASE("mistakes with the tiles of fp8 are caught", "[harness]") {
  constexpr Fp8Mistake kWithOtherNumbers[] = {
      Fp8Mistake::halves_of_b_exchanged,      Fp8Mistake::row_taken_for_k,
      Fp8Mistake::depth_of_16_bit_numbers,    Fp8Mistake::step_of_16_numbers,
      Fp8Mistake::rows_of_the_other_consumer, Fp8Mistake::new_sums_in_each_stage};
  REQUIRE(outcome_of(Fp8Mistake::none) == Outcome::right);
  for (int i = 1; i < gemm_mixed_test::kFp8Mistakes; ++i) {
    CAPTURE(i);
    const auto mistake = static_cast<Fp8Mistake>(i);
    const bool is_other =
        std::count(std::begin(kWithOtherNumbers), std::end(kWithOtherNumbers), mistake) > 0;
    CHECK(outcome_of(mistake) == (is_other ? Outcome::wrong : Outcome::stopped));
  }
}

#endif
