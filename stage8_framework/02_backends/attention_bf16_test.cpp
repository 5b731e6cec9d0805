// Attention of bf16 as functions: within the bounds of 7.4 and 7.5 at awkward shapes and in the
// layout that a layer leaves, what is refused, and what an Autocast makes of f32.
#include <numeric>
#include <string>
#include <vector>

#include "common/compare.h"
#include "common/testing.h"
#include "stage7_transformer/04_attention/reference.h"
#include "stage7_transformer/05_attention_backward/reference.h"
#include "stage8_framework/02_backends/functions.h"
#include "stage8_framework/02_backends/registry.h"
#include "stage8_framework/02_backends/tensors_for_tests.h"

using namespace framework;
using attention::Problem, attention::Terms, attention::Values;
using tensors_test::host, tensors_test::random_on;

namespace {

using Floats = std::vector<float>;
using Int = std::int64_t;

template <class F>
std::string refused(F&& call) {
  return testing::what_of<std::invalid_argument>(call);
}

// Why an Autocast leaves in f32 what `run` does; "": it does not, or something else.
template <class F>
std::string left_by(Device& on, Dtype type, F&& run) {
  const auto before = left_in_f32(on);
  const Autocast guard(type);
  run();
  const auto& after = left_in_f32(on);
  for (size_t i = 0; i < after.size(); ++i)
    if (i >= before.size() || after[i].times == before[i].times + 1) return after[i].reason;
  return "";
}

// Why the device has no attention of bf16; "": it has.
std::string missing_on(Device& on) {
  const Tensor x = random_on(on, {1, 1, 2, 8}, 1);
  return left_by(on, Dtype::bf16, [&] { framework::attention(x, x, x, false, 1); });
}
bool has_bf16(Device& on) {
  const std::string missing = missing_on(on);
  if (!missing.empty()) WARN("not checked in bf16: " << missing);
  return missing.empty();
}

struct Heads {
  Int B, H, Tq, Tk, D;
  bool causal;
  double scale() const { return 1 / std::sqrt(static_cast<double>(D)); }
};
// Queries, keys and values of bf16. As many queries as keys are parts of one tensor (B, T, 3, H,
// D).
Triple inputs_of(Device& on, const Heads& h) {
  if (h.Tq == h.Tk) {
    const Tensor rows = random_on(on, {h.B, h.Tq, 3, h.H, h.D}, 1).to(Dtype::bf16);
    const auto part = [&](Int i) { return rows.select(2, i).transpose(1, 2); };
    return {part(0), part(1), part(2)};
  }
  const auto make = [&](Int T, std::uint32_t stream) {
    return random_on(on, {h.B, h.H, T, h.D}, stream).to(Dtype::bf16);
  };
  return {make(h.Tq, 1), make(h.Tk, 2), make(h.Tk, 3)};
}

Floats floats(const Tensor& t) { return host(t.to(Dtype::f32).contiguous()); }
Problem problem_of(const Heads& h) {
  const auto size = [](Int n) { return static_cast<size_t>(n); };
  return {size(h.B),
          size(h.H),
          size(h.Tq),
          size(h.Tk),
          size(h.D),
          h.causal,
          static_cast<float>(h.scale())};
}
std::vector<size_t> numbers_to(size_t n) {
  std::vector<size_t> all(n);
  std::iota(all.begin(), all.end(), size_t{0});
  return all;
}
Comparison against(const Tensor& got, const Values& want) {
  const Floats values = floats(got);
  REQUIRE(values.size() == want.value.size());
  return compare(
      values.size(), [&](size_t i) { return static_cast<double>(values[i]); },
      [&](size_t i) { return want.value[i]; }, [&](size_t i) { return want.error[i]; });
}

// out, lse and the gradients in double, with the bounds of the versions for bf16.
struct Expected {
  attention::Expected forward;
  Values q, k, v;
};
Expected expected_of(const Heads& h, const Triple& in, const Tensor& grad_out) {
  const Problem p = problem_of(h);
  const auto roundings = attention::bf16_roundings(p);
  const Floats q = floats(in.first), k = floats(in.second), v = floats(in.third);
  const Floats grad = floats(grad_out);
  Expected want{
      attention::forward_cpu(q, k, v, p, roundings, numbers_to(p.heads() * p.Tq), Terms::mean_zero),
      {},
      {},
      {}};
  const auto append = [](Values& to, const Values& from) {
    to.value.insert(to.value.end(), from.value.begin(), from.value.end());
    to.error.insert(to.error.end(), from.error.begin(), from.error.end());
  };
  for (size_t head = 0; head < p.heads(); ++head) {
    const size_t of_q = head * p.Tq * p.D, of_k = head * p.Tk * p.D;
    const auto of_head = attention_backward::backward_cpu(
        {q.data() + of_q, k.data() + of_k, v.data() + of_k, grad.data() + of_q}, p, roundings,
        numbers_to(p.Tq), numbers_to(p.Tk), Terms::mean_zero);
    append(want.q, of_head.q), append(want.k, of_head.k), append(want.v, of_head.v);
  }
  return want;
}

constexpr Heads kCases[] = {
    {2, 3, 37, 37, 8, true},    {1, 2, 133, 133, 16, false}, {1, 2, 133, 133, 16, true},
    {2, 1, 65, 65, 32, true},   {2, 1, 65, 65, 32, false},   {1, 2, 131, 131, 64, false},
    {1, 2, 131, 131, 64, true}, {1, 1, 67, 67, 128, false},  {1, 2, 67, 67, 128, true},
    {2, 2, 1, 1, 16, true},     {1, 2, 29, 29, 11, false},   {1, 2, 5, 70, 64, true},
    {1, 1, 70, 37, 16, true},   {1, 1, 40, 90, 24, false},   {1, 2, 1, 1100, 64, true}};

}  // namespace

