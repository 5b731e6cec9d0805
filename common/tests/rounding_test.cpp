// The bounds of common/rounding.h: above the errors of float sums, and below one missing term.
#include "common/rounding.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "common/testing.h"

namespace {

constexpr double kU = kFloatRoundoff;

// The kinds of terms that the bounds are for: products of numbers in [-1, 1), and products of
// numbers in [0, 1).
enum class Signs { random, positive };

// x . y in float over `chunk` terms at a time, the chunks' sums added pairwise.
struct FloatDot {
  float value;
  double depth;  // roundings that a term goes through
};
FloatDot float_dot(const std::vector<float>& x, const std::vector<float>& y, size_t chunk,
                   bool fused) {
  std::vector<float> sums;
  for (size_t begin = 0; begin < x.size(); begin += chunk) {
    float sum = 0;
    for (size_t i = begin; i < std::min(begin + chunk, x.size()); ++i) {
      // volatile: no compiler may fuse what shall round twice
      volatile float product = x[i] * y[i];
      sum = fused ? std::fma(x[i], y[i], sum) : sum + product;
    }
    sums.push_back(sum);
  }
  double depth = static_cast<double>(std::min(chunk, x.size())) + 1;
  for (; sums.size() > 1; ++depth) {
    for (size_t i = 0; i + 1 < sums.size(); i += 2) sums[i / 2] = sums[i] + sums[i + 1];
    if (sums.size() % 2 == 1) sums[sums.size() / 2] = sums.back();
    sums.resize((sums.size() + 1) / 2);
  }
  return {sums[0], depth};
}

struct Inputs {
  std::vector<float> x, y;
  Inputs(size_t n, Signs signs, std::uint32_t trial)
      : x(testing::random_floats(n, 2 * trial)), y(testing::random_floats(n, 2 * trial + 1)) {
    if (signs == Signs::positive)
      for (std::vector<float>* values : {&x, &y})
        for (float& value : *values) value = std::fabs(value);
  }
};

// P(|x y| < m) = m (1 - ln m) for x and y uniform in [-1, 1): half at this m.
constexpr double kMedianProduct = 0.1867;

}  // namespace

TEST_CASE("gamma and the worst case") {
  CHECK(rounding::gamma(0) == 0);
  CHECK(rounding::gamma(1) == kU / (1 - kU));
  CHECK(rounding::gamma(1 << 23) == 1);
  CHECK(std::isinf(rounding::gamma(1 << 24)));
  // A sum of n terms in any order: n u, which a tree of a few levels is far below.
  CHECK(rounding::worst_case(1000, 1000, 2) == 1000 * kU * 2);
  CHECK(rounding::worst_case(10, 1000, 2) == rounding::gamma(10) * 2);
  CHECK(rounding::worst_case(1e9, 1e9, 1) == 1e9 * kU);
}

TEST_CASE("lambda is as safe as it says") {
  CHECK(std::fabs(rounding::kFalseAlarm - 2 * std::exp(-std::pow(rounding::kLambda, 2) / 2)) <
        1e-17);
  CHECK(rounding::kFalseAlarm * (1 << 24) < 4.3e-7);
}

TEST_CASE("sums carry what their bounds are made of") {
  rounding::Sum sum, other;
  sum.add(3), sum.add(-4), other.add(0.5);
  sum += other;
  CHECK(sum.value == -0.5);
  CHECK(sum.absolute == 7.5);
  CHECK(sum.squares == 25.25);
  const rounding::Sum twice = sum.times(-2);
  CHECK(twice.value == 1);
  CHECK(twice.absolute == 15);
  CHECK(twice.squares == 101);
  CHECK(sum.mean_zero_bound(4) == 8 * std::sqrt(4 * 25.25) * kU + kU * 0.5);
  CHECK(sum.random_bound(4) == 16 * kU * 7.5);
  CHECK(sum.worst_case(2, 3) == rounding::gamma(2) * 7.5);

  rounding::Sums sums(2);
  sums.add(1, 3), sums.add(1, -4), sums.add(1, 0.5);
  CHECK(sums.size() == 2);
  CHECK(sums[0].absolute == 0);
  CHECK(sums[1].value == sum.value);
  CHECK(sums[1].absolute == sum.absolute);
  CHECK(sums[1].squares == sum.squares);

  // Longer than a piece, and exact.
  const std::vector<float> x = testing::random_integers(10001, 0), y(x.size(), -2);
  double value = 0, squares = 0;
  for (const float v : x)
    value -= 2 * static_cast<double>(v), squares += 4 * std::pow(static_cast<double>(v), 2);
  CHECK(rounding::dot(x.data(), y.data(), x.size()).value == value);
  CHECK(rounding::dot(x.data(), y.data(), x.size()).squares == squares);
  CHECK(rounding::dot(x.data(), y.data(), 0).value == 0);
}

