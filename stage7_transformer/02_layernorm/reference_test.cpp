// What the check of layernorm must refuse.
#include "stage7_transformer/02_layernorm/reference.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "stage7_transformer/02_layernorm/matrices_for_tests.h"

using namespace layernorm;

namespace {

struct Results {
  std::vector<float> y, mean, rstd;
};

bool accepted(const Results& got, const Normalized& want) {
  return together({compare_with(got.mean, want.mean, want.bound_mean),
                   compare_with(got.rstd, want.rstd, want.bound_rstd),
                   compare_with(got.y, want.y, want.bound_y)})
      .ok;
}

std::vector<float> rounded(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

// The results with `sum` in place of the sum of a row's elements, and `squares` in place of the sum
// of the squares of their differences from the mean.
template <class Change>
Results changed(const Inputs& in, Change&& change) {
  const size_t cols = in.shape.cols;
  const double n = static_cast<double>(cols);
  Results wrong;
  for (size_t row = 0; row < in.shape.rows; ++row) {
    const float* x = in.x.data() + row * cols;
    double sum = 0, squares = 0;
    for (size_t c = 0; c < cols; ++c) sum += static_cast<double>(x[c]);
    const double right = sum / n;
    for (size_t c = 0; c < cols; ++c) squares += std::pow(static_cast<double>(x[c]) - right, 2);
    // The element whose distance from the first one is the median one.
    const double first = static_cast<double>(x[0]);
    const double d =
        testing::median_term(cols, [&](size_t c) { return static_cast<double>(x[c]) - first; });
    const double e =
        testing::median_term(cols, [&](size_t c) { return static_cast<double>(x[c]) - right; });
    change(sum, squares, d, e);
    const double mean = sum / n, rstd = 1 / std::sqrt(squares / n + static_cast<double>(in.eps));
    wrong.mean.push_back(static_cast<float>(mean));
    wrong.rstd.push_back(static_cast<float>(rstd));
    for (size_t c = 0; c < cols; ++c)
      wrong.y.push_back(static_cast<float>((static_cast<double>(x[c]) - mean) * rstd *
                                               static_cast<double>(in.gain[c]) +
                                           static_cast<double>(in.bias[c])));
  }
  return wrong;
}

}  // namespace

TEST_CASE("the program's check refuses one missing element, swapped rows and zeros", "[harness]") {
  for (const size_t cols : {4096, 1024, 384, 131, 64}) {  // what is printed
    CAPTURE(cols);
    const Inputs in({4, cols}, 4, 1.5f);
    const Normalized want = forward_cpu(in.x, in.gain, in.bias, cols, in.eps);
    REQUIRE(accepted({rounded(want.y), rounded(want.mean), rounded(want.rstd)}, want));
    const auto refused = [&](auto&& change) { return !accepted(changed(in, change), want); };
    CHECK(!refused([](double&, double&, double, double) {}));
    CHECK(refused([](double& sum, double&, double d, double) { sum -= d; }));
    CHECK(refused([](double& sum, double&, double d, double) { sum += d; }));
    CHECK(refused([](double&, double& squares, double, double e) { squares -= e * e; }));
    CHECK(refused([](double&, double& squares, double, double e) { squares += e * e; }));
    Results swapped{rounded(want.y), rounded(want.mean), rounded(want.rstd)};
    std::swap_ranges(swapped.y.begin(), swapped.y.begin() + static_cast<std::ptrdiff_t>(cols),
                     swapped.y.begin() + static_cast<std::ptrdiff_t>(cols));
    CHECK(!accepted(swapped, want));
    const std::vector<float> none(4), zeros(4 * cols);
    CHECK(!accepted({zeros, none, none}, want));
  }
}

// Each in float, as a kernel would make it.
TEST_CASE("planted mistakes are caught", "[harness]") {
  enum class Mistake {
    none,
    difference_of_squares,
    divided_by_one_less,
    eps_outside,
    last_missing,
    exchanged
  };
  const auto caught = [](const Inputs& in, Mistake mistake) {
    const size_t cols = in.shape.cols;
    Results got;
    for (size_t row = 0; row < in.shape.rows; ++row) {
      const float* x = in.x.data() + row * cols;
      const size_t counted = mistake == Mistake::last_missing ? cols - 1 : cols;
      float sum = 0, squares = 0;
      for (size_t c = 0; c < counted; ++c) sum += x[c];
      const float n = static_cast<float>(cols), mean = sum / n;
      const float from = mistake == Mistake::difference_of_squares ? 0 : mean;
      for (size_t c = 0; c < counted; ++c) squares += (x[c] - from) * (x[c] - from);
      float variance = squares / (mistake == Mistake::divided_by_one_less ? n - 1 : n);
      if (mistake == Mistake::difference_of_squares) variance -= mean * mean;
      const float rstd = mistake == Mistake::eps_outside ? 1 / (std::sqrt(variance) + in.eps)
                                                         : 1 / std::sqrt(variance + in.eps);
      got.mean.push_back(mean), got.rstd.push_back(rstd);
      for (size_t c = 0; c < cols; ++c) {
        const bool exchanged = mistake == Mistake::exchanged;
        got.y.push_back((x[c] - mean) * rstd * (exchanged ? in.bias : in.gain)[c] +
                        (exchanged ? in.gain : in.bias)[c]);
      }
    }
    return !accepted(got, forward_cpu(in.x, in.gain, in.bias, cols, in.eps));
  };
  Inputs in({3, 300});
  const Inputs far({3, 300}, 1, 100);
  in.eps = 0.25f;
  CHECK(!caught(in, Mistake::none));
  CHECK(caught(far, Mistake::difference_of_squares));
  for (const Mistake mistake : {Mistake::divided_by_one_less, Mistake::eps_outside,
                                Mistake::last_missing, Mistake::exchanged})
    CHECK(caught(in, mistake));
}
