// Every version of attention, forwards and backwards, on awkward shapes, layouts and values, within
// its bound; causality bit by bit; and the gradients against finite differences.
#include "stage7_transformer/04_attention/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/guarded.h"
#include "common/npy.h"
#include "common/random.h"
#include "common/testing.h"
#include "stage2_matrix/04_gemm_mixed/reference.h"
#include "stage5_training/03_gradient_check/gradient_check.h"
#include "stage7_transformer/04_attention/attention_sm80.h"

namespace {

using namespace attention;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Problem problem(size_t B, size_t H, size_t Tq, size_t Tk, size_t D, bool causal) {
  return {B, H, Tq, Tk, D, causal, 1 / std::sqrt(static_cast<float>(D))};
}

using testing::random_floats;
using testing::same_bits;

std::vector<size_t> all(size_t n) {
  std::vector<size_t> numbers(n);
  std::iota(numbers.begin(), numbers.end(), size_t{0});
  return numbers;
}

// Arrays (B, H, T, D) on the host.
struct Inputs {
  explicit Inputs(const Problem& sizes, float scale = 1)
      : p(sizes),
        q(random_floats(p.heads() * p.Tq * p.D, 0, scale)),
        k(random_floats(p.heads() * p.Tk * p.D, 1, scale)),
        v(random_floats(p.heads() * p.Tk * p.D, 2)),
        grad_out(random_floats(p.heads() * p.Tq * p.D, 3)) {}

  Problem p;
  std::vector<float> q, k, v, grad_out;
};

// Where an array lies: heads one after the other, or part of an array (B, T, parts, H, D).
struct Layout {
  bool rows_first = false;
  size_t parts = 1, part = 0, offset = 0;
};

// An array (B, H, T, D) in the device memory of such a layout. What belongs to other parts holds
// 12345, and must go on doing so.
class Array {
 public:
  Array(const Problem& p, size_t T, const Layout& layout)
      : p_(p), T_(T), layout_(layout), memory_(p.heads() * T * p.D * layout.parts, layout.offset) {
    fill(std::vector<float>(p.heads() * T * p.D, kNan));
  }
  void fill(const std::vector<float>& values) {
    std::vector<float> content(memory_.size(), kFiller);
    for (size_t i = 0; i < values.size(); ++i) content[place(i)] = values[i];
    if (!content.empty())
      HIP_CHECK(hipMemcpy(memory_.data(), content.data(), content.size() * sizeof(float),
                          hipMemcpyHostToDevice));
  }
  View view() {
    return layout_.rows_first
               ? rows_first(memory_.data(), T_, p_.H, p_.D, layout_.parts, layout_.part)
               : heads_first(memory_.data(), p_.H, T_, p_.D);
  }
  std::vector<float> to_host() const {
    const std::vector<float> content = memory_.to_host();
    std::vector<float> values(p_.heads() * T_ * p_.D);
    for (size_t i = 0; i < values.size(); ++i) values[i] = content[place(i)];
    return values;
  }
  bool intact() const {
    std::vector<float> content = memory_.to_host();
    for (size_t i = 0; i < p_.heads() * T_ * p_.D; ++i) content[place(i)] = kFiller;
    for (const float value : content)
      if (value != kFiller) return false;
    return memory_.intact();
  }

 private:
  static constexpr float kFiller = 12345;
  // Of element i of (B, H, T, D).
  size_t place(size_t i) const {
    if (!layout_.rows_first) return i;
    const size_t d = i % p_.D, row = i / p_.D, t = row % T_, head = row / T_;
    const size_t token = head / p_.H * T_ + t;
    return ((token * layout_.parts + layout_.part) * p_.H + head % p_.H) * p_.D + d;
  }

  Problem p_;
  size_t T_;
  Layout layout_;
  Guarded<float> memory_;
};

struct Layouts {
  Layout q, k, v, out;
};
constexpr Layouts kHeadsFirst = {};
constexpr Layouts kPacked = {{true, 3, 0, 0}, {true, 3, 1, 0}, {true, 3, 2, 0}, {true, 1, 0, 0}};
constexpr Layouts kUnaligned = {
    {true, 3, 0, 1}, {true, 2, 0, 2}, {false, 1, 0, 3}, {true, 1, 0, 1}};

struct Result {
  std::vector<float> out, lse, grad_q, grad_k, grad_v;
  bool intact = true;
};

// Forwards, and backwards where `version` can and grad_out is wanted.
Result run(const Launch& version, const Inputs& in, const Layouts& layouts = kHeadsFirst,
           bool with_backward = false, hipStream_t stream = nullptr) {
  const Problem& p = in.p;
  Array q(p, p.Tq, layouts.q), k(p, p.Tk, layouts.k), v(p, p.Tk, layouts.v);
  Array out(p, p.Tq, layouts.out);
  Guarded<float> lse(p.heads() * p.Tq, layouts.out.offset);
  q.fill(in.q), k.fill(in.k), v.fill(in.v);
  Workspace forward_workspace(p, version.forward_keeps);
  version.forward(out.view(), lse.data(), q.view(), k.view(), v.view(), p, forward_workspace,
                  stream);
  HIP_CHECK(hipStreamSynchronize(stream));
  Result result{out.to_host(), lse.to_host(), {}, {}, {}};
  for (const Array* array : {&q, &k, &v, &out}) result.intact &= array->intact();
  result.intact &= lse.intact();
  if (!with_backward || version.backward == nullptr) return result;

  Array grad_out(p, p.Tq, layouts.out), grad_q(p, p.Tq, layouts.q), grad_k(p, p.Tk, layouts.k);
  Array grad_v(p, p.Tk, layouts.v);
  grad_out.fill(in.grad_out);
  Workspace workspace(p, version.backward_keeps);
  version.backward(grad_q.view(), grad_k.view(), grad_v.view(), grad_out.view(), out.view(),
                   lse.data(), q.view(), k.view(), v.view(), p, workspace, stream);
  HIP_CHECK(hipStreamSynchronize(stream));
  result.grad_q = grad_q.to_host(), result.grad_k = grad_k.to_host();
  result.grad_v = grad_v.to_host();
  for (const Array* array : {&grad_out, &grad_q, &grad_k, &grad_v})
    result.intact &= array->intact();
  return result;
}

Comparison compare_with(const std::vector<float>& got, const Values& want) {
  Comparison result = compare(
      got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want.value[i]; },
      [&](size_t i) { return want.error[i]; });
  result.ok = result.ok && got.size() == want.value.size();
  return result;
}

Expected expected_forward(const Inputs& in, const Roundings& roundings) {
  return forward_cpu(in.q, in.k, in.v, in.p, roundings, all(in.p.heads() * in.p.Tq));
}

ExpectedGradients expected_gradients(const Inputs& in, const Roundings& roundings) {
  const Problem& p = in.p;
  ExpectedGradients want;
  for (size_t head = 0; head < p.heads(); ++head) {
    const size_t queries = head * p.Tq * p.D, keys = head * p.Tk * p.D;
    const ExpectedGradients part = backward_cpu({in.q.data() + queries, in.k.data() + keys,
                                                 in.v.data() + keys, in.grad_out.data() + queries},
                                                p, roundings, all(p.Tq), all(p.Tk));
    const auto append = [](Values& to, const Values& from) {
      to.value.insert(to.value.end(), from.value.begin(), from.value.end());
      to.error.insert(to.error.end(), from.error.begin(), from.error.end());
    };
    append(want.q, part.q), append(want.k, part.k), append(want.v, part.v);
  }
  return want;
}

