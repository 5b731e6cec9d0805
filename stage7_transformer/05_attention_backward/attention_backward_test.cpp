// Every version of attention's gradients for float on awkward shapes, layouts and values, within
// its bound; and the reference against finite differences.
#include "stage7_transformer/05_attention_backward/attention_backward.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/graph.h"
#include "stage1_vector/01_vector_add/few_blocks_for_tests.h"
#include "stage5_training/03_gradient_check/gradient_check.h"
#include "stage7_transformer/04_attention/arrays_for_tests.h"
#include "stage7_transformer/04_attention/attention.h"
#include "stage7_transformer/05_attention_backward/reference.h"

namespace {

using namespace attention;
using attention_backward::ExpectedGradients;
using testing::same_bits;
using Launch = attention_backward::LaunchOf<float>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Result {
  std::vector<float> grad_q, grad_k, grad_v;
  bool intact = true;
};

// The gradients from the out and lse that the forward pass has made.
Result run(const Launch& version, const Inputs& in, const Arrangement& layouts = kHeadsFirst,
           hipStream_t stream = nullptr, bool captured = false) {
  const Problem& p = in.p;
  Array q(p, p.Tq, layouts.q), k(p, p.Tk, layouts.k), v(p, p.Tk, layouts.v);
  Array out(p, p.Tq, layouts.out), grad_out(p, p.Tq, layouts.out);
  Array grad_q(p, p.Tq, layouts.q), grad_k(p, p.Tk, layouts.k), grad_v(p, p.Tk, layouts.v);
  Guarded<float> lse(p.heads() * p.Tq, layouts.out.offset);
  q.fill(in.q), k.fill(in.k), v.fill(in.v), grad_out.fill(in.grad_out);
  forward(out.view(), lse.data(), q.view(), k.view(), v.view(), p);
  HIP_CHECK(hipDeviceSynchronize());
  Guarded<float> memory(version.memory(p), 0);
  const auto launch = [&](hipStream_t on) {
    version.run(grad_q.view(), grad_k.view(), grad_v.view(), grad_out.view(), out.view(),
                lse.data(), q.view(), k.view(), v.view(), p, memory.data(), on);
  };
  if (captured)
    testing::run_captured(launch, 2);
  else
    launch(stream);
  HIP_CHECK(hipStreamSynchronize(stream));
  Result result{grad_q.to_host(), grad_k.to_host(), grad_v.to_host()};
  for (const Array* array : {&q, &k, &v, &out, &grad_out, &grad_q, &grad_k, &grad_v})
    result.intact &= array->intact();
  result.intact &= lse.intact() && memory.intact();
  return result;
}

ExpectedGradients expect(const Inputs& in) {
  const Problem& p = in.p;
  ExpectedGradients want;
  for (size_t head = 0; head < p.heads(); ++head) {
    const size_t queries = head * p.Tq * p.D, keys = head * p.Tk * p.D;
    const ExpectedGradients part =
        attention_backward::backward_cpu({in.q.data() + queries, in.k.data() + keys,
                                          in.v.data() + keys, in.grad_out.data() + queries},
                                         p, float_roundings(p), numbers_to(p.Tq), numbers_to(p.Tk));
    const auto append = [](Values& to, const Values& from) {
      to.value.insert(to.value.end(), from.value.begin(), from.value.end());
      to.error.insert(to.error.end(), from.error.begin(), from.error.end());
    };
    append(want.q, part.q), append(want.k, part.k), append(want.v, part.v);
  }
  return want;
}

void require_right(const Inputs& in, const Arrangement& layouts) {
  const ExpectedGradients want = expect(in);
  for (const auto& version : testing::chosen(attention_backward::kVersions)) {
    CAPTURE(version.name);
    const Result got = run(version.launch, in, layouts);
    REQUIRE_OK(against(got.grad_q, want.q));
    REQUIRE_OK(against(got.grad_k, want.k));
    REQUIRE_OK(against(got.grad_v, want.v));
    REQUIRE(got.intact);
  }
}

}  // namespace

TEST_CASE("gradients of any lengths, heads and layouts stay within their bounds") {
  for_lengths_and_layouts(require_right);
}

TEST_CASE("every size of a head, aligned or not") { for_sizes_of_a_head(require_right); }

TEST_CASE("more keys than queries, more queries than keys, none of either") {
  for_pairs_of_lengths(require_right);
}

TEST_CASE("a query that sees no key gives no gradient") {
  const Inputs in(problem_of(2, 3, 9, 4, 12, true));
  REQUIRE(blind_queries(in.p) == 5);
  for (const auto& version : testing::chosen(attention_backward::kVersions)) {
    CAPTURE(version.name);
    const Result got = run(version.launch, in);
    for (size_t i = 0; i < got.grad_q.size(); ++i)
      if (i / in.p.D % in.p.Tq < 5) REQUIRE(got.grad_q[i] == 0);
  }
}

TEST_CASE("gradients at scores of ten thousand stay within the bound") {
  for (const size_t D : {8, 64}) {
    Inputs in(problem_of(1, 2, 67, 67, D, true), 1);
    const float scale = 200 * std::sqrt(std::sqrt(1.0f / static_cast<float>(D)));
    for (float& value : in.q) value *= scale;
    for (float& value : in.k) value *= scale;
    require_right(in, kPacked);
  }
}

// With equal scores all weights are 1 / Tk: with a power of two the gradient of V is exact.
TEST_CASE("every query counts once in the gradient of the values") {
  for (const size_t Tk : {1, 8, 64}) {
    Inputs in(problem_of(1, 2, 70, Tk, 24, false), 0);
    for (float& value : in.v) value = std::rint(3 * value);
    for (float& value : in.grad_out) value = std::rint(3 * value);
    Values want = expect(in).v;
    want.error.assign(want.error.size(), 0);
    for (const auto& version : testing::chosen(attention_backward::kVersions)) {
      CAPTURE(version.name, Tk);
      if (std::string(version.name) == "flash") continue;  // its weights come from a logarithm
      REQUIRE_OK(against(run(version.launch, in, kPacked).grad_v, want));
    }
  }
}

