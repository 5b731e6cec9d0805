// Every version of attention for float on awkward shapes, layouts and values, within its bound; and
// causality bit by bit.
#include "stage7_transformer/04_attention/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/graph.h"
#include "stage1_vector/01_vector_add/few_blocks_for_tests.h"
#include "stage7_transformer/04_attention/arrays_for_tests.h"

namespace {

using namespace attention;
using testing::same_bits;
using Launch = LaunchOf<float>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Result {
  std::vector<float> out, lse;
  bool intact = true;
};

Result run(const Launch& version, const Inputs& in, const Arrangement& layouts = kHeadsFirst,
           hipStream_t stream = nullptr, bool captured = false) {
  const Problem& p = in.p;
  Array q(p, p.Tq, layouts.q), k(p, p.Tk, layouts.k), v(p, p.Tk, layouts.v);
  Array out(p, p.Tq, layouts.out);
  Guarded<float> lse(p.heads() * p.Tq, layouts.out.offset);
  q.fill(in.q), k.fill(in.k), v.fill(in.v);
  Guarded<float> memory(version.memory(p), 0);
  const auto launch = [&](hipStream_t on) {
    version.run(out.view(), lse.data(), q.view(), k.view(), v.view(), p, memory.data(), on);
  };
  if (captured)
    testing::run_captured(launch, 2);
  else
    launch(stream);
  HIP_CHECK(hipStreamSynchronize(stream));
  Result result{out.to_host(), lse.to_host()};
  for (const Array* array : {&q, &k, &v, &out}) result.intact &= array->intact();
  result.intact &= lse.intact() && memory.intact();
  return result;
}

Expected expect(const Inputs& in) {
  return forward_cpu(in.q, in.k, in.v, in.p, float_roundings(in.p),
                     numbers_to(in.p.heads() * in.p.Tq));
}

// The versions, and what later steps call.
std::vector<Version<Launch>> versions() {
  std::vector<Version<Launch>> all(std::begin(kVersions), std::end(kVersions));
  const Launch best{[](const View& out, float* lse, const ConstView& q, const ConstView& k,
                       const ConstView& v, const Problem& p, float*,
                       hipStream_t stream) { forward(out, lse, q, k, v, p, stream); }};
  all.push_back({"forward", best, ""});
  return all;
}

void require_right(const Inputs& in, const Arrangement& layouts) {
  const Expected want = expect(in);
  for (const auto& version : testing::chosen(versions())) {
    CAPTURE(version.name);
    const Result got = run(version.launch, in, layouts);
    REQUIRE_OK(against(got.out, want.out));
    REQUIRE_OK(against(got.lse, want.lse));
    REQUIRE(got.intact);
  }
}

// A value that is NaN, in every head.
void require_nan_where_seen(const Lengths& t) {
  Inputs in(problem_of(1, 2, t.Tq, t.Tk, t.D, true), 2);
  Values want = expect(in).out;
  const size_t token = t.Tk - 5, column = 1;
  plant(in.v, t.Tk, t.D, token, column, kNan);
  const Reach queries = reach_of_queries(in.p, Of::v, token);
  for (size_t i = 0; i < want.value.size(); ++i)
    if (i % t.D == column && i / t.D % t.Tq >= queries.first) want.value[i] = kNan;
  for (const auto& version : testing::chosen(versions())) {
    CAPTURE(version.name, t.Tq, t.Tk);
    REQUIRE_OK(against(run(version.launch, in, kPacked).out, want));
  }
}

}  // namespace

TEST_CASE("lengths, heads and layouts stay within their bounds") {
  for_lengths_and_layouts(require_right);
}

TEST_CASE("every size of a head, aligned or not") { for_sizes_of_a_head(require_right); }

TEST_CASE("more keys than queries, more queries than keys, none of either") {
  for_pairs_of_lengths(require_right);
}

TEST_CASE("a few queries and a cache in many slices") {
  size_t turn = 0;
  for (const size_t Tq : {1, 2, 4, 9})
    for (const size_t Tk : {63, 64, 65, 129, 1000}) {
      const size_t D = turn % 3 == 0 ? 32 : turn % 3 == 1 ? 64 : 130;
      const bool causal = ++turn % 3 == 0;
      CAPTURE(Tq, Tk, D, causal);
      require_right(Inputs(problem_of(1, 2, Tq, Tk, D, causal), 2),
                    turn % 2 == 0 ? kPacked : kUnaligned);
    }
}