// The versions, and the entries for later stages.
std::vector<Version<Launch>> versions() {
  std::vector<Version<Launch>> all(std::begin(kVersions), std::end(kVersions));
  Launch best = all.back().launch;
  best.forward = [](const View& out, float* lse, const ConstView& q, const ConstView& k,
                    const ConstView& v, const Problem& p, Workspace&,
                    hipStream_t stream) { forward(out, lse, q, k, v, p, stream); };
  all.push_back({"forward and backward", best, ""});
  return all;
}

void require_right(const Inputs& in, const Layouts& layouts, bool with_backward) {
  for (const auto& version : testing::chosen(versions())) {
    CAPTURE(version.name);
    const Roundings roundings = version.launch.roundings(in.p);
    const Expected want = expected_forward(in, roundings);
    const Result got = run(version.launch, in, layouts, with_backward);
    REQUIRE_OK(compare_with(got.out, want.out));
    REQUIRE_OK(compare_with(got.lse, want.lse));
    REQUIRE(got.intact);
    if (!with_backward || version.launch.backward == nullptr) continue;
    const ExpectedGradients gradients = expected_gradients(in, roundings);
    REQUIRE_OK(compare_with(got.grad_q, gradients.q));
    REQUIRE_OK(compare_with(got.grad_k, gradients.k));
    REQUIRE_OK(compare_with(got.grad_v, gradients.v));
  }
}

}  // namespace

TEST_CASE("lengths, heads and layouts, forwards and backwards, within their bounds") {
  for (const size_t T : {1, 2, 31, 127, 128, 129})
    for (const bool causal : {true, false}) {
      const Problem p = problem(1, T < 100 ? 3 : 1, T, T, 16, causal);
      CAPTURE(T, causal);
      require_right(Inputs(p, 3), kPacked, true);
    }
  require_right(Inputs(problem(2, 4, 31, 31, 20, true), 3), kHeadsFirst, true);
  require_right(Inputs(problem(3, 2, 33, 33, 8, false), 3), kUnaligned, true);
  require_right(Inputs(problem(1, 1, 500, 500, 16, true), 3), kPacked, true);
}

TEST_CASE("every size of a head, aligned or not") {
  for (const size_t D : {1, 2, 3, 7, 15, 16, 17, 24, 32, 33, 64, 65, 80, 128, 129, 200, 255, 256})
    for (const bool aligned : {true, false}) {
      CAPTURE(D, aligned);
      const Problem p = problem(1, 2, 19, 19, D, true);
      require_right(Inputs(p, 2), aligned ? kPacked : kUnaligned, true);
    }
}

TEST_CASE("more keys than queries, more queries than keys, none of either") {
  struct Lengths {
    size_t Tq, Tk;
  };
  for (const auto& [Tq, Tk] : {Lengths{1, 1},
                               {1, 37},
                               {2, 70},
                               {1, 300},
                               {5, 130},
                               {70, 1},
                               {70, 5},
                               {90, 67},
                               {66, 131},
                               {3, 0},
                               {0, 3},
                               {0, 0}})
    for (const bool causal : {true, false}) {
      CAPTURE(Tq, Tk, causal);
      require_right(Inputs(problem(2, 2, Tq, Tk, 16, causal), 3), kPacked, true);
    }
}

TEST_CASE("a query that sees no key gets 0, and gives no gradient") {
  const Inputs in(problem(2, 3, 9, 4, 12, true));
  for (const auto& version : testing::chosen(versions())) {
    CAPTURE(version.name);
    const Result got = run(version.launch, in, kHeadsFirst, true);
    const size_t blind = blind_queries(in.p), D = in.p.D;
    REQUIRE(blind == 5);
    for (size_t row = 0; row < in.p.heads() * in.p.Tq; ++row) {
      if (row % in.p.Tq >= blind) continue;
      REQUIRE(got.lse[row] == -kInfinity);
      for (size_t d = 0; d < D; ++d) REQUIRE(got.out[row * D + d] == 0);
      for (size_t d = 0; d < D && !got.grad_q.empty(); ++d) REQUIRE(got.grad_q[row * D + d] == 0);
    }
  }
}

TEST_CASE("scores of ten thousand stay finite, and within the bound") {
  for (const size_t D : {8, 64}) {
    Inputs in(problem(1, 2, 67, 67, D, true), 1);
    // The largest score of most rows is about 1e4; first all of them, then each row's first half.
    const float scale = 200 * std::sqrt(std::sqrt(1.0f / static_cast<float>(D)));
    for (float& value : in.q) value *= scale;
    for (float& value : in.k) value *= scale;
    double largest = 0;
    for (const double lse : expected_forward(in, {1, 67}).lse.value)
      largest = std::fmax(largest, std::fabs(lse));
    REQUIRE(largest > 4e3);
    require_right(in, kPacked, true);
  }
}