TEST_CASE("attention of bf16 and its gradients are within bounds that refuse a dropped key") {
  Device& on = device(GENERATE("reference", "own"));
  if (!has_bf16(on)) return;
  for (const Heads& h : kCases) {
    CAPTURE(on.name(), h.B, h.H, h.Tq, h.Tk, h.D, h.causal);
    const Triple in = inputs_of(on, h);
    const Tensor grad = random_on(on, {h.B, h.H, h.Tq, h.D}, 4).to(Dtype::bf16);
    const Expected want = expected_of(h, in, grad);
    const auto run = [&](const Tensor& k, const Tensor& v, bool are_joined) {
      return framework::attention(in.first, k, v, h.causal, h.scale(), are_joined);
    };
    const auto back = [&](const Tensor& k, const Tensor& v, const Pair& of) {
      return framework::attention_backward(grad, in.first, k, v, of.first, of.second, h.causal,
                                           h.scale());
    };
    for (const bool are_joined : {false, true}) {
      const Pair got = run(in.second, in.third, are_joined);
      REQUIRE((got.first.dtype() == Dtype::bf16 && got.second.dtype() == Dtype::f32));
      REQUIRE_OK(against(got.first, want.forward.out));
      if (!h.causal || h.Tq <= h.Tk) REQUIRE_OK(against(got.second, want.forward.lse));
      const Triple gradients = back(in.second, in.third, got);
      REQUIRE(gradients.first.dtype() == Dtype::bf16);
      REQUIRE_OK(against(gradients.first, want.q));
      REQUIRE_OK(against(gradients.second, want.k));
      REQUIRE_OK(against(gradients.third, want.v));
    }
    if (h.causal) continue;
    const Tensor k = in.second.slice(2, 0, h.Tk - 1), v = in.third.slice(2, 0, h.Tk - 1);
    const Pair without = run(k, v, false);
    REQUIRE(!against(without.first, want.forward.out).ok);
    REQUIRE(!against(back(k, v, without).first, want.q).ok);
  }
}