TEST_CASE("a query that sees no key gets 0") {
  const Inputs in(problem_of(2, 3, 9, 4, 12, true));
  for (const auto& version : testing::chosen(versions())) {
    CAPTURE(version.name);
    const Result got = run(version.launch, in);
    const size_t blind = blind_queries(in.p), D = in.p.D;
    REQUIRE(blind == 5);
    for (size_t row = 0; row < in.p.heads() * in.p.Tq; ++row) {
      if (row % in.p.Tq >= blind) continue;
      REQUIRE(got.lse[row] == -kInfinity);
      for (size_t d = 0; d < D; ++d) REQUIRE(got.out[row * D + d] == 0);
    }
  }
}

TEST_CASE("scores that are too large for a float show as NaN") {
  Inputs in(problem_of(1, 2, 5, 9, 1, false));
  in.p.scale = 10;
  for (float& value : in.q) value = 1e19f;
  for (float& value : in.k) value = 1e19f;
  for (const auto& version : testing::chosen(versions())) {
    CAPTURE(version.name);
    const Result got = run(version.launch, in);
    for (size_t row = 0; row < in.p.heads() * in.p.Tq; ++row)
      REQUIRE((std::isnan(got.lse[row]) || std::isnan(got.out[row])));
  }
}

TEST_CASE("scores of ten thousand stay finite, and within the bound") {
  for (const size_t D : {8, 64}) {
    Inputs in(problem_of(1, 2, 67, 67, D, true), 1);
    // The largest score of most rows is about 1e4; first all of them, then each row's first half.
    const float scale = 200 * std::sqrt(std::sqrt(1.0f / static_cast<float>(D)));
    for (float& value : in.q) value *= scale;
    for (float& value : in.k) value *= scale;
    double largest = 0;
    for (const double lse : expect(in).lse.value) largest = std::fmax(largest, std::fabs(lse));
    REQUIRE(largest > 4e3);
    require_right(in, kPacked);
  }
}

// A maximum that begins with 0 would leave all exponentials 0.
TEST_CASE("scores that are all far below 0 are as accurate as others") {
  for (const auto& [Tq, Tk, D] : {Lengths{40, 40, 16}, {3, 300, 20}})
    for (const bool causal : {true, false}) {
      Inputs in(problem_of(1, 2, Tq, Tk, D, causal));
      for (float& value : in.q) value = 30 + value;
      for (float& value : in.k) value = value - 10;
      CAPTURE(Tq, Tk, D, causal);
      require_right(in, kPacked);
    }
}

TEST_CASE("values that are all 1 come out as 1, and rows of equal scores as means") {
  // A key that is missed, or counted twice, in one of the two sums only.
  for (const size_t T : {5, 64, 129}) {
    Inputs in(problem_of(1, 2, T, T, 16, true), 3);
    for (float& value : in.v) value = 1;
    for (const auto& version : testing::chosen(versions())) {
      CAPTURE(version.name, T);
      const double n = float_roundings(in.p).additions + 4;
      for (const float value : run(version.launch, in).out)
        REQUIRE(std::fabs(static_cast<double>(value) - 1) <= 2 * n * kFloatRoundoff);
    }
    // Equal scores, integer values: the sums are exact, and the quotient rounds at most twice.
    for (float& value : in.q) value = 0;
    for (float& value : in.v) value = std::rint(3 * value);
    std::vector<double> want;
    for (size_t row = 0; row < in.p.heads() * T; ++row)
      for (size_t d = 0; d < in.p.D; ++d) {
        double sum = 0;
        for (size_t j = 0; j <= row % T; ++j)
          sum += static_cast<double>(in.v[(row / T * T + j) * in.p.D + d]);
        want.push_back(sum / static_cast<double>(row % T + 1));
      }
    for (const auto& version : testing::chosen(versions())) {
      CAPTURE(version.name, T);
      if (std::string(version.name) == "composed") continue;  // rounds each of the probabilities
      const std::vector<float> got = run(version.launch, in).out;
      REQUIRE_OK(compare(
          got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want[i]; },
          [&](size_t i) { return 2.5 * kFloatRoundoff * std::fabs(want[i]); }));
    }
  }
}

// Equal scores, and as many keys as a power of two: the mean of integers is exact in every order.
TEST_CASE("every key counts once") {
  for (const size_t Tk : {1, 8, 64, 256})
    for (const size_t Tq : {1, 5, 70}) {
      Inputs in(problem_of(1, 2, Tq, Tk, 24, false), 0);
      for (float& value : in.v) value = std::rint(3 * value);
      Values want = expect(in).out;
      want.error.assign(want.error.size(), 0);
      for (const auto& version : testing::chosen(versions())) {
        CAPTURE(version.name, Tq, Tk);
        REQUIRE_OK(against(run(version.launch, in, kPacked).out, want));
      }
    }
}

