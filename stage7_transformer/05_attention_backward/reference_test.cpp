// What the check of attention's gradients must refuse.
#include "stage7_transformer/05_attention_backward/reference.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "stage7_transformer/04_attention/arrays_for_tests.h"
#include "stage7_transformer/04_attention/inputs.h"

using namespace attention_backward;
using attention::Inputs;

// The last query and the middle key of the longest sequence that is printed, and of short ones. A
// pair adds scale dS K to its query's gradient, scale dS Q to its key's and P grad_out to its
// value's. The pair that goes is one of the middle: half of the others weigh less.
TEST_CASE("the program's check refuses one dropped pair", "[harness]") {
  constexpr size_t D = 64;
  for (const size_t T : {4096, 256, 65}) {
    CAPTURE(T);
    const Inputs in(attention::problem_of(1, 1, T, T, D, true), attention::kSpread);
    const attention::Roundings roundings = attention::float_roundings(in.p);
    const ExpectedGradients want =
        backward_cpu({in.q.data(), in.k.data(), in.v.data(), in.grad_out.data()}, in.p, roundings,
                     {T - 1}, {T / 2}, Terms::mean_zero);
    struct Pair {
      size_t query, key;
      double probability, slope;
    };
    const auto median = [](std::vector<Pair> pairs) {
      std::sort(pairs.begin(), pairs.end(),
                [](const Pair& a, const Pair& b) { return a.probability < b.probability; });
      return pairs[pairs.size() / 2];
    };
    const auto pairs_of = [&](size_t query, const std::vector<size_t>& keys) {
      const float* grad_out = in.grad_out.data() + query * D;
      const attention::ExpectedRow row =
          attention::row_cpu({in.q.data() + query * D, in.k.data(), in.v.data()}, query + 1, in.p,
                             roundings, Terms::mean_zero);
      double delta = 0;
      for (size_t d = 0; d < D; ++d) delta += static_cast<double>(grad_out[d]) * row.out[d];
      std::vector<Pair> pairs;
      for (const size_t key : keys)
        pairs.push_back({query, key, row.probability[key],
                         attention::dot_row(grad_out, in.v.data() + key * D, D).value - delta});
      return pairs;
    };
    const Pair of_query = median(pairs_of(T - 1, attention::numbers_to(T)));
    std::vector<Pair> pairs_of_key;
    for (size_t query = T * 3 / 4; query < T * 3 / 4 + 9; ++query)
      pairs_of_key.push_back(pairs_of(query, {T / 2}).front());
    const Pair of_key = median(pairs_of_key);

    // How many of a row's numbers are refused without `factor` times the row `other`.
    const auto refused = [&](const Values& expected, double factor, const float* other) {
      std::vector<float> got(D);
      for (size_t d = 0; d < D; ++d)
        got[d] = static_cast<float>(expected.value[d] - factor * static_cast<double>(other[d]));
      return dense::against(got, expected).failed;
    };
    const double scale = static_cast<double>(in.p.scale);
    const auto of_scores = [&](const Pair& pair) { return scale * pair.probability * pair.slope; };
    const float *k = in.k.data() + of_query.key * D, *q = in.q.data() + of_key.query * D,
                *grad_out = in.grad_out.data() + of_key.query * D;
    CHECK(refused(want.q, 0, k) + refused(want.k, 0, q) + refused(want.v, 0, grad_out) == 0);
    CHECK(refused(want.q, of_scores(of_query), k) >= 8);  // of the row's 64 numbers
    CHECK(refused(want.k, of_scores(of_key), q) >= 8);
    CHECK(refused(want.v, of_key.probability, grad_out) >= 8);
  }
}