TEST_CASE("errors of the factors are inherited") {
  rounding::ApproximateSum sum;
  sum.add({2, 0.5}, {-3, 0.25});
  CHECK(sum.value == -6);
  CHECK(sum.absolute == 2.5 * 3.25);
  CHECK(sum.inherited == 2.5 * 3.25 - 6);  // at most
  sum.add({1, 0.125});
  CHECK(sum.value == -5);
  CHECK(sum.inherited == 2.25);
  CHECK(sum.worst_case(1, 1e9).error == 2.25 + rounding::gamma(1) * sum.absolute);
  CHECK(sum.random_bound(0).error == std::sqrt(2.125 * 2.125 + 0.125 * 0.125));
  CHECK(sum.mean_zero_bound(9).error > sum.random_bound(0).error);
}

TEST_CASE("float sums stay below half of each bound that is theirs") {
  double worst_random = 0, worst_mean_zero = 0;
  for (const size_t n : {1, 2, 17, 256, 4096, 20011})
    for (const size_t chunk : {size_t{1}, size_t{8}, size_t{1000}, n})
      for (const bool fused : {false, true})
        for (const Signs signs : {Signs::random, Signs::positive})
          for (std::uint32_t trial = 0; trial < (n > 1000 ? 20 : 200); ++trial) {
            const Inputs in(n, signs, trial);
            const rounding::Sum want = rounding::dot(in.x.data(), in.y.data(), n);
            const FloatDot got = float_dot(in.x, in.y, chunk, fused);
            const double error = std::fabs(static_cast<double>(got.value) - want.value);
            worst_random = std::fmax(worst_random, error / want.random_bound(got.depth));
            if (signs == Signs::random)
              worst_mean_zero = std::fmax(worst_mean_zero, error / want.mean_zero_bound(got.depth));
          }
  INFO("largest shares: " << worst_random << " of random, " << worst_mean_zero << " of mean zero");
  CHECK(worst_random < 0.5);
  CHECK(worst_random > 0.01);  // a bound that no error comes near to is no check
  CHECK(worst_mean_zero < 0.5);
  CHECK(worst_mean_zero > 0.01);
}

TEST_CASE("positive terms break the bound for mean zero: it is not for them") {
  // The terms' errors add up like |sum|, not like sqrt(sum t^2), where all have one size.
  const size_t n = 1 << 22;
  const std::vector<float> x(n, 0.1f), y(n, 1);
  const FloatDot got = float_dot(x, y, n, true);
  const rounding::Sum want = rounding::dot(x.data(), y.data(), n);
  const double error = std::fabs(static_cast<double>(got.value) - want.value);
  CHECK(error > want.mean_zero_bound(got.depth));
  CHECK(error < want.worst_case(got.depth, got.depth));
}

TEST_CASE("a missing term of median size is larger than the bound at every size of the course") {
  // Products of numbers in [-1, 1): the sum of n squares is n / 9.
  const auto bound = [](double n, double depth) {
    const double squares = n / 9, result = 3 * std::sqrt(squares);
    return rounding::mean_zero_bound(depth, squares, result);
  };
  CHECK(bound(std::pow(2, 28), 1000) < 0.5 * kMedianProduct);  // dot, 2^18 threads
  CHECK(bound(4096, 4096) < 0.01 * kMedianProduct);            // gemm, one by one
  CHECK(bound(8192, 8192) < 0.01 * kMedianProduct);
  CHECK(bound(65536, 65536) < 0.06 * kMedianProduct);  // gemv, one thread per row
  CHECK(bound(65536, 300) < 0.004 * kMedianProduct);
  // What a worst-case bound lets pass at these sizes.
  CHECK(rounding::worst_case(8192, 8192, 8192.0 / 4) > kMedianProduct);
  CHECK(rounding::worst_case(1000, std::pow(2, 28), std::pow(2, 26)) > 1000 * kMedianProduct);
}

TEST_CASE("a missing term is seen in sums of real floats") {
  struct Case {
    size_t n, chunk;
  };
  for (const Case& c : {Case{4096, 4096}, Case{8192, 8192}, Case{65536, 65536}, Case{65536, 256},
                        Case{1 << 22, 1000}}) {
    const Inputs in(c.n, Signs::random, 0);
    const rounding::Sum want = rounding::dot(in.x.data(), in.y.data(), c.n);
    const FloatDot got = float_dot(in.x, in.y, c.chunk, true);
    const double error = static_cast<double>(got.value) - want.value;
    const double bound = want.mean_zero_bound(got.depth);
    CHECK(std::fabs(error) < 0.5 * bound);
    const double term = testing::median_term(
        c.n, [&](size_t i) { return static_cast<double>(in.x[i]) * static_cast<double>(in.y[i]); });
    CHECK(std::fabs(std::fabs(term) - kMedianProduct) < 0.02);
    CHECK(std::fabs(error - term) > bound);
    CHECK(std::fabs(error + term) > bound);
  }
}