TEST_CASE("a future token changes no earlier output, bit for bit") {
  for (const size_t changed : {1, 31, 32, 63, 64, 77}) {
    const Problem p = problem_of(1, 2, 78, 78, 16, true);
    const Inputs before(p, 3);
    Inputs after = before;
    for (size_t i = 0; i < after.q.size(); ++i)
      if (i / p.D % p.Tq >= changed) after.q[i] = 1e3f, after.k[i] = kNan, after.v[i] = -1e5f;
    for (const auto& version : testing::chosen(versions())) {
      CAPTURE(version.name, changed);
      const Result a = run(version.launch, before), b = run(version.launch, after);
      REQUIRE(same_bits(rows_of(a.out, p, p.Tq, 0, changed), rows_of(b.out, p, p.Tq, 0, changed)));
    }
  }
}

// No exercise has the product with the values. The sums that see the value are NaN, the others are
// within their bound.
TEST_CASE("NaN of a value reaches the queries that see it, and no other") {
  for (const Lengths& t : {Lengths{9, 9, 3}, {67, 90, 8}, {90, 67, 8}}) require_nan_where_seen(t);
}

// Tagged as a case that learners' kernels need not pass: exercises ask for finite numbers.
TEST_CASE("what a query does not see adds nothing to it, whatever it is", "[harness]") {
  for (const auto& [Tq, Tk, D] : kUnseenSizes) {
    const Problem p = problem_of(1, 2, Tq, Tk, D, true);
    const Inputs plain(p, 2);
    const Expected want = expect(plain);
    for (const auto& version : testing::chosen(versions())) {
      const Result before = run(version.launch, plain, kPacked);
      // Composed adds up again what a product has made NaN, in another order.
      const bool bounded = std::string(version.name) == "composed";
      size_t turn = 0;
      for (const Of array : {Of::q, Of::k, Of::v})
        for (const float special : {kNan, kInfinity}) {
          Inputs in = plain;
          std::vector<float>& values = array == Of::q ? in.q : array == Of::k ? in.k : in.v;
          const size_t T = array == Of::q ? Tq : Tk, token = (5 + 37 * turn++) % T;
          plant(values, T, D, token, turn % D, special);
          const Reach queries = reach_of_queries(p, array, token);
          CAPTURE(version.name, Tq, Tk, D, static_cast<int>(array), special, token);
          const Result after = run(version.launch, in, kPacked);
          REQUIRE(
              same_outside(before.out, after.out, bounded ? &want.out : nullptr, Tq, D, queries));
          if (array == Of::v) REQUIRE(reaches(after.out, Tq, D, queries));
        }
    }
  }
}

TEST_CASE("a small grid goes round") {
  const Inputs in(problem_of(2, 3, 21, 30, 12, true), 2), blind(problem_of(1, 2, 90, 9, 12, true));
  for (const size_t blocks : {1, 2}) {
    const vector_add::FewBlocks few(blocks);
    CAPTURE(blocks);
    require_right(in, kPacked);
    require_right(blind, kPacked);
    require_nan_where_seen({9, 9, 3});
  }
}

TEST_CASE("the same bits on every run, on any stream, and from a graph") {
  const Inputs in(problem_of(2, 2, 70, 70, 16, true), 3);
  const gpu::Stream stream;
  for (const auto& version : testing::chosen(versions())) {
    CAPTURE(version.name);
    const Result first = run(version.launch, in, kPacked);
    for (const Result& next :
         {run(version.launch, in, kPacked), run(version.launch, in, kPacked, stream),
          run(version.launch, in, kPacked, nullptr, true)})
      REQUIRE((same_bits(first.out, next.out) && same_bits(first.lse, next.lse)));
  }
}

TEST_CASE("without lse out has the same bits, with queries that see no key, too") {
  for (const auto& [Tq, Tk, D] : {Lengths{70, 70, 16}, {9, 4, 12}, {3, 0, 8}}) {
    const Inputs in(problem_of(2, 2, Tq, Tk, D, true), 3);
    for (const auto& version : testing::chosen(versions())) {
      CAPTURE(version.name, Tq, Tk);
      Array q(in.p, Tq, {}), k(in.p, Tk, {}), v(in.p, Tk, {}), out(in.p, Tq, {});
      q.fill(in.q), k.fill(in.k), v.fill(in.v);
      Guarded<float> memory(version.launch.memory(in.p), 0);
      version.launch.run(out.view(), nullptr, q.view(), k.view(), v.view(), in.p, memory.data(),
                         nullptr);
      REQUIRE(same_bits(run(version.launch, in, {{}, {}, {}, {}}).out, out.to_host()));
    }
  }
}

