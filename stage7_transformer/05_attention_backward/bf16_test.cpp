// The gradients of the versions for bf16 at awkward shapes, layouts and values, within their
// bounds.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>
#include <vector>

#include "stage7_transformer/04_attention/arrays_for_tests.h"
#include "stage7_transformer/04_attention/bf16_for_tests.h"
#include "stage7_transformer/05_attention_backward/attention_backward.h"

namespace {

using namespace attention_bf16;
using attention::Of;

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

using attention_backward::kBf16Versions;
using BackwardVersion = Version<attention_backward::LaunchOf<bfloat16>>;

// The versions that this device has: each test walks them.
std::vector<BackwardVersion> versions() {
  std::vector<BackwardVersion> all;
  for (const BackwardVersion& version : testing::chosen(kBf16Versions))
    if (missing(version.needs).empty()) all.push_back(version);
  return all;
}

// The device memory of one attention and its gradients.
struct Device {
  Device(const Inputs& in, Layout layout, const BackwardVersion& version)
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
        memory(version.launch.memory(problem), 0) {
    attention::launch_flash_bf16(out.view(), lse.data(), q.view(), k.view(), v.view(), problem,
                                 nullptr, nullptr);
    version.launch.run(grad_q.view(), grad_k.view(), grad_v.view(), grad_out.view(), out.view(),
                       lse.data(), q.view(), k.view(), v.view(), problem, memory.data(), nullptr);
  }
  bool intact() const {
    bool all = lse.intact() && memory.intact();
    for (const Rows* rows : {&q, &k, &v, &grad_out, &out, &grad_q, &grad_k, &grad_v})
      all = all && rows->intact();
    return all;
  }

  Problem problem;
  Rows q, k, v, grad_out, out, grad_q, grad_k, grad_v;
  Guarded<float> lse, memory;
};

// Of all versions: out and lse, and so what is wanted, are the same for each.
Comparison check(const Inputs& in, Layout layout) {
  std::vector<Comparison> all;
  std::unique_ptr<const Gradients> want;
  bool intact = true;
  for (const BackwardVersion& version : versions()) {
    const Device device(in, layout, version);
    if (want == nullptr)
      want = std::make_unique<const Gradients>(
          gradients_cpu(in, device.out.to_host(), device.lse.to_host()));
    all.push_back(want->q.compare(doubles(device.grad_q.to_host())));
    all.push_back(want->k.compare(doubles(device.grad_k.to_host())));
    all.push_back(want->v.compare(doubles(device.grad_v.to_host())));
    intact = intact && device.intact();
  }
  Comparison result = together(all);
  result.ok = result.ok && intact;
  return result;
}

// Where NaN and infinity are planted; some with so many heads that the large tiles are taken.
constexpr attention::Lengths kUnseen[] = {{9, 9, 3},      {70, 70, 16},   {200, 200, 64},
                                          {133, 170, 64}, {170, 133, 32}, {150, 150, 128}};

}  // namespace

TEST_CASE("bf16: gradients stay within their bound, at any length", "[long]") {
  if (!available()) return;
  constexpr size_t kLengths[] = {1, 2, 31, 64, 127, 128, 129, 260};
  constexpr size_t kHeads[] = {1, 3, 4};
  constexpr size_t kDepths[] = {64, 16, 128, 32, 24};
  size_t i = 0;
  for (const size_t T : kLengths) {
    for (const bool causal : {false, true}) {
      const size_t H = T > 200 ? 1 : kHeads[i % 3], D = kDepths[i % 5], B = T < 100 ? 2 : 1;
      const Layout layout{i % 2 == 1, i % 4 == 2 ? size_t{1} : 0};
      ++i;
      CAPTURE(B, H, T, D, causal, layout.packed, layout.offset);
      const auto inputs = random_inputs(problem_of(B, H, T, T, D, causal));
      REQUIRE_OK(check(inputs, layout));
    }
  }
}

TEST_CASE("bf16: gradients of rows that begin at no multiple of 16 bytes") {
  if (!available()) return;
  for (const size_t D : {5, 20, 61})
    for (const bool causal : {false, true}) {
      CAPTURE(D, causal);
      REQUIRE_OK(check(random_inputs(problem_of(1, 2, 9, 7, D, causal)), {true, 0}));
    }
}

TEST_CASE("bf16: gradients by the large tiles, and of heads of more than 64") {
  if (!available()) return;
  const size_t many = gpu::multiprocessors();  // heads: a block for each
  for (const bool causal : {false, true}) {
    CAPTURE(causal);
    REQUIRE_OK(check(random_inputs(problem_of(1, many, 37, 33, 64, causal)), {}));
    REQUIRE_OK(check(random_inputs(problem_of(1, 1, 9, 7, 120, causal)), {}));
    // More tiles of queries than stages, and two tiles of keys that all of them see.
    REQUIRE_OK(check(random_inputs(problem_of(1, 2, 300, 256, 16, causal)), {}));
    // Whole tiles; with causality, one whose queries see no key.
    REQUIRE_OK(check(random_inputs(problem_of(1, 1, 300, 100, 64, causal)), {}));
    for (const size_t Tq : {0, 3})
      REQUIRE_OK(check(random_inputs(problem_of(1, 2, Tq, 3 - Tq, 16, causal)), {}));
  }
}

TEST_CASE("bf16: gradients of heads of any size up to 128, of rows that see no key", "[long]") {
  if (!available()) return;
  for (const size_t D : {1, 8, 17, 40, 64, 72, 100, 128}) {
    CAPTURE(D);
    REQUIRE_OK(check(random_inputs(problem_of(1, 2, 33, 70, D, D % 2 == 0)), {}));
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
      REQUIRE_OK(check(random_inputs(problem_of(1, 2, t.Tq, t.Tk, D, causal)), {true, 0}));
    }
  }
}

