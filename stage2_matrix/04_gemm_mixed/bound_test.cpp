// The bound: no matrix unit exceeds it, and no missing term stays below it.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "common/testing.h"
#include "stage2_matrix/04_gemm_mixed/mixed_products_for_tests.h"

using namespace gemm_mixed_test;

namespace {

// How a matrix unit adds up: `width` exact products and the sum so far are cut to `bits` bits
// behind the first one of the largest of them, then added; the sum is cut to a float. Units differ
// in both numbers; a float has 23 such bits.
struct Adder {
  size_t width;
  int bits;
};
double matrix_unit_dot(const std::vector<float>& x, const std::vector<float>& y, Adder adder) {
  constexpr int kOfFloat = 23;
  double sum = 0;
  for (size_t begin = 0; begin < x.size(); begin += adder.width) {
    std::vector<double> numbers = {sum};
    for (size_t k = begin; k < std::min(begin + adder.width, x.size()); ++k)
      numbers.push_back(static_cast<double>(x[k]) * static_cast<double>(y[k]));
    double largest = 0;
    for (const double number : numbers) largest = std::max(largest, std::fabs(number));
    if (largest == 0) continue;
    const int shift = adder.bits - std::ilogb(largest);
    double steps = 0;
    for (const double number : numbers) steps += std::trunc(std::ldexp(number, shift));
    if (steps != 0) {
      const int dropped = std::max(std::ilogb(steps) - kOfFloat, 0);
      steps = std::ldexp(std::trunc(std::ldexp(steps, -dropped)), dropped);
    }
    sum = std::ldexp(steps, -shift);
  }
  return sum;
}

struct Errors {
  double of_mean_zero = 0, of_worst_case = 0;  // the largest shares of the two bounds
  int towards_zero = 0, all = 0;               // errors that made the sum smaller, and all
};

// `trials` dot products of K bf16 numbers each. Positive ones are in [0, 1), others in [-1, 1).
Errors matrix_unit_errors(size_t K, Adder adder, bool positive, std::uint32_t trials) {
  Errors errors;
  for (std::uint32_t trial = 0; trial < trials; ++trial) {
    std::vector<float> x = random_floats(K, 2 * trial), y = random_floats(K, 2 * trial + 1);
    rounding::Sum want;
    for (size_t k = 0; k < K; ++k) {
      for (float* value : {&x[k], &y[k]}) {
        *value = gpu::to_float(round_to<gpu::bfloat16>(*value));
        if (positive) *value = std::fabs(*value);
      }
      want.add(static_cast<double>(x[k]) * static_cast<double>(y[k]));
    }
    const double got = matrix_unit_dot(x, y, adder), error = std::fabs(got - want.value);
    const auto terms = static_cast<double>(K);
    errors.of_mean_zero =
        std::max(errors.of_mean_zero, error / gemm_mixed::mean_zero_bound(terms, want.squares));
    errors.of_worst_case =
        std::max(errors.of_worst_case, error / gemm_mixed::bound(terms, want.absolute));
    errors.towards_zero += std::fabs(got) < std::fabs(want.value);
    errors.all += error != 0;
  }
  return errors;
}

}  // namespace

TEST_CASE("a unit that cuts off stays below the bounds, and comes near enough to need them",
          "[harness]") {
  for (const Adder adder : {Adder{4, 23}, Adder{4, 25}, Adder{8, 24}, Adder{16, 25}})
    for (const size_t K : {1, 5, 64, 1000, 8192}) {
      CAPTURE(adder.width, adder.bits, K);
      const Errors random = matrix_unit_errors(K, adder, false, 100);
      CAPTURE(random.of_mean_zero, random.of_worst_case);
      REQUIRE(random.of_mean_zero < 0.25);
      REQUIRE(random.of_worst_case < 0.5);
      const Errors positive = matrix_unit_errors(K, adder, true, 10);
      CAPTURE(positive.of_worst_case);
      REQUIRE(positive.of_worst_case < 0.5);
    }
  // The cuts of the sum go one way as long as it keeps its sign: most results are too small.
  const Errors narrow = matrix_unit_errors(8192, {4, 25}, false, 200);
  CAPTURE(narrow.of_mean_zero, narrow.towards_zero, narrow.all);
  REQUIRE(narrow.of_mean_zero > 0.01);
  REQUIRE(narrow.towards_zero > 0.75 * narrow.all);
}

FOR_EACH_TYPE("the checks refuse a dropped term, a doubled term, swapped rows and zeros",
              "[harness]") {
  // The shapes that the program prints. Of the GPU's, 8192 in each dimension, a few rows and
  // columns: an element's sum is as long, and the bound looks at nothing else.
  for (const Shape& shape : {Shape{160, 160, 160}, Shape{129, 65, 255}, Shape{4, 64, 8192}}) {
    CAPTURE(shape.M, shape.N, shape.K);
    for (const bool exactly : {false, true}) {
      const auto inputs = [&](size_t n, std::uint32_t stream) {
        return rounded<TestType>(exactly ? random_integers(n, stream) : random_floats(n, stream));
      };
      const std::vector<TestType> a = inputs(shape.M * shape.K, 0);
      const std::vector<TestType> b = inputs(shape.K * shape.N, 1);
      const rounding::Sums want = gemm_mixed::gemm_mixed_cpu(a, b, shape.M, shape.N, shape.K);
      const auto term = [&](size_t i) {
        const size_t row = i / shape.N, column = i % shape.N;
        const auto product = [&](size_t k) {
          return static_cast<double>(gpu::to_float(a[row * shape.K + k])) *
                 static_cast<double>(gpu::to_float(b[k * shape.N + column]));
        };
        return testing::median_term(shape.K, product);
      };
      const auto bound = [&](size_t i) {
        return exactly ? 0.0
                       : gemm_mixed::mean_zero_bound(static_cast<double>(shape.K), want.squares[i]);
      };
      testing::require_refusals(want.value, bound, shape.N, term);
    }
  }
}
