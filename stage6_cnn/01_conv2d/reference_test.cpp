// The reference, its bounds, and the arithmetic that kernels share.
#include "stage6_cnn/01_conv2d/reference.h"

#include <cmath>
#include <limits>
#include <vector>

#include "stage4_forward/01_dense/dense.h"
#include "stage6_cnn/01_conv2d/detail/divisor.h"
#include "stage6_cnn/01_conv2d/detail/winograd_transforms.h"
#include "stage6_cnn/01_conv2d/layer_for_tests.h"
#include "stage6_cnn/01_conv2d/problem.h"

using namespace conv2d;
using testing::random_floats;
using testing::random_integers;

TEST_CASE("the reference computes the planes that it is asked for", "[harness]") {
  const Problem p{2, 3, 5, 4, 3, 3, 3, 1, 1, 1, 1};
  const std::vector<float> x = random_floats(size_of_x(p), 0), w = random_floats(size_of_w(p), 1);
  const std::vector<float> bias = random_floats(p.K, 2);
  const Values all = sums_cpu(x, w, bias, p, all_planes(6));
  const Values some = sums_cpu(x, w, bias, p, {1, 5});
  const size_t pixels = 20;
  REQUIRE(some.value.size() == 2 * pixels);
  for (size_t i = 0; i < pixels; ++i) {
    REQUIRE(some.value[i] == all.value[pixels + i]);
    REQUIRE(some.value[pixels + i] == all.value[5 * pixels + i]);
  }
}

// Of each element the term of median size is dropped, at every printed shape.
TEST_CASE("the program's check refuses one missing term", "[harness]") {
  for (const int column : {0, 1, 2}) {  // on a GPU, on the CPU backend, with --quick
    std::vector<size_t> numbers;
    for (const Size& size : sizes())
      numbers.push_back(column == 0 ? size.gpu : column == 1 ? size.cpu : size.quick);
    std::vector<Problem> problems = printed(problem_of(numbers), false, column == 2);
    if (column == 0) problems.push_back({256, 8, 14, 14, 16, 3, 3, 1, 1, 1, 1});
    for (const Problem& p : problems) {
      CAPTURE(text(p));
      const Extent out = output_of(p);
      const size_t pixels = out.height * out.width;
      const std::vector<float> x = random_floats(size_of_x(p), 0), bias = random_floats(p.K, 2);
      const float scale = 1 / std::sqrt(static_cast<float>(window_of(p)));
      const std::vector<float> w = random_floats(size_of_w(p), 1, scale);
      RowSample sample = choose_planes(p, p.N * p.K, pixels, 1);
      if (sample.rows.size() > 8) sample.rows.resize(8);
      Values want = sums_cpu(x, w, bias, p, sample.rows, Terms::mean_zero);
      std::vector<double> term(want.value.size());
      for (size_t i = 0; i < term.size(); ++i) {
        const size_t plane = sample.rows[i / pixels], pixel = i % pixels;
        const size_t h0 = pixel / out.width * p.stride_h, w0 = pixel % out.width * p.stride_w;
        term[i] = testing::median_term(window_of(p), [&](size_t k) {
          const size_t c = k / (p.R * p.S), h = h0 + k / p.S % p.R - p.pad_h;
          const size_t col = w0 + k % p.S - p.pad_w;  // wraps around
          if (h >= p.H || col >= p.W) return 0.0;
          return static_cast<double>(w[plane % p.K * window_of(p) + k]) *
                 static_cast<double>(x[((plane / p.K * p.C + c) * p.H + h) * p.W + col]);
        });
      }
      const auto require_refusals = [&] {
        testing::require_refusals(
            want.value, [&](size_t i) { return want.error[i]; }, pixels,
            [&](size_t i) { return term[i]; });
      };
      require_refusals();
      if (!fits_winograd(p)) continue;
      add_winograd_error_of_y(want, x, w, p, sample.rows, Terms::mean_zero);
      require_refusals();
    }
  }
}

// Where a filter is a multiple of 24, all of its transformed numbers are integers.
TEST_CASE("four sums of three products are those that the transforms make of six") {
  const std::vector<float> numbers = random_integers(60, 0), filters = random_integers(30, 1);
  for (size_t at = 0; at < 10; ++at) {
    float d[kSideIn], g[3], u[kSideIn], products[kSideIn], y[kSideOut];
    for (size_t i = 0; i < 6; ++i) d[i] = numbers[at * 6 + i];
    for (size_t i = 0; i < 3; ++i) g[i] = 24 * filters[at * 3 + i];
    const float want[kSideOut] = {
        d[0] * g[0] + d[1] * g[1] + d[2] * g[2], d[1] * g[0] + d[2] * g[1] + d[3] * g[2],
        d[2] * g[0] + d[3] * g[1] + d[4] * g[2], d[3] * g[0] + d[4] * g[1] + d[5] * g[2]};
    transform_numbers(d), transform_filter(g, u);
    for (size_t i = 0; i < 6; ++i) products[i] = d[i] * u[i];
    transform_products(products, y);
    for (size_t i = 0; i < 4; ++i) REQUIRE(y[i] == want[i]);
  }
}

TEST_CASE("a Divisor divides every number below 2^31", "[harness]") {
  constexpr unsigned kMost = (1u << 31) - 1;
  for (unsigned bit = 0; bit < 31; ++bit)
    for (const unsigned d :
         {1u << bit, (1u << bit) + 1, (1u << bit) - 1, kMost - bit, 7 * bit + 3}) {
      if (d == 0) continue;
      const Divisor divisor(d);
      for (unsigned k = 0; k < 64; ++k) {
        const unsigned n = random_numbers::word(7, d, k) >> (1 + k % 31);
        const unsigned multiple = n / d * d;
        CAPTURE(d, n);
        REQUIRE(divisor.quotient(n) == n / d);
        REQUIRE(divisor.quotient(multiple) == n / d);
        if (multiple > 0) REQUIRE(divisor.quotient(multiple - 1) == n / d - 1);
        const int quotient = divisor.quotient(static_cast<int>(n));
        REQUIRE(quotient == static_cast<int>(n / d));
        REQUIRE(divisor.remainder(static_cast<int>(n), quotient) == static_cast<int>(n % d));
      }
      REQUIRE(divisor.quotient(kMost) == kMost / d);
      REQUIRE(divisor.quotient(kMost - 1) == (kMost - 1) / d);
    }
  REQUIRE(Divisor(0).quotient(7u) == 7);
}