TEST_CASE("attention of several types is refused in one line") {
  Device& on = device(GENERATE("reference", "own"));
  CAPTURE(on.name());
  const Tensor f32 = random_on(on, {1, 1, 2, 8}, 1), bf16 = f32.to(Dtype::bf16);
  const Tensor f16 = f32.to(Dtype::f16), lse = random_on(on, {1, 1, 2}, 1);
  const auto of = [&](const Tensor& q, const Tensor& k, const Tensor& v) {
    return refused([&] { framework::attention(q, k, v, true, 1); });
  };
  REQUIRE(of(bf16, bf16, f32) ==
          "attention of bf16 (1,1,2,8), bf16 (1,1,2,8) and f32 (1,1,2,8): the types differ");
  REQUIRE(of(f32, bf16, f32) ==
          "attention of f32 (1,1,2,8), bf16 (1,1,2,8) and f32 (1,1,2,8): the types differ");
  REQUIRE(contains_text(of(f16, f16, f16), ": f16 is not f32 or f64"));
  const auto back = [&](const Tensor& grad, const Tensor& of_lse) {
    return refused(
        [&] { framework::attention_backward(grad, bf16, bf16, bf16, bf16, of_lse, true, 1); });
  };
  REQUIRE(contains_text(back(bf16, lse.to(Dtype::bf16)), ": lse must be f32"));
  REQUIRE(contains_text(back(f32, lse), ": the types differ"));
}

TEST_CASE("under an Autocast attention of f32 is made in bf16 where the device has it") {
  Device& on = device(GENERATE("reference", "own"));
  const Heads h{2, 2, 21, 21, 16, true};
  CAPTURE(on.name());
  const auto plain = [&](std::uint32_t stream) {
    return random_on(on, {h.B, h.H, h.Tq, h.D}, stream);
  };
  const Tensor q = plain(1), k = plain(2), v = plain(3);
  const auto run = [&](const Tensor& of_q, bool are_joined = false) {
    return framework::attention(of_q, k, v, true, h.scale(), are_joined);
  };
  const Pair in_f32 = run(q);
  const Tensor q16 = q.to(Dtype::bf16), k16 = k.to(Dtype::bf16), v16 = v.to(Dtype::bf16);
  if (has_bf16(on)) {
    const Pair cast = framework::attention(q16, k16, v16, true, h.scale());
    const Floats want = floats(cast.first);
    REQUIRE(want != host(in_f32.first));
    const Autocast guard;
    const Pair got = run(q);
    REQUIRE((got.first.dtype() == Dtype::f32 && host(got.first) == want));
    REQUIRE(host(got.second) == host(cast.second));
    REQUIRE(host(run(q16).first) == want);  // k and v are cast still
    const Tensor joined = run(q, true).first;
    REQUIRE((joined.transpose(1, 2).is_contiguous() && host(joined.contiguous()) == want));
    // What is bf16 already stays so.
    REQUIRE(framework::attention(q16, k16, v16, true, h.scale()).first.dtype() == Dtype::bf16);
    const Autocast none(Dtype::f32);
    REQUIRE(host(run(q).first) == host(in_f32.first));
  }
  for (int i = 0; i < 2; ++i)  // there are no kernels of f16
    REQUIRE(left_by(on, Dtype::f16, [&] { REQUIRE(host(run(q).first) == host(in_f32.first)); }) ==
            "there is no attention of f16");
}

TEST_CASE("where own has no attention of bf16, an Autocast leaves f32, and says why") {
  Device& on = device("own");
  const Tensor x = random_on(on, {1, 2, 9, 16}, 1);
  const auto run = [&] { return host(framework::attention(x, x, x, true, 0.25).first); };
  const std::string missing = missing_on(on);
  kernel(on, "attention", "flash");
  const Floats want = run();
  const std::string reason = left_by(on, Dtype::bf16, [&] { REQUIRE(run() == want); });
  kernel(on, "attention", "");
  REQUIRE((missing.empty() || missing == "own: attention of bf16 needs sm_80"));
  REQUIRE(reason == "own: the kernels that have names take f32");
}