TEST_CASE("values that are all 1 come out as 1, and rows of equal scores as means") {
  // A key that is missed, or counted twice, in one of the two sums only.
  for (const size_t T : {5, 64, 129}) {
    Inputs in(problem(1, 2, T, T, 16, true), 3);
    for (float& value : in.v) value = 1;
    for (const auto& version : testing::chosen(versions())) {
      CAPTURE(version.name, T);
      const double n = version.launch.roundings(in.p).additions + 4;
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

namespace {

// Rows [first, last) of every head.
std::vector<float> rows_of(const std::vector<float>& values, const Problem& p, size_t T,
                           size_t first, size_t last) {
  std::vector<float> rows;
  for (size_t i = 0; i < values.size(); ++i)
    if (i / p.D % T >= first && i / p.D % T < last) rows.push_back(values[i]);
  return rows;
}

}  // namespace

TEST_CASE("a future token changes no earlier output, bit for bit") {
  for (const size_t changed : {1, 31, 32, 63, 64, 77}) {
    const Problem p = problem(1, 2, 78, 78, 16, true);
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

namespace {

enum class Of { q, k, v, grad_out };

// The rows [first, last) of each head that row `token` of an array has to do with: of out and
// grad_q, then of grad_k and grad_v. A query's numbers reach its own row and, backwards, the keys
// that it sees; a key's reach the queries that see it and, through their softmax, all keys that
// these see.
struct Reach {
  size_t first, last;
};
Reach reach_of_queries(const Problem& p, Of array, size_t token) {
  if (array == Of::q || array == Of::grad_out) return {token, token + 1};
  const size_t first = token + p.Tq < p.Tk ? 0 : token + p.Tq - p.Tk;
  return {first, p.Tq};
}
Reach reach_of_keys(const Problem& p, Of array, size_t token) {
  return {0, visible_keys(p, array == Of::q || array == Of::grad_out ? token : p.Tq - 1)};
}

float as_float(float value) { return value; }
float as_float(gpu::bfloat16 value) { return gpu::to_float(value); }

// Do all rows but these have the same bits, in every head? Of `want` (unless it is null), are they
// within their bounds?
template <class T>
bool same_outside(const std::vector<T>& before, const std::vector<T>& after, const Values* want,
                  size_t length, size_t D, Reach may_change) {
  for (size_t i = 0; i < before.size(); ++i) {
    const size_t row = i / D % length;
    if (row >= may_change.first && row < may_change.last) continue;
    if (std::memcmp(&before[i], &after[i], sizeof(T)) == 0) continue;
    if (want == nullptr) return false;
    const double off = static_cast<double>(as_float(after[i])) - want->value[i];
    if (!(std::fabs(off) <= want->error[i])) return false;
  }
  return true;
}
// Is something in each of these rows not finite?
template <class T>
bool reaches(const std::vector<T>& values, size_t length, size_t D, Reach rows) {
  for (size_t row = 0; row < values.size() / D; ++row) {
    if (row % length < rows.first || row % length >= rows.last) continue;
    bool finite = true;
    for (size_t d = 0; d < D; ++d) finite = finite && std::isfinite(as_float(values[row * D + d]));
    if (finite) return false;
  }
  return true;
}

// Puts `special` in column `column` of row `token` of every head.
template <class T>
void plant(std::vector<T>& values, size_t length, size_t D, size_t token, size_t column,
           T special) {
  for (size_t row = token; row < values.size() / D; row += length)
    values[row * D + column] = special;
}

}  // namespace

// Tagged as a case that learners' kernels need not pass: exercises ask for finite numbers.
TEST_CASE("what a query does not see adds nothing to it, whatever it is, forwards and backwards",
          "[harness]") {
  struct Sizes {
    size_t Tq, Tk, D;
  };
  for (const auto& [Tq, Tk, D] : {Sizes{9, 9, 3},
                                  {70, 70, 16},
                                  {131, 131, 32},
                                  {67, 90, 64},
                                  {90, 67, 64},
                                  {40, 40, 128},
                                  {37, 37, 200}}) {
    const Problem p = problem(1, 2, Tq, Tk, D, true);
    const Inputs plain(p, 2);
    for (const auto& version : testing::chosen(versions())) {
      const Result before = run(version.launch, plain, kPacked, true);
      // Composed adds up again what a product has made NaN, in another order.
      const bool bounded = std::string(version.name) == "composed";
      const Roundings roundings = version.launch.roundings(p);
      const Expected want = bounded ? expected_forward(plain, roundings) : Expected{};
      const ExpectedGradients of =
          bounded ? expected_gradients(plain, roundings) : ExpectedGradients{};
      size_t turn = 0;
      for (const Of array : {Of::q, Of::k, Of::v, Of::grad_out})
        for (const float special : {kNan, kInfinity}) {
          Inputs in = plain;
          const bool of_key = array == Of::k || array == Of::v;
          std::vector<float>& values = array == Of::q   ? in.q
                                       : array == Of::k ? in.k
                                       : array == Of::v ? in.v
                                                        : in.grad_out;
          const size_t T = of_key ? Tk : Tq, token = (5 + 37 * turn++) % T;
          plant(values, T, D, token, turn % D, special);
          const Reach queries = reach_of_queries(p, array, token);
          const Reach keys = reach_of_keys(p, array, token);
          CAPTURE(version.name, Tq, Tk, D, static_cast<int>(array), special, token);
          const Result after = run(version.launch, in, kPacked, true);
          REQUIRE(same_outside(before.out, after.out, bounded ? &want.out : nullptr, Tq, D,
                               array == Of::grad_out ? Reach{0, 0} : queries));
          if (array == Of::v) REQUIRE(reaches(after.out, Tq, D, queries));
          if (version.launch.backward == nullptr) continue;
          REQUIRE(
              same_outside(before.grad_q, after.grad_q, bounded ? &of.q : nullptr, Tq, D, queries));
          REQUIRE(
              same_outside(before.grad_k, after.grad_k, bounded ? &of.k : nullptr, Tk, D, keys));
          REQUIRE(same_outside(before.grad_v, after.grad_v, bounded ? &of.v : nullptr, Tk, D,
                               array == Of::v ? Reach{0, 0} : keys));
          if (array == Of::v) REQUIRE(reaches(after.grad_q, Tq, D, queries));
          if (array == Of::grad_out) REQUIRE(reaches(after.grad_v, Tk, D, keys));
        }
    }
  }
}

TEST_CASE("the same bits on every run, on any stream, and without lse") {
  const Inputs in(problem(2, 2, 70, 70, 16, true), 3);
  hipStream_t stream;
  HIP_CHECK(hipStreamCreate(&stream));
  for (const auto& version : testing::chosen(versions())) {
    CAPTURE(version.name);
    const Result first = run(version.launch, in, kPacked, true);
    for (int again = 0; again < 3; ++again) {
      const Result next = run(version.launch, in, kPacked, true, again == 0 ? nullptr : stream);
      REQUIRE(same_bits(first.out, next.out));
      REQUIRE(same_bits(first.lse, next.lse));
      REQUIRE(same_bits(first.grad_q, next.grad_q));
      REQUIRE(same_bits(first.grad_k, next.grad_k));
      REQUIRE(same_bits(first.grad_v, next.grad_v));
    }
    Array q(in.p, 70, {}), k(in.p, 70, {}), v(in.p, 70, {}), out(in.p, 70, {});
    q.fill(in.q), k.fill(in.k), v.fill(in.v);
    Workspace workspace(in.p, version.launch.forward_keeps);
    version.launch.forward(out.view(), nullptr, q.view(), k.view(), v.view(), in.p, workspace,
                           nullptr);
    REQUIRE(same_bits(first.out, out.to_host()));
  }
  HIP_CHECK(hipStreamDestroy(stream));
}

TEST_CASE("a query with a cache gives what it gives among all queries") {
  const Problem whole = problem(1, 2, 70, 70, 32, true), one = problem(1, 2, 1, 70, 32, true);
  const Inputs all_queries(whole, 2);
  Inputs last = all_queries;
  last.p = one;
  last.q = rows_of(all_queries.q, whole, whole.Tq, whole.Tq - 1, whole.Tq);
  for (const auto& version : testing::chosen(versions())) {
    CAPTURE(version.name);
    const Expected want =
        forward_cpu(last.q, last.k, last.v, one, version.launch.roundings(one), all(one.heads()));
    REQUIRE_OK(compare_with(run(version.launch, last).out, want.out));
    REQUIRE_OK(compare_with(
        rows_of(run(version.launch, all_queries).out, whole, whole.Tq, whole.Tq - 1, whole.Tq),
        want.out));
  }
}

namespace {

template <class... Tiles, class Check>
bool all_of(Candidates<Tiles...>, Check check) {
  return (check(Tiles{}) && ...);
}

}  // namespace

TEST_CASE("every tile of every size of a head") {
  // What a device with little shared memory, or few rows, would not run; the CPU backend runs all
  // that fit.
  const auto check_all = [](auto head) {
    constexpr int kHead = head();
    const Inputs in(problem(1, 1, 70, 70, kHead, true), 2);
    Array q(in.p, 70, {}), k(in.p, 70, {}), v(in.p, 70, {}), out(in.p, 70, {});
    q.fill(in.q), k.fill(in.k), v.fill(in.v);
    const Expected want = expected_forward(in, roundings_flash(in.p));
    const auto check_tile = [&](auto tile) {
      using Tile = decltype(tile);
      constexpr size_t kBytes = sizeof(ForwardTiles<Tile>);
      if (kBytes > gpu::max_shared_bytes()) return true;
      gpu::allow_shared_bytes(flash_forward<Tile, true>, kBytes);
      gpu::poison(out.view().data, in.q.size() * sizeof(float));
      LAUNCH((flash_forward<Tile, true>), static_cast<unsigned>(gpu::ceil_div(70, Tile::kOwn)),
             Tile::kThreads, kBytes, out.view(), static_cast<float*>(nullptr), q.view(), k.view(),
             v.view(), in.p);
      return compare_with(out.to_host(), want.out).ok;
    };
    return all_of(typename ForwardCandidates<kHead>::List{}, check_tile);
  };
  REQUIRE(check_all(std::integral_constant<int, 16>{}));
  REQUIRE(check_all(std::integral_constant<int, 32>{}));
  REQUIRE(check_all(std::integral_constant<int, 64>{}));
  REQUIRE(check_all(std::integral_constant<int, 128>{}));
  REQUIRE(check_all(std::integral_constant<int, 256>{}));
}

TEST_CASE("every version agrees with NumPy", "[numpy]") {
  const auto read = [](const std::string& name) {
    return read_npy(reference_path("attention_" + name + ".npy"));
  };
  const NpyArray q = read("q"), k = read("k");
  for (const bool causal : {true, false}) {
    Inputs in(
        problem(q.shape.at(0), q.shape.at(1), q.shape.at(2), k.shape.at(2), q.shape.at(3), causal));
    const auto narrow = [](const NpyArray& array) {
      return std::vector<float>(array.values.begin(), array.values.end());
    };
    in.q = narrow(q), in.k = narrow(k), in.v = narrow(read("v"));
    in.grad_out = narrow(read("grad_out"));
    const std::string name = causal ? "causal_" : "full_";
    // Both are sums of some dozen numbers of order 1 to 10, in double.
    const auto agree = [&](const Values& ours, const std::string& array) {
      const std::vector<double> numpy = read(name + array).values;
      bool same = ours.value.size() == numpy.size();
      for (size_t i = 0; same && i < numpy.size(); ++i)
        same = std::fabs(ours.value[i] - numpy[i]) <= 1e-12 * (1 + std::fabs(numpy[i]));
      return same;
    };
    const Expected want = expected_forward(in, roundings_flash(in.p));
    const ExpectedGradients gradients = expected_gradients(in, roundings_flash(in.p));
    CAPTURE(causal);
    REQUIRE(agree(want.out, "out"));
    REQUIRE(agree(want.lse, "lse"));
    REQUIRE(agree(gradients.q, "grad_q"));
    REQUIRE(agree(gradients.k, "grad_k"));
    REQUIRE(agree(gradients.v, "grad_v"));
    require_right(in, kPacked, true);
  }
}

TEST_CASE("the gradients are slopes") {
  for (const bool causal : {true, false}) {
    const Problem p = problem(1, 2, 4, 6, 3, causal);
    const Inputs in(p);
    const auto loss = [=](const std::vector<std::vector<double>>& values) {
      double sum = 0;
      for (size_t row = 0; row < p.heads() * p.Tq; ++row) {
        const size_t seen = visible_keys(p, row % p.Tq), keys = row / p.Tq * p.Tk * p.D;
        double total = 0, weighted = 0;
        for (size_t j = 0; j < seen; ++j) {
          double score = 0, along = 0;
          for (size_t d = 0; d < p.D; ++d) {
            score += values[0][row * p.D + d] * values[1][keys + j * p.D + d];
            along +=
                static_cast<double>(in.grad_out[row * p.D + d]) * values[2][keys + j * p.D + d];
          }
          const double e = std::exp(static_cast<double>(p.scale) * score);
          total += e, weighted += e * along;
        }
        sum += weighted / total;
      }
      return sum;
    };
    for (const auto& version : testing::chosen(kVersions)) {
      if (version.launch.backward == nullptr) continue;
      gradient_check::Case c;
      c.arguments = {{"q", {p.H, p.Tq, p.D}, in.q},
                     {"k", {p.H, p.Tk, p.D}, in.k},
                     {"v", {p.H, p.Tk, p.D}, in.v}};
      c.loss = loss;
      c.backward = [&](const std::vector<float*>& gradients, const std::vector<const float*>&) {
        const Result got = run(version.launch, in, kHeadsFirst, true);
        const std::vector<float>* const from[] = {&got.grad_q, &got.grad_k, &got.grad_v};
        for (size_t i = 0; i < 3; ++i)
          HIP_CHECK(hipMemcpy(gradients[i], from[i]->data(), from[i]->size() * sizeof(float),
                              hipMemcpyHostToDevice));
      };
      const gradient_check::Finding worst = gradient_check::check(c);
      CAPTURE(version.name, causal, worst.argument, worst.index, worst.analytic, worst.numeric);
      REQUIRE(worst.ok);
      REQUIRE(worst.checked == in.q.size() + in.k.size() + in.v.size());
    }
  }
}

TEST_CASE("flash can be captured in a graph: it allocates nothing and waits for nothing") {
  const Inputs in(problem(1, 2, 40, 40, 16, true), 2);
  Array q(in.p, 40, {}), k(in.p, 40, {}), v(in.p, 40, {}), out(in.p, 40, {});
  Array grad_out(in.p, 40, {}), grad_q(in.p, 40, {}), grad_k(in.p, 40, {}), grad_v(in.p, 40, {});
  Guarded<float> lse(in.p.heads() * in.p.Tq, 0);
  q.fill(in.q), k.fill(in.k), v.fill(in.v), grad_out.fill(in.grad_out);
  Workspace workspace(in.p);
  testing::run_captured(
      [&](hipStream_t stream) {
        forward(out.view(), lse.data(), q.view(), k.view(), v.view(), in.p, stream);
        backward(grad_q.view(), grad_k.view(), grad_v.view(), grad_out.view(), out.view(),
                 lse.data(), q.view(), k.view(), v.view(), in.p, workspace, stream);
      },
      2);
  const Result want = run(kVersions[std::size(kVersions) - 1].launch, in, kHeadsFirst, true);
  REQUIRE(same_bits(out.to_host(), want.out));
  REQUIRE(same_bits(grad_q.to_host(), want.grad_q));
  REQUIRE(same_bits(grad_k.to_host(), want.grad_k));
  REQUIRE(same_bits(grad_v.to_host(), want.grad_v));
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
  const Problem p = problem(1, 1, 4, 4, 4, true);
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
  const Expected want = expected_forward(in, roundings_flash(in.p));
  const Result got = run(kVersions[std::size(kVersions) - 1].launch, told);
  return compare_with(got.out, want.out);
}

}  // namespace

TEST_CASE("a mask off by one, a wrong scale, a missed key and swapped heads are caught",
          "[harness]") {
  const Inputs in(problem(1, 2, 70, 70, 16, true), 2);
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

// ---- flash_bf16: the rung for the matrix instructions of sm_80 ----------------------------------

namespace bf16 {

using attention::Problem;
using gpu::bfloat16;

// How the rows of q, k, v and out lie in memory, and how many elements behind a 16-byte boundary
// they begin.
struct Layout {
  bool packed = false;  // (B, T, 3, H, D), else (B, H, T, D)
  size_t offset = 0;
};

double to_double(bfloat16 value) { return static_cast<double>(gpu::to_float(value)); }
double visible(const Problem& p, size_t row) {
  return p.causal ? std::min(static_cast<double>(p.Tk), static_cast<double>(row + 1) +
                                                            static_cast<double>(p.Tk) -
                                                            static_cast<double>(p.Tq))
                  : static_cast<double>(p.Tk);
}

// Values and what each may be off.
struct Values {
  std::vector<double> value, error;
  explicit Values(size_t n) : value(n), error(n) {}
  Comparison compare(const std::vector<double>& got) const {
    return ::compare(
        value.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return value[i]; },
        [&](size_t i) { return error[i]; });
  }
};

// One attention: its inputs on the host, (B, H, T, D), each bf16 exactly.
struct Inputs {
  Problem problem;
  std::vector<bfloat16> q, k, v, grad_out;
};

Inputs random_inputs(const Problem& problem, float largest = 1) {
  const size_t heads = problem.B * problem.H;
  Inputs in{problem, std::vector<bfloat16>(heads * problem.Tq * problem.D),
            std::vector<bfloat16>(heads * problem.Tk * problem.D),
            std::vector<bfloat16>(heads * problem.Tk * problem.D),
            std::vector<bfloat16>(heads * problem.Tq * problem.D)};
  std::uint32_t stream = 0;
  for (std::vector<bfloat16>* values : {&in.q, &in.k, &in.v, &in.grad_out}) {
    const float factor = stream < 2 ? largest : 1;
    for (size_t i = 0; i < values->size(); ++i)
      (*values)[i] = gpu::from_float<bfloat16>(factor * random_numbers::uniform(11, stream, i));
    ++stream;
  }
  return in;
}

struct Reference {
  Values out, lse;
};

// The attention in double, and how far the kernel may be off. u is float's roundoff, U bf16's. To
// first order in each, a weight w_j of a row is off by a factor of 1 ± d_j, where d_j sums
//
//   scale e_j        e_j: what the matrix unit may lose of the score (gemm_mixed::bound)
//   3 u (max - x_j)  the scale in units of log 2, and the fused multiply-add's rounding; both are
//                    relative to the exponent, and the shift they subtract is all weights' own
//   2^-22 + 2 u      of exp2, and of one multiplication, for each tile of keys and itself
//
// and by 1 ± U where it is rounded to bf16, which the row's sum L does not see. The sum of the
// weighted values then loses what a matrix unit does, L is off by the weights' mean d and
// n roundings, and the quotient is rounded to bf16. Weights below 2^-126 may become 0.
Reference attention_cpu(const Inputs& in) {
  const Problem& p = in.problem;
  const size_t heads = p.B * p.H, D = p.D;
  constexpr double u = kFloatRoundoff, U = gpu::kBfloat16Roundoff;
  Reference result{Values(heads * p.Tq * D), Values(heads * p.Tq)};
  std::vector<double> x(p.Tk), d(p.Tk), sums(D), absolute(D), off(D);
  for (size_t head = 0; head < heads; ++head) {
    for (size_t row = 0; row < p.Tq; ++row) {
      const double seen = visible(p, row);
      const size_t n = seen > 0 ? static_cast<size_t>(seen) : 0;
      const double tiles = std::ceil(static_cast<double>(n) / 32);
      const bfloat16* q = in.q.data() + (head * p.Tq + row) * D;
      double highest = -std::numeric_limits<double>::infinity();
      for (size_t j = 0; j < n; ++j) {
        const bfloat16* k = in.k.data() + (head * p.Tk + j) * D;
        double sum = 0, sum_absolute = 0;
        for (size_t i = 0; i < D; ++i) {
          const double product = to_double(q[i]) * to_double(k[i]);
          sum += product, sum_absolute += std::fabs(product);
        }
        x[j] = static_cast<double>(p.scale) * sum;
        d[j] =
            static_cast<double>(p.scale) * gemm_mixed::bound(static_cast<double>(D), sum_absolute);
        highest = std::max(highest, x[j]);
      }
      double L = 0, off_L = 0;
      std::fill(sums.begin(), sums.end(), 0.0);
      std::fill(absolute.begin(), absolute.end(), 0.0);
      std::fill(off.begin(), off.end(), 0.0);
      for (size_t j = 0; j < n; ++j) {
        const double weight = std::exp(x[j] - highest);
        const double factor = std::expm1(d[j] + 3 * u * (highest - x[j]) +
                                         (tiles + 1) * (std::ldexp(1, -22) + 2 * u));
        L += weight, off_L += weight * factor;
        const bfloat16* v = in.v.data() + (head * p.Tk + j) * D;
        for (size_t i = 0; i < D; ++i) {
          const double product = weight * to_double(v[i]);
          sums[i] += product;
          absolute[i] += std::fabs(product);
          off[i] += std::fabs(product) * (factor + U + factor * U) +
                    std::ldexp(std::fabs(to_double(v[i])), -120);
        }
      }
      const size_t index = head * p.Tq + row;
      result.lse.value[index] = highest + (n == 0 ? 0 : std::log(L));
      if (n == 0) continue;  // 0, exactly
      const double terms = static_cast<double>(n);
      const double relative = off_L / L + (terms + tiles + 3) * u;
      result.lse.error[index] =
          relative +
          4 * u * (std::fabs(highest) + std::fabs(result.lse.value[index]) + std::log(L) + 1);
      for (size_t i = 0; i < D; ++i) {
        const double value = sums[i] / L;
        const double error = (off[i] + gemm_mixed::bound(terms + 16, absolute[i] + off[i])) / L;
        const double quotient = relative < 0.5
                                    ? (error + std::fabs(value) * relative) / (1 - relative)
                                    : std::numeric_limits<double>::max();
        result.out.value[index * D + i] = value;
        result.out.error[index * D + i] = quotient * (1 + U) + std::fabs(value) * U;
      }
    }
  }
  return result;
}

struct Gradients {
  Values q, k, v;
};

// The gradients in double, of what forward() has made: its out and lse are inputs like the others,
// and exact. With the weights P off by a factor of 1 ± d,
//
//   d = scale e + 3 u |x| + 4 u |lse| + 2^-22      e: of the score, as above
//
// grad_v sums P grad_out, where P is rounded to bf16. Of dS = P (dP - delta) the difference is off
// by what the two sums are, and dS is rounded to bf16 before grad_q and grad_k sum it. These sums
// are a matrix unit's, and each result is rounded to bf16.
Gradients gradients_cpu(const Inputs& in, const std::vector<bfloat16>& out,
                        const std::vector<float>& lse) {
  const Problem& p = in.problem;
  const size_t heads = p.B * p.H, D = p.D;
  constexpr double u = kFloatRoundoff, U = gpu::kBfloat16Roundoff;
  const auto scale = static_cast<double>(p.scale);
  Gradients result{Values(in.q.size()), Values(in.k.size()), Values(in.v.size())};
  std::vector<double> absolute_q(in.q.size()), absolute_k(in.k.size()), absolute_v(in.v.size());
  struct Sum {
    double value = 0, absolute = 0;
  };
  const auto dot = [&](const bfloat16* a, const bfloat16* b) {
    Sum sum;
    for (size_t i = 0; i < D; ++i) {
      const double product = to_double(a[i]) * to_double(b[i]);
      sum.value += product, sum.absolute += std::fabs(product);
    }
    return sum;
  };
  for (size_t head = 0; head < heads; ++head) {
    for (size_t row = 0; row < p.Tq; ++row) {
      const size_t query = head * p.Tq + row;
      const bfloat16 *q = in.q.data() + query * D, *grad_out = in.grad_out.data() + query * D;
      const Sum delta = dot(grad_out, out.data() + query * D);
      const double delta_error = static_cast<double>(D + 3) * u * delta.absolute;
      for (size_t j = 0; static_cast<double>(j) < visible(p, row); ++j) {
        const size_t key = head * p.Tk + j;
        const bfloat16 *k = in.k.data() + key * D, *v = in.v.data() + key * D;
        const Sum score = dot(q, k), product = dot(grad_out, v);
        const auto depth = static_cast<double>(D);
        const double x = scale * score.value, sum = static_cast<double>(lse[query]);
        const double weight = std::exp(x - sum);
        const double d =
            std::expm1(scale * gemm_mixed::bound(depth, score.absolute) + 3 * u * std::fabs(x) +
                       4 * u * std::fabs(sum) + std::ldexp(1, -22));
        const double difference = product.value - delta.value;
        const double difference_error =
            gemm_mixed::bound(depth, product.absolute) + delta_error + u * std::fabs(difference);
        const double dS = weight * difference;
        const double dS_error =
            (weight * (1 + d) * difference_error + d * std::fabs(dS)) * (1 + U + 2 * u) +
            (U + 2 * u) * std::fabs(dS) + std::ldexp(1, -120);
        const double P_error = weight * (d + U + d * U) + std::ldexp(1, -120);
        for (size_t i = 0; i < D; ++i) {
          const auto add = [&](Values& to, std::vector<double>& absolute, size_t index,
                               double factor, double error, bfloat16 of) {
            to.value[index] += factor * to_double(of);
            to.error[index] += error * std::fabs(to_double(of));
            absolute[index] += (std::fabs(factor) + error) * std::fabs(to_double(of));
          };
          add(result.v, absolute_v, key * D + i, weight, P_error, grad_out[i]);
          add(result.k, absolute_k, key * D + i, scale * dS, scale * dS_error, q[i]);
          add(result.q, absolute_q, query * D + i, scale * dS, scale * dS_error, k[i]);
        }
      }
    }
  }
  const auto finish = [&](Values& values, const std::vector<double>& absolute, size_t terms) {
    for (size_t i = 0; i < absolute.size(); ++i) {
      const double error = values.error[i] +
                           gemm_mixed::bound(static_cast<double>(terms + 16), absolute[i]) +
                           u * std::fabs(values.value[i]);
      values.error[i] = error * (1 + U) + U * std::fabs(values.value[i]);
    }
  };
  finish(result.q, absolute_q, p.Tk);
  finish(result.k, absolute_k, p.Tq);
  finish(result.v, absolute_v, p.Tq);
  return result;
}

// An array (B, H, T, D) in device memory, in a layout. Packed it is part 1 of 3, and the elements
// between its rows are NaN: nobody may read or write them.
class Rows {
 public:
  Rows(const Problem& problem, size_t T, Layout layout)
      : B_(problem.B),
        H_(problem.H),
        T_(T),
        D_(problem.D),
        packed_(layout.packed),
        memory_(B_ * H_ * T_ * D_ * (packed_ ? 3 : 1), layout.offset) {}
  Rows(const Problem& problem, size_t T, Layout layout, const std::vector<bfloat16>& values)
      : Rows(problem, T, layout) {
    std::vector<bfloat16> spread = memory_.to_host();
    for_each([&](size_t i, size_t place) { spread[place] = values[i]; });
    if (!spread.empty())
      HIP_CHECK(hipMemcpy(memory_.data(), spread.data(), spread.size() * sizeof(bfloat16),
                          hipMemcpyHostToDevice));
  }

  attention::sm80::View view() {
    if (packed_) return {memory_.data() + H_ * D_, T_ * 3 * H_ * D_, D_, 3 * H_ * D_};
    return {memory_.data(), H_ * T_ * D_, T_ * D_, D_};
  }
  // The values, (B, H, T, D).
  std::vector<bfloat16> to_host() const {
    const std::vector<bfloat16> spread = memory_.to_host();
    std::vector<bfloat16> values(B_ * H_ * T_ * D_);
    for_each([&](size_t i, size_t place) { values[i] = spread[place]; });
    return values;
  }
  // Has nobody written anything but the rows?
  bool intact() const {
    const std::vector<bfloat16> spread = memory_.to_host();
    std::vector<bool> inside(spread.size());
    for_each([&](size_t, size_t place) { inside[place] = true; });
    for (size_t i = 0; i < spread.size(); ++i)
      if (!inside[i] && !is_poison(spread[i])) return false;
    return memory_.intact();
  }

 private:
  template <class Visit>
  void for_each(Visit&& visit) const {
    size_t i = 0;
    for (size_t b = 0; b < B_; ++b)
      for (size_t h = 0; h < H_; ++h)
        for (size_t t = 0; t < T_; ++t)
          for (size_t d = 0; d < D_; ++d, ++i)
            visit(i, packed_ ? ((b * T_ + t) * 3 + 1) * H_ * D_ + h * D_ + d : i);
  }

  size_t B_, H_, T_, D_;
  bool packed_;
  Guarded<bfloat16> memory_;
};

// The device memory of one attention.
struct Device {
  Device(const Inputs& in, Layout layout)
      : problem(in.problem),
        q(problem, problem.Tq, layout, in.q),
        k(problem, problem.Tk, layout, in.k),
        v(problem, problem.Tk, layout, in.v),
        grad_out(problem, problem.Tq, layout, in.grad_out),
        out(problem, problem.Tq, layout),
        grad_q(problem, problem.Tq, layout),
        grad_k(problem, problem.Tk, layout),
        grad_v(problem, problem.Tk, layout),
        lse(problem.B * problem.H * problem.Tq, 0),
        workspace(problem) {}

  // out (B, H, Tq, D).
  std::vector<bfloat16> run(bool with_lse = true) {
    attention::sm80::forward(out.view(), with_lse ? lse.data() : nullptr, q.view(), k.view(),
                             v.view(), problem);
    return out.to_host();
  }
  void run_backward() {
    attention::sm80::backward(grad_q.view(), grad_k.view(), grad_v.view(), grad_out.view(),
                              out.view(), lse.data(), q.view(), k.view(), v.view(), problem,
                              workspace);
  }
  bool intact() const {
    bool all = lse.intact();
    for (const Rows* rows : {&q, &k, &v, &grad_out, &out, &grad_q, &grad_k, &grad_v})
      all = all && rows->intact();
    return all;
  }

  Problem problem;
  Rows q, k, v, grad_out, out, grad_q, grad_k, grad_v;
  Guarded<float> lse;
  attention::sm80::Workspace workspace;
};

std::vector<double> doubles(const std::vector<bfloat16>& values) {
  std::vector<double> result;
  for (const bfloat16 value : values) result.push_back(to_double(value));
  return result;
}
std::vector<double> doubles(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

// The first of them that is out of bound, or the last.
Comparison worst(std::initializer_list<Comparison> comparisons) {
  for (const Comparison& comparison : comparisons)
    if (!comparison.ok) return comparison;
  return *(comparisons.end() - 1);
}
Comparison check(const Inputs& in, Layout layout) {
  const Reference want = attention_cpu(in);
  Device device(in, layout);
  const Comparison out = want.out.compare(doubles(device.run()));
  Comparison lse = want.lse.compare(doubles(device.lse.to_host()));
  lse.ok = lse.ok && device.intact();
  return worst({out, lse});
}
Comparison check_backward(const Inputs& in, Layout layout) {
  Device device(in, layout);
  const std::vector<bfloat16> out = device.run();
  const Gradients want = gradients_cpu(in, out, device.lse.to_host());
  device.run_backward();
  Comparison grad_v = want.v.compare(doubles(device.grad_v.to_host()));
  grad_v.ok = grad_v.ok && device.intact();
  return worst({want.q.compare(doubles(device.grad_q.to_host())),
                want.k.compare(doubles(device.grad_k.to_host())), grad_v});
}

Problem problem_of(size_t B, size_t H, size_t Tq, size_t Tk, size_t D, bool causal) {
  return {B, H, Tq, Tk, D, causal, 1 / std::sqrt(static_cast<float>(std::max<size_t>(D, 1)))};
}
bool available() { return missing(gemm_mixed::kNeedsOfMmaSync).empty(); }

}  // namespace bf16

TEST_CASE("flash_bf16 stays within its bound, at any length and number of heads", "[long]") {
  if (!bf16::available()) return;
  constexpr size_t kLengths[] = {1, 2, 31, 64, 127, 128, 129, 500};
  constexpr size_t kHeads[] = {1, 3, 4};
  constexpr size_t kDepths[] = {64, 16, 128, 32, 24};
  size_t i = 0;
  for (const size_t T : kLengths) {
    for (const bool causal : {false, true}) {
      const size_t H = T == 500 ? 1 : kHeads[i % 3], D = kDepths[i % 5], B = T < 100 ? 2 : 1;
      const bf16::Layout layout{i % 2 == 1, i % 4 == 2 ? size_t{1} : 0};
      ++i;
      CAPTURE(B, H, T, D, causal, layout.packed, layout.offset);
      const auto inputs = bf16::random_inputs(bf16::problem_of(B, H, T, T, D, causal));
      REQUIRE_OK(bf16::check(inputs, layout));
    }
  }
}

TEST_CASE("flash_bf16 pads heads of any size up to 256", "[long]") {
  if (!bf16::available()) return;
  for (const size_t D : {1, 3, 8, 16, 17, 32, 40, 63, 64, 72, 80, 100, 128, 136, 200, 255, 256}) {
    for (const bool packed : {false, true}) {
      CAPTURE(D, packed);
      REQUIRE_OK(bf16::check(bf16::random_inputs(bf16::problem_of(1, 2, 33, 70, D, packed)),
                             {packed, packed ? size_t{8} : 0}));
    }
  }
}

TEST_CASE("flash_bf16 takes fewer queries than keys, more, and rows that see no key") {
  if (!bf16::available()) return;
  struct Lengths {
    size_t Tq, Tk;
  };
  constexpr size_t kDepths[] = {16, 128, 64, 256, 32};
  size_t i = 0;
  for (const Lengths t : {Lengths{1, 200}, {1, 1}, {7, 130}, {5, 3}, {200, 70}, {140, 1}, {3, 0}}) {
    for (const bool causal : {false, true}) {
      const size_t D = kDepths[i++ % 5];
      CAPTURE(t.Tq, t.Tk, causal, D);
      REQUIRE_OK(bf16::check(bf16::random_inputs(bf16::problem_of(1, 2, t.Tq, t.Tk, D, causal)),
                             {true, 0}));
    }
  }
}

TEST_CASE("flash_bf16 has enough blocks to take its large tiles") {
  if (!bf16::available()) return;
  const size_t heads = gpu::multiprocessors();  // a block for each
  for (const size_t D : {16, 32, 64, 128, 256}) {
    CAPTURE(D);
    REQUIRE_OK(bf16::check(bf16::random_inputs(bf16::problem_of(1, heads, 133, 133, D, true)),
                           {false, 0}));
  }
}

TEST_CASE("flash_bf16 survives large scores") {
  if (!bf16::available()) return;
  // Scores of up to 1e4: sqrt(64) * largest^2 / 3 and more.
  const auto inputs = bf16::random_inputs(bf16::problem_of(1, 2, 100, 150, 64, true), 60);
  REQUIRE_OK(bf16::check(inputs, {}));
}

namespace bf16 {

// Each query is the very key that it looks for, all of them +1 and -1, and the scale leaves no
// other key a weight: out is a row of V, exactly.
Inputs search_inputs(const Problem& problem, std::vector<size_t>& target) {
  Inputs in = random_inputs(problem);
  const size_t D = problem.D;
  for (bfloat16& value : in.k)
    value = gpu::from_float<bfloat16>(gpu::to_float(value) < 0 ? -1.0f : 1.0f);
  target.clear();
  for (size_t head = 0; head < problem.B * problem.H; ++head) {
    for (size_t row = 0; row < problem.Tq; ++row) {
      const auto n = static_cast<size_t>(visible(problem, row));
      target.push_back(head * problem.Tk + random_numbers::word(3, 9, target.size()) % n);
      std::copy_n(in.k.begin() + static_cast<std::ptrdiff_t>(target.back() * D), D,
                  in.q.begin() + static_cast<std::ptrdiff_t>((head * problem.Tq + row) * D));
    }
  }
  return in;
}

}  // namespace bf16

TEST_CASE("flash_bf16 finds the one key that a query looks for") {
  if (!bf16::available()) return;
  for (const size_t D : {64, 256}) {
    for (const bool causal : {false, true}) {
      CAPTURE(D, causal);
      bf16::Problem problem = bf16::problem_of(1, 2, 130, 200, D, causal);
      problem.scale = 100;
      std::vector<size_t> target;
      const bf16::Inputs in = bf16::search_inputs(problem, target);
      const auto got = bf16::Device(in, {true, 0}).run();
      size_t wrong = 0;
      for (size_t i = 0; i < got.size(); ++i)
        wrong += bf16::to_double(got[i]) != bf16::to_double(in.v[target[i / D] * D + i % D]);
      REQUIRE(wrong == 0);
    }
  }
}

TEST_CASE("flash_bf16: a later token changes no earlier output, and twice gives the same bits") {
  if (!bf16::available()) return;
  for (const size_t D : {64, 128}) {
    CAPTURE(D);
    const size_t T = 200, changed = 77;
    bf16::Inputs in = bf16::random_inputs(bf16::problem_of(1, 2, T, T, D, true));
    const auto before = bf16::Device(in, {}).run();
    const auto again = bf16::Device(in, {}).run(false);
    REQUIRE(std::memcmp(before.data(), again.data(), before.size() * sizeof before[0]) == 0);
    for (size_t head = 0; head < 2; ++head)
      for (size_t i = (head * T + changed) * D; i < (head + 1) * T * D; ++i)
        in.q[i] = in.k[i] = in.v[i] = gpu::from_float<gpu::bfloat16>(3);
    const auto after = bf16::Device(in, {}).run();
    size_t earlier = 0, later = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      const bool differs = std::memcmp(&before[i], &after[i], sizeof before[i]) != 0;
      (i / D % T < changed ? earlier : later) += differs;
    }
    REQUIRE(earlier == 0);
    REQUIRE(later > (T - changed) * D);
  }
}

TEST_CASE("flash_bf16: what a query does not see adds nothing to it, forwards and backwards",
          "[harness]") {
  if (!bf16::available()) return;
  struct Sizes {
    size_t Tq, Tk, D;
  };
  const size_t many = gpu::multiprocessors();  // heads: a block for each
  for (const auto& [Tq, Tk, D] : {Sizes{9, 9, 3},
                                  {70, 70, 16},
                                  {200, 200, 64},
                                  {133, 170, 64},
                                  {170, 133, 32},
                                  {150, 150, 128},
                                  {90, 90, 256}})
    for (const bool large : {false, true}) {
      if (large && Tq != 133 && Tq != 150) continue;
      const Problem p = bf16::problem_of(1, large ? many : 2, Tq, Tk, D, true);
      const bf16::Inputs plain = bf16::random_inputs(p, 2);
      const bool with_backward = D <= attention::sm80::kMostBackwardDepth;
      bf16::Device before(plain, {});
      const auto out = before.run();
      if (with_backward) before.run_backward();
      size_t turn = 0;
      for (const Of array : {Of::q, Of::k, Of::v, Of::grad_out})
        for (const float special : {kNan, kInfinity}) {
          bf16::Inputs in = plain;
          const bool of_key = array == Of::k || array == Of::v;
          std::vector<gpu::bfloat16>& values = array == Of::q   ? in.q
                                               : array == Of::k ? in.k
                                               : array == Of::v ? in.v
                                                                : in.grad_out;
          const size_t T = of_key ? Tk : Tq, token = (5 + 37 * turn++) % T;
          plant(values, T, D, token, turn % D, gpu::from_float<gpu::bfloat16>(special));
          const Reach queries = reach_of_queries(p, array, token);
          const Reach keys = reach_of_keys(p, array, token);
          CAPTURE(Tq, Tk, D, large, static_cast<int>(array), special, token);
          bf16::Device after(in, {});
          const auto out_after = after.run();
          REQUIRE(same_outside(out, out_after, nullptr, Tq, D,
                               array == Of::grad_out ? Reach{0, 0} : queries));
          if (array == Of::v) REQUIRE(reaches(out_after, Tq, D, queries));
          if (!with_backward) continue;
          after.run_backward();
          REQUIRE(same_outside(before.grad_q.to_host(), after.grad_q.to_host(), nullptr, Tq, D,
                               queries));
          REQUIRE(
              same_outside(before.grad_k.to_host(), after.grad_k.to_host(), nullptr, Tk, D, keys));
          const auto grad_v = after.grad_v.to_host();
          REQUIRE(same_outside(before.grad_v.to_host(), grad_v, nullptr, Tk, D,
                               array == Of::v ? Reach{0, 0} : keys));
          if (array == Of::grad_out) REQUIRE(reaches(grad_v, Tk, D, keys));
        }
    }
}

TEST_CASE("flash_bf16: NaN is not hidden, and what is wrong is caught", "[harness]") {
  if (!bf16::available()) return;
  bf16::Inputs in = bf16::random_inputs(bf16::problem_of(1, 1, 70, 70, 64, true));
  const bf16::Reference want = bf16::attention_cpu(in);
  const auto ok = [&] { return want.out.compare(bf16::doubles(bf16::Device(in, {}).run())).ok; };
  REQUIRE(ok());
  in.problem.causal = false;
  REQUIRE(!ok());
  in.problem.causal = true;
  in.problem.scale *= 1.5f;
  REQUIRE(!ok());
  in.problem.scale /= 1.5f;
  std::swap(in.v[64], in.v[65]);
  REQUIRE(!ok());
  std::swap(in.v[64], in.v[65]);
  REQUIRE(ok());
  in.k[69 * 64] = gpu::from_float<gpu::bfloat16>(std::numeric_limits<float>::quiet_NaN());
  const auto got = bf16::Device(in, {}).run();
  REQUIRE(std::isnan(bf16::to_double(got.back())));
}

TEST_CASE("flash_bf16: gradients stay within their bound, at any length", "[long]") {
  if (!bf16::available()) return;
  constexpr size_t kLengths[] = {1, 2, 31, 64, 127, 128, 129, 260};
  constexpr size_t kHeads[] = {1, 3, 4};
  constexpr size_t kDepths[] = {64, 16, 128, 32, 24};
  size_t i = 0;
  for (const size_t T : kLengths) {
    for (const bool causal : {false, true}) {
      const size_t H = T > 200 ? 1 : kHeads[i % 3], D = kDepths[i % 5], B = T < 100 ? 2 : 1;
      const bf16::Layout layout{i % 2 == 1, i % 4 == 2 ? size_t{1} : 0};
      ++i;
      CAPTURE(B, H, T, D, causal, layout.packed, layout.offset);
      const auto inputs = bf16::random_inputs(bf16::problem_of(B, H, T, T, D, causal));
      REQUIRE_OK(bf16::check_backward(inputs, layout));
    }
  }
}

TEST_CASE("flash_bf16: gradients of heads of any size up to 128, of rows that see no key",
          "[long]") {
  if (!bf16::available()) return;
  for (const size_t D : {1, 8, 17, 40, 64, 72, 100, 128}) {
    CAPTURE(D);
    REQUIRE_OK(bf16::check_backward(
        bf16::random_inputs(bf16::problem_of(1, 2, 33, 70, D, D % 2 == 0)), {}));
  }
  struct Lengths {
    size_t Tq, Tk;
  };
  constexpr size_t kDepths[] = {16, 128, 64};
  size_t i = 0;
  for (const Lengths t : {Lengths{1, 200}, {7, 130}, {5, 3}, {200, 70}, {140, 1}, {3, 0}, {0, 3}}) {
    for (const bool causal : {false, true}) {
      const size_t D = kDepths[i++ % 3];
      CAPTURE(t.Tq, t.Tk, causal, D);
      REQUIRE_OK(bf16::check_backward(
          bf16::random_inputs(bf16::problem_of(1, 2, t.Tq, t.Tk, D, causal)), {true, 0}));
    }
  }
}

TEST_CASE("flash_bf16: gradients at large scores, with the same bits twice, and what is wrong",
          "[long]") {
  if (!bf16::available()) return;
  bf16::Inputs in = bf16::random_inputs(bf16::problem_of(1, 2, 100, 150, 64, true), 60);
  REQUIRE_OK(bf16::check_backward(in, {}));
  in = bf16::random_inputs(bf16::problem_of(1, 2, 100, 150, 64, true));
  bf16::Device device(in, {}), again(in, {});
  device.run(), device.run_backward();
  again.run(), again.run_backward();
  const auto grad_k = device.grad_k.to_host(), grad_k_again = again.grad_k.to_host();
  const auto grad_q = device.grad_q.to_host(), grad_q_again = again.grad_q.to_host();
  REQUIRE(std::memcmp(grad_k.data(), grad_k_again.data(), grad_k.size() * sizeof grad_k[0]) == 0);
  REQUIRE(std::memcmp(grad_q.data(), grad_q_again.data(), grad_q.size() * sizeof grad_q[0]) == 0);

  const auto lse = device.lse.to_host();
  auto out = device.out.to_host();
  REQUIRE(bf16::gradients_cpu(in, out, lse).k.compare(bf16::doubles(grad_k)).ok);
  REQUIRE(!bf16::gradients_cpu(in, out, lse).v.compare(bf16::doubles(grad_k)).ok);
  std::reverse(out.begin(), out.end());  // another delta
  REQUIRE(!bf16::gradients_cpu(in, out, lse).k.compare(bf16::doubles(grad_k)).ok);
  REQUIRE(!bf16::gradients_cpu(in, out, lse).q.compare(bf16::doubles(grad_q)).ok);
}

TEST_CASE("flash_bf16 refuses what it can't do, and does nothing for nothing") {
  if (!bf16::available()) return;
  const attention::sm80::View none{nullptr, 0, 0, 0};
  const auto run = [&](const bf16::Problem& problem) {
    attention::sm80::forward(none, nullptr, none, none, none, problem);
  };
  REQUIRE_THROWS_AS(run(bf16::problem_of(1, 1, 1, 1, 257, false)), std::invalid_argument);
  bf16::Problem problem = bf16::problem_of(1, 1, 1, 1, 64, false);
  problem.scale = 0;
  REQUIRE_THROWS_AS(run(problem), std::invalid_argument);
  const auto run_backward = [&](const bf16::Problem& of, const bf16::Problem& memory) {
    attention::sm80::Workspace workspace(memory);
    attention::sm80::backward(none, none, none, none, none, nullptr, none, none, none, of,
                              workspace);
  };
  const bf16::Problem deep = bf16::problem_of(1, 1, 1, 1, 129, false);
  REQUIRE_THROWS_AS(run_backward(deep, deep), std::invalid_argument);
  REQUIRE_THROWS_AS(run_backward(bf16::problem_of(1, 2, 1, 1, 64, false), deep),
                    std::invalid_argument);
  REQUIRE_NOTHROW(run(bf16::problem_of(0, 1, 1, 1, 64, false)));
  REQUIRE_NOTHROW(run(bf16::problem_of(1, 0, 1, 1, 64, false)));
  REQUIRE_NOTHROW(run(bf16::problem_of(1, 1, 0, 1, 64, false)));
  REQUIRE_NOTHROW(run(bf16::problem_of(1, 1, 1, 1, 0, false)));
}

TEST_CASE("flash_bf16 on the numbers that NumPy's references are made of", "[numpy]") {
  if (!bf16::available()) return;
  const auto read = [](const std::string& name) {
    const NpyArray array = read_npy(reference_path("attention_" + name + ".npy"));
    std::vector<gpu::bfloat16> rounded;
    for (const double value : array.values)
      rounded.push_back(gpu::from_float<gpu::bfloat16>(static_cast<float>(value)));
    return rounded;
  };
  for (const bool causal : {true, false}) {
    const bf16::Inputs in{bf16::problem_of(2, 2, 21, 26, 12, causal), read("q"), read("k"),
                          read("v"), read("grad_out")};
    CAPTURE(causal);
    REQUIRE_OK(bf16::check(in, {true, 0}));
    REQUIRE_OK(bf16::check_backward(in, {true, 0}));
  }
}