// Tagged as a case that learners' kernels need not pass: exercises ask for finite numbers.
TEST_CASE("pairs that do not see each other add nothing to a gradient, whatever they are",
          "[harness]") {
  for (const auto& [Tq, Tk, D] : kUnseenSizes) {
    const Problem p = problem_of(1, 2, Tq, Tk, D, true);
    const Inputs plain(p, 2);
    const ExpectedGradients of = expect(plain);
    for (const auto& version : testing::chosen(attention_backward::kVersions)) {
      const Result before = run(version.launch, plain, kPacked);
      // Composed adds up again what a product has made NaN, in another order.
      const bool bounded = std::string(version.name) == "composed";
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
          const Result after = run(version.launch, in, kPacked);
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

TEST_CASE("a small grid goes round") {
  const Inputs in(problem_of(2, 3, 21, 30, 12, true), 2), blind(problem_of(1, 2, 90, 9, 12, true));
  for (const size_t blocks : {1, 2}) {
    const vector_add::FewBlocks few(blocks);
    CAPTURE(blocks);
    require_right(in, kPacked);
    require_right(blind, kPacked);
  }
}

TEST_CASE("the same bits on every run, on any stream, and from a graph") {
  const Inputs in(problem_of(2, 2, 70, 70, 16, true), 3);
  const gpu::Stream stream;
  for (const auto& version : testing::chosen(attention_backward::kVersions)) {
    CAPTURE(version.name);
    const Result first = run(version.launch, in, kPacked);
    for (const Result& next :
         {run(version.launch, in, kPacked), run(version.launch, in, kPacked, stream),
          run(version.launch, in, kPacked, nullptr, true)}) {
      REQUIRE(same_bits(first.grad_q, next.grad_q));
      REQUIRE(same_bits(first.grad_k, next.grad_k));
      REQUIRE(same_bits(first.grad_v, next.grad_v));
    }
  }
}

TEST_CASE("every version agrees with NumPy", "[numpy]") {
  const NpyArray q = numpy_array("q"), k = numpy_array("k");
  for (const bool causal : {true, false}) {
    Inputs in(problem_of(q.shape.at(0), q.shape.at(1), q.shape.at(2), k.shape.at(2), q.shape.at(3),
                         causal));
    in.q = narrowed(q), in.k = narrowed(k), in.v = narrowed(numpy_array("v"));
    in.grad_out = narrowed(numpy_array("grad_out"));
    const std::string name = causal ? "causal_" : "full_";
    const ExpectedGradients want = expect(in);
    CAPTURE(causal);
    REQUIRE(agree(want.q, numpy_array(name + "grad_q").values));
    REQUIRE(agree(want.k, numpy_array(name + "grad_k").values));
    REQUIRE(agree(want.v, numpy_array(name + "grad_v").values));
    require_right(in, kPacked);
  }
}

TEST_CASE("the gradients are slopes") {
  for (const bool causal : {true, false}) {
    const Problem p = problem_of(1, 2, 4, 6, 3, causal);
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
    for (const auto& version : testing::chosen(attention_backward::kVersions)) {
      gradient_check::Case c;
      c.arguments = {{"q", {p.H, p.Tq, p.D}, in.q},
                     {"k", {p.H, p.Tk, p.D}, in.k},
                     {"v", {p.H, p.Tk, p.D}, in.v}};
      c.loss = loss;
      c.backward = [&](const std::vector<float*>& gradients, const std::vector<const float*>&) {
        const Result got = run(version.launch, in);
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

TEST_CASE("missing arrays and memory are refused") {
  const Problem p = problem_of(1, 1, 4, 4, 4, true);
  Guarded<float> d(64, 0);
  const View view = heads_first(d.data(), 1, 4, 4);
  View none = view;
  none.data = nullptr;
  const auto refused = [&](const View& grad_k, const View& of_k, float* memory) -> std::string {
    try {
      attention_backward::launch_flash(view, grad_k, view, view, view, d.data(), view, of_k, view,
                                       p, memory);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  REQUIRE(contains_text(refused(none, view, d.data()), "grad_k is null"));
  REQUIRE(contains_text(refused(view, none, d.data()), "k is null"));
  REQUIRE(contains_text(refused(view, view, nullptr), "memory is null"));
}

TEST_CASE("a mask off by one, a wrong scale and swapped heads are caught", "[harness]") {
  const Inputs in(problem_of(1, 2, 70, 70, 16, true), 2);
  const ExpectedGradients want = expect(in);
  const auto is_right = [&](auto change) {
    Inputs told = in;
    change(told);
    const Result got = run(attention_backward::kVersions[1].launch, told);
    return against(got.grad_q, want.q).ok && against(got.grad_k, want.k).ok &&
           against(got.grad_v, want.v).ok;
  };
  REQUIRE(is_right([](Inputs&) {}));
  REQUIRE(!is_right([](Inputs& told) { told.p.causal = false; }));
  REQUIRE(!is_right([](Inputs& told) { told.p.scale *= 1.01f; }));
  REQUIRE(!is_right([](Inputs& told) { told.grad_out[5] += 1; }));
  REQUIRE(!is_right([](Inputs& told) {
    const std::ptrdiff_t middle = static_cast<std::ptrdiff_t>(told.v.size() / 2);
    std::rotate(told.v.begin(), told.v.begin() + middle, told.v.end());
  }));
}