TEST_CASE("bf16: gradients at large scores, with the same bits twice, and what is wrong",
          "[long]") {
  if (!available()) return;
  Inputs in = random_inputs(problem_of(1, 2, 100, 150, 64, true), 60);
  REQUIRE_OK(check(in, {}));
  in = random_inputs(problem_of(1, 2, 100, 150, 64, true));
  for (const BackwardVersion& version : versions()) {
    CAPTURE(version.name);
    Device device(in, {}, version), again(in, {}, version);
    const auto grad_k = device.grad_k.to_host(), grad_q = device.grad_q.to_host();
    const auto same = [](const auto& a, const auto& b) {
      return std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0;
    };
    REQUIRE(same(grad_k, again.grad_k.to_host()));
    REQUIRE(same(grad_q, again.grad_q.to_host()));

    const auto lse = device.lse.to_host();
    auto out = device.out.to_host();
    REQUIRE(gradients_cpu(in, out, lse).k.compare(doubles(grad_k)).ok);
    REQUIRE(!gradients_cpu(in, out, lse).v.compare(doubles(grad_k)).ok);
    std::reverse(out.begin(), out.end());  // another delta
    REQUIRE(!gradients_cpu(in, out, lse).k.compare(doubles(grad_k)).ok);
    REQUIRE(!gradients_cpu(in, out, lse).q.compare(doubles(grad_q)).ok);
  }
}

// NaN and infinity in a row of each input: what they do not reach has the same bits as before.
void require_unreached(const Problem& p, const BackwardVersion& version) {
  const Inputs plain = random_inputs(p, 2);
  const Device before(plain, {}, version);
  size_t turn = 0;
  for (const Of array : {Of::q, Of::k, Of::v, Of::grad_out})
    for (const float special :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      Inputs in = plain;
      const bool of_key = array == Of::k || array == Of::v;
      std::vector<bfloat16>& values = array == Of::q   ? in.q
                                      : array == Of::k ? in.k
                                      : array == Of::v ? in.v
                                                       : in.grad_out;
      const size_t T = of_key ? p.Tk : p.Tq, token = (5 + 37 * turn++) % T;
      attention::plant(values, T, p.D, token, turn % p.D, gpu::from_float<bfloat16>(special));
      const attention::Reach queries = attention::reach_of_queries(p, array, token);
      const attention::Reach keys = attention::reach_of_keys(p, array, token);
      CAPTURE(version.name, p.H, p.Tq, p.Tk, p.D, static_cast<int>(array), special, token);
      const Device after(in, {}, version);
      using attention::same_outside;
      REQUIRE(same_outside(before.grad_q.to_host(), after.grad_q.to_host(), nullptr, p.Tq, p.D,
                           queries));
      REQUIRE(
          same_outside(before.grad_k.to_host(), after.grad_k.to_host(), nullptr, p.Tk, p.D, keys));
      const auto grad_v = after.grad_v.to_host();
      REQUIRE(same_outside(before.grad_v.to_host(), grad_v, nullptr, p.Tk, p.D,
                           array == Of::v ? attention::Reach{0, 0} : keys));
      if (array == Of::grad_out) REQUIRE(attention::reaches(grad_v, p.Tk, p.D, keys));
    }
}

TEST_CASE("bf16: pairs that do not see each other add nothing to the gradients", "[harness]") {
  if (!available()) return;
  const size_t many = gpu::multiprocessors();  // heads: a block for each
  for (const BackwardVersion& version : versions())
    for (const auto& [Tq, Tk, D] : kUnseen)
      for (const bool large : {false, true})
        if (!large || Tq == 133 || Tq == 150)
          require_unreached(problem_of(1, large ? many : 2, Tq, Tk, D, true), version);
}

TEST_CASE("bf16: refuses heads that are too large for its gradients") {
  if (!available()) return;
  const attention::Bf16View none{nullptr, 0, 0, 0};
  for (const BackwardVersion& version : versions()) {
    const auto run = [&](const Problem& problem) {
      version.launch.run(none, none, none, none, none, nullptr, none, none, none, problem, nullptr,
                         nullptr);
    };
    REQUIRE_THROWS_AS(run(problem_of(1, 1, 1, 1, 129, false)), std::invalid_argument);
    REQUIRE_NOTHROW(run(problem_of(0, 1, 1, 1, 64, false)));
  }
}

TEST_CASE("bf16: NaN in the only key of a query reaches the query's gradient") {
  if (!available()) return;
  for (const BackwardVersion& version : versions()) {
    CAPTURE(version.name);
    const Problem p = problem_of(1, 1, 1, 1, 16, true);
    Inputs in = random_inputs(p);
    in.k[3] = gpu::from_float<bfloat16>(std::numeric_limits<float>::quiet_NaN());
    REQUIRE(attention::reaches(Device(in, {}, version).grad_q.to_host(), p.Tq, p.D, {0, 1}));
  }
}

TEST_CASE("bf16: gradients of the numbers that NumPy's references are made of", "[numpy]") {
  if (!available()) return;
  for (const bool causal : {true, false}) {
    const Inputs in{problem_of(2, 2, 21, 26, 12, causal), numpy_rounded("q"), numpy_rounded("k"),
                    numpy_rounded("v"), numpy_rounded("grad_out")};
    CAPTURE(causal);
    REQUIRE_OK(check(in, {true, 0}));
  }
}
