// What the check of attention must refuse.
#include "stage7_transformer/04_attention/reference.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "stage7_transformer/04_attention/arrays_for_tests.h"
#include "stage7_transformer/04_attention/inputs.h"

using namespace attention;

// A query of the longest sequence that is printed, and of a short one. What a missing key changes
// is its probability times the difference of its value from the row's mean.
TEST_CASE("the program's check refuses one dropped key", "[harness]") {
  for (const size_t T : {4096, 256, 65}) {
    CAPTURE(T);
    Inputs in(problem_of(1, 1, 1, T, 64, true), kSpread);
    const ExpectedRow row = row_cpu({in.q.data(), in.k.data(), in.v.data()}, T, in.p,
                                    float_roundings(in.p), Terms::mean_zero);
    std::vector<size_t> by_weight = numbers_to(T);
    std::sort(by_weight.begin(), by_weight.end(),
              [&](size_t a, size_t b) { return row.probability[a] < row.probability[b]; });
    const size_t dropped = by_weight[T / 2];
    const double p = row.probability[dropped];
    Values want{row.out, row.out_error};
    std::vector<float> got(64);
    const auto refused = [&] { return against(got, want).failed; };
    for (size_t d = 0; d < 64; ++d) got[d] = static_cast<float>(row.out[d]);
    CHECK(refused() == 0);
    for (const double sign : {-1.0, 1.0}) {  // dropped, or counted twice
      for (size_t d = 0; d < 64; ++d) {
        const double value = static_cast<double>(in.v[dropped * 64 + d]);
        got[d] = static_cast<float>((row.out[d] + sign * p * value) / (1 + sign * p));
      }
      CHECK(refused() >= 8);  // of the row's 64 numbers
    }
    for (float& value : got) value = 0;
    CHECK(refused() > 32);
  }
}