TEST_CASE("a query with a cache gives what it gives among all queries") {
  const Problem whole = problem_of(1, 2, 70, 70, 32, true), one = problem_of(1, 2, 1, 70, 32, true);
  const Inputs all_queries(whole, 2);
  Inputs last = all_queries;
  last.p = one;
  last.q = rows_of(all_queries.q, whole, whole.Tq, whole.Tq - 1, whole.Tq);
  for (const auto& version : testing::chosen(versions())) {
    CAPTURE(version.name);
    const Expected want = expect(last);
    REQUIRE_OK(against(run(version.launch, last).out, want.out));
    REQUIRE_OK(against(
        rows_of(run(version.launch, all_queries).out, whole, whole.Tq, whole.Tq - 1, whole.Tq),
        want.out));
  }
}

TEST_CASE("every version agrees with NumPy", "[numpy]") {
  const NpyArray q = numpy_array("q"), k = numpy_array("k");
  for (const bool causal : {true, false}) {
    Inputs in(problem_of(q.shape.at(0), q.shape.at(1), q.shape.at(2), k.shape.at(2), q.shape.at(3),
                         causal));
    in.q = narrowed(q), in.k = narrowed(k), in.v = narrowed(numpy_array("v"));
    const std::string name = causal ? "causal_" : "full_";
    const Expected want = expect(in);
    CAPTURE(causal);
    REQUIRE(agree(want.out, numpy_array(name + "out").values));
    REQUIRE(agree(want.lse, numpy_array(name + "lse").values));
    require_right(in, kPacked);
  }
}

namespace {

std::string refusal(const Problem& p, bool null_key = false, bool odd_value = false) {
  Guarded<float> d(4096, 0);
  const View view = heads_first(d.data(), p.H, 4, 4);
  View key = view, value = view;
  if (null_key) key.data = nullptr;
  if (odd_value) value.data = reinterpret_cast<float*>(reinterpret_cast<char*>(value.data) + 2);
  try {
    forward(view, nullptr, view, key, value, p);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("impossible arguments are refused in one clear line") {
  const Problem p = problem_of(1, 1, 4, 4, 4, true);
  Problem no_numbers = p, too_many = p, no_scale = p, endless = p;
  no_numbers.D = 0, too_many.D = 257, no_scale.scale = 0, endless.scale = kInfinity;
  REQUIRE(contains_text(refusal(no_numbers), "a head of 0 numbers"));
  REQUIRE(contains_text(refusal(too_many), "a head of 257 numbers"));
  REQUIRE(contains_text(refusal(no_scale), "the scale must be above 0"));
  REQUIRE(contains_text(refusal(endless), "finite"));
  REQUIRE(contains_text(refusal(p, true), "k is null"));
  REQUIRE(contains_text(refusal(p, false, true), "v is not aligned"));
}

// ---- What the checks above must catch ---------------------------------------------------------

namespace {

// Runs flash with a change to what it is told.
template <class Change>
Comparison check_changed(const Inputs& in, Change change) {
  Inputs told = in;
  change(told);
  return against(run(kVersions[std::size(kVersions) - 1].launch, told).out, expect(in).out);
}

}  // namespace

TEST_CASE("a mask off by one, a wrong scale, a missed key and swapped heads are caught",
          "[harness]") {
  const Inputs in(problem_of(1, 2, 70, 70, 16, true), 2);
  REQUIRE(check_changed(in, [](Inputs&) {}).ok);
  REQUIRE(!check_changed(in, [](Inputs& told) { told.p.causal = false; }).ok);
  REQUIRE(!check_changed(in, [](Inputs& told) { told.p.scale *= 1.0001f; }).ok);
  REQUIRE(!check_changed(in, [](Inputs& told) { told.k[5] = 0; }).ok);
  REQUIRE(!check_changed(in, [](Inputs& told) {
             const std::ptrdiff_t middle = static_cast<std::ptrdiff_t>(told.v.size() / 2);
             std::rotate(told.v.begin(), told.v.begin() + middle, told.v.end());
           }).ok);
  // The first key alone is shifted to the second query: a mask that begins one too late.
  REQUIRE(!check_changed(in, [](Inputs& told) {
             std::rotate(told.q.begin(), told.q.begin() + 16, told.q.end());
           }).ok);
}
