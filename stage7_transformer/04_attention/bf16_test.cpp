// The versions for bf16 at awkward shapes, layouts and values, within their bound; and causality
// bit by bit.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "stage7_transformer/04_attention/arrays_for_tests.h"
#include "stage7_transformer/04_attention/bf16_for_tests.h"

namespace {

using namespace attention_bf16;
using attention::Of;

// The versions that this device has.
std::vector<std::string> versions() {
  std::vector<std::string> names;
  for (const auto& version : testing::chosen(attention::kBf16Versions))
    if (missing(version.needs).empty()) names.push_back(version.name);
  return names;
}
bool has_version(const std::string& name) {
  const std::vector<std::string> names = versions();
  return std::find(names.begin(), names.end(), name) != names.end();
}

// One of them after the other: the test begins again for each. "" where there are no more.
std::string version_in_turn() {
  static_assert(std::size(attention::kBf16Versions) == 5);
  const size_t number = GENERATE(size_t{0}, size_t{1}, size_t{2}, size_t{3}, size_t{4});
  const std::vector<std::string> names = versions();
  return number < names.size() ? names[number] : "";
}

// The device memory of one attention.
struct Device {
  Device(const Inputs& in, Layout layout, const std::string& name)
      : version(*std::find_if(std::begin(attention::kBf16Versions),
                              std::end(attention::kBf16Versions),
                              [&](const auto& any) { return any.name == name; })),
        problem(in.problem),
        q(problem, problem.Tq, layout, in.q),
        k(problem, problem.Tk, layout, in.k),
        v(problem, problem.Tk, layout, in.v),
        out(problem, problem.Tq, layout),
        lse(problem.B * problem.H * problem.Tq, 0),
        memory(version.launch.memory(problem), 0) {}

  // out (B, H, Tq, D).
  std::vector<bfloat16> run(bool with_lse = true) {
    version.launch.run(out.view(), with_lse ? lse.data() : nullptr, q.view(), k.view(), v.view(),
                       problem, memory.data(), nullptr);
    return out.to_host();
  }
  bool intact() const {
    bool all = lse.intact() && memory.intact();
    for (const Rows* rows : {&q, &k, &v, &out}) all = all && rows->intact();
    return all;
  }

  Version<attention::LaunchOf<bfloat16>> version;
  Problem problem;
  Rows q, k, v, out;
  Guarded<float> lse, memory;
};

Comparison check(const Inputs& in, Layout layout, const std::string& version) {
  const Reference want = attention_cpu(in);
  Device device(in, layout, version);
  const Comparison out = want.out.compare(doubles(device.run()));
  Comparison all = together({out, want.lse.compare(doubles(device.lse.to_host()))});
  all.ok = all.ok && device.intact();
  return all;
}

// Where NaN and infinity are planted; some with so many heads that the large tiles are taken.
constexpr attention::Lengths kUnseen[] = {{9, 9, 3},      {70, 70, 16},   {200, 200, 64},
                                          {133, 170, 64}, {170, 133, 32}, {150, 150, 128},
                                          {90, 90, 256}};

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

}  // namespace

TEST_CASE("bf16: stays within its bound, at any length and number of heads", "[long]") {
  const std::string version = version_in_turn();
  if (version.empty()) return;
  CAPTURE(version);
  constexpr size_t kLengths[] = {1, 2, 31, 64, 127, 128, 129, 500};
  constexpr size_t kHeads[] = {1, 3, 4};
  constexpr size_t kDepths[] = {64, 16, 128, 32, 24};
  size_t i = 0;
  for (const size_t T : kLengths) {
    for (const bool causal : {false, true}) {
      const size_t H = T == 500 ? 1 : kHeads[i % 3], D = kDepths[i % 5], B = T < 100 ? 2 : 1;
      const Layout layout{i % 2 == 1, i % 4 == 2 ? size_t{1} : 0};
      ++i;
      CAPTURE(B, H, T, D, causal, layout.packed, layout.offset);
      const auto inputs = random_inputs(problem_of(B, H, T, T, D, causal));
      REQUIRE_OK(check(inputs, layout, version));
    }
  }
}

TEST_CASE("bf16: pads heads of any size up to 256", "[long]") {
  const std::string version = version_in_turn();
  if (version.empty()) return;
  CAPTURE(version);
  for (const size_t D : {1, 3, 8, 16, 17, 32, 40, 63, 64, 72, 80, 100, 128, 136, 200, 255, 256}) {
    for (const bool packed : {false, true}) {
      CAPTURE(D, packed);
      REQUIRE_OK(check(random_inputs(problem_of(1, 2, 33, 70, D, packed)),
                       {packed, packed ? size_t{8} : 0}, version));
    }
  }
}

TEST_CASE("bf16: takes fewer queries than keys, more, and rows that see no key") {
  const std::string version = version_in_turn();
  if (version.empty()) return;
  CAPTURE(version);
  struct Lengths {
    size_t Tq, Tk;
  };
  constexpr size_t kDepths[] = {16, 128, 64, 256, 32};
  size_t i = 0;
  for (const Lengths t : {Lengths{1, 200}, {1, 1}, {7, 130}, {5, 3}, {200, 70}, {140, 1}, {3, 0}}) {
    for (const bool causal : {false, true}) {
      const size_t D = kDepths[i++ % 5];
      CAPTURE(t.Tq, t.Tk, causal, D);
      REQUIRE_OK(check(random_inputs(problem_of(1, 2, t.Tq, t.Tk, D, causal)), {true, 0}, version));
    }
  }
}

TEST_CASE("bf16: a few queries and a cache in many slices") {
  const std::string version = version_in_turn();
  if (version.empty()) return;
  CAPTURE(version);
  size_t turn = 0;
  for (const size_t Tq : {1, 2, 4, 5, 8})
    for (const size_t Tk : {63, 64, 65, 129, 1000}) {
      const size_t D = turn % 3 == 0 ? 64 : turn % 3 == 1 ? 128 : 200;
      const bool causal = ++turn % 4 == 0;
      CAPTURE(Tq, Tk, D, causal);
      REQUIRE_OK(
          check(random_inputs(problem_of(1, 2, Tq, Tk, D, causal)), {turn % 2 == 0, 0}, version));
    }
}

TEST_CASE("bf16: has enough blocks to take its large tiles") {
  const std::string version = version_in_turn();
  if (version.empty()) return;
  CAPTURE(version);
  const size_t heads = gpu::multiprocessors();  // a block for each
  for (const size_t D : {16, 32, 64, 128, 256}) {
    CAPTURE(D);
    REQUIRE_OK(check(random_inputs(problem_of(1, heads, 133, 133, D, true)), {false, 0}, version));
  }
}

TEST_CASE("bf16: long sequences, whose tiles blocks take one after the other", "[long]") {
  const std::string version = GENERATE("flash_wgmma", "flash_persistent");
  if (!has_version(version)) return;
  CAPTURE(version);
  constexpr attention::Lengths kLengths[] = {{1030, 1030, 64}, {1100, 1034, 40}, {300, 300, 128}};
  for (const auto& [Tq, Tk, D] : kLengths) {
    CAPTURE(Tq, Tk, D);
    REQUIRE_OK(check(random_inputs(problem_of(1, 2, Tq, Tk, D, true)), {true, 0}, version));
  }
  REQUIRE_OK(check(random_inputs(problem_of(5, 1, 200, 200, 64, false)), {true, 0}, version));
}

TEST_CASE("bf16: tiles of long sequences whose sums are not finite come again", "[long]") {
  constexpr size_t T = 1030, D = 64;
  if (!has_version("flash_persistent")) return;
  for (const size_t heads : {size_t{1}, size_t{gpu::multiprocessors()}}) {
    const Problem p = problem_of(1, heads, T, T, D, true);
    Inputs in = random_inputs(p, 2);
    const auto before = Device(in, {}, "flash_persistent").run();
    for (const size_t token : {1029, 700, 3}) {  // in the first tile to be taken, and in the last
      CAPTURE(heads, token);
      attention::plant(in.v, T, D, token, 5, gpu::from_float<bfloat16>(NAN));
      const auto queries = attention::reach_of_queries(p, Of::v, token);
      const auto after = Device(in, {}, "flash_persistent").run();
      REQUIRE(attention::same_outside(before, after, nullptr, T, D, queries));
      REQUIRE(attention::reaches(after, T, D, queries));
    }
  }
}

TEST_CASE("bf16: survives large scores") {
  const std::string version = version_in_turn();
  if (version.empty()) return;
  CAPTURE(version);
  // Scores of up to 1e4: sqrt(64) * largest^2 / 3 and more.
  const auto inputs = random_inputs(problem_of(1, 2, 100, 150, 64, true), 60);
  REQUIRE_OK(check(inputs, {}, version));
}

TEST_CASE("bf16: scores that are all far below 0") {
  const std::string version = version_in_turn();
  if (version.empty()) return;
  CAPTURE(version);
  for (const size_t Tq : {1, 4}) {
    CAPTURE(Tq);
    Inputs in = random_inputs(problem_of(1, 2, Tq, 150, 64, false));
    for (bfloat16& value : in.q) value = gpu::from_float<bfloat16>(20 + gpu::to_float(value));
    for (bfloat16& value : in.k) value = gpu::from_float<bfloat16>(gpu::to_float(value) - 5);
    REQUIRE_OK(check(in, {true, 0}, version));
  }
}

TEST_CASE("bf16: finds the one key that a query looks for") {
  const std::string version = version_in_turn();
  if (version.empty()) return;
  CAPTURE(version);
  for (const size_t D : {64, 256}) {
    for (const bool causal : {false, true}) {
      CAPTURE(D, causal);
      Problem problem = problem_of(1, 2, 130, 200, D, causal);
      problem.scale = 100;
      std::vector<size_t> target;
      const Inputs in = search_inputs(problem, target);
      const auto got = Device(in, {true, 0}, version).run();
      size_t wrong = 0;
      for (size_t i = 0; i < got.size(); ++i)
        wrong += to_double(got[i]) != to_double(in.v[target[i / D] * D + i % D]);
      REQUIRE(wrong == 0);
    }
  }
}

TEST_CASE("bf16: a later token changes no earlier output, and twice gives the same bits") {
  const std::string version = version_in_turn();
  if (version.empty()) return;
  CAPTURE(version);
  for (const size_t D : {64, 128}) {
    CAPTURE(D);
    const size_t T = 200, changed = 77;
    Inputs in = random_inputs(problem_of(1, 2, T, T, D, true));
    const auto before = Device(in, {}, version).run();
    const auto again = Device(in, {}, version).run(false);
    REQUIRE(std::memcmp(before.data(), again.data(), before.size() * sizeof before[0]) == 0);
    for (size_t head = 0; head < 2; ++head)
      for (size_t i = (head * T + changed) * D; i < (head + 1) * T * D; ++i)
        in.q[i] = in.k[i] = in.v[i] = gpu::from_float<gpu::bfloat16>(3);
    const auto after = Device(in, {}, version).run();
    size_t earlier = 0, later = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      const bool differs = std::memcmp(&before[i], &after[i], sizeof before[i]) != 0;
      (i / D % T < changed ? earlier : later) += differs;
    }
    REQUIRE(earlier == 0);
    REQUIRE(later > (T - changed) * D);
  }
}

TEST_CASE("bf16: what a query does not see adds nothing to it", "[harness]") {
  const std::string version = version_in_turn();
  if (version.empty()) return;
  CAPTURE(version);
  const size_t many = gpu::multiprocessors();  // heads: a block for each
  for (const auto& [Tq, Tk, D] : kUnseen)
    for (const bool large : {false, true}) {
      if (large && Tq != 133 && Tq != 150) continue;
      const Problem p = problem_of(1, large ? many : 2, Tq, Tk, D, true);
      const Inputs plain = random_inputs(p, 2);
      const auto out = Device(plain, {}, version).run();
      size_t turn = 0;
      for (const Of array : {Of::q, Of::k, Of::v})
        for (const float special :
             {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
          Inputs in = plain;
          std::vector<bfloat16>& values = array == Of::q ? in.q : array == Of::k ? in.k : in.v;
          const size_t T = array == Of::q ? Tq : Tk, token = (5 + 37 * turn++) % T;
          attention::plant(values, T, D, token, turn % D, gpu::from_float<bfloat16>(special));
          const attention::Reach queries = attention::reach_of_queries(p, array, token);
          CAPTURE(Tq, Tk, D, large, static_cast<int>(array), special, token);
          const auto after = Device(in, {}, version).run();
          REQUIRE(attention::same_outside(out, after, nullptr, Tq, D, queries));
          if (array == Of::v) REQUIRE(attention::reaches(after, Tq, D, queries));
        }
    }
}

TEST_CASE("bf16: NaN is not hidden, and what is wrong is caught", "[harness]") {
  const std::string version = version_in_turn();
  if (version.empty()) return;
  CAPTURE(version);
  Inputs in = random_inputs(problem_of(1, 1, 70, 70, 64, true));
  const Reference want = attention_cpu(in);
  const auto ok = [&] { return want.out.compare(doubles(Device(in, {}, version).run())).ok; };
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
  const auto got = Device(in, {}, version).run();
  REQUIRE(std::isnan(to_double(got.back())));
}

TEST_CASE("bf16: refuses what it can't do, and does nothing for nothing") {
  const std::string version = version_in_turn();
  if (version.empty()) return;
  CAPTURE(version);
  const attention::Bf16View none{nullptr, 0, 0, 0};
  const auto run = [&](const Problem& problem) {
    for (const auto& any : attention::kBf16Versions)
      if (any.name == version)
        any.launch.run(none, nullptr, none, none, none, problem, nullptr, nullptr);
  };
  REQUIRE_THROWS_AS(run(problem_of(1, 1, 1, 1, 257, false)), std::invalid_argument);
  Problem problem = problem_of(1, 1, 1, 1, 64, false);
  problem.scale = 0;
  REQUIRE_THROWS_AS(run(problem), std::invalid_argument);
  REQUIRE_NOTHROW(run(problem_of(0, 1, 1, 1, 64, false)));
  REQUIRE_NOTHROW(run(problem_of(1, 0, 1, 1, 64, false)));
  REQUIRE_NOTHROW(run(problem_of(1, 1, 0, 1, 64, false)));
  REQUIRE_NOTHROW(run(problem_of(1, 1, 1, 1, 0, false)));
}

TEST_CASE("bf16: on the numbers that NumPy's references are made of", "[numpy]") {
  const std::string version = version_in_turn();
  if (version.empty()) return;
  CAPTURE(version);
  for (const bool causal : {true, false}) {
    const Inputs in{problem_of(2, 2, 21, 26, 12, causal), numpy_rounded("q"), numpy_rounded("k"),
                    numpy_rounded("v"), numpy_rounded("grad_out")};
    CAPTURE(causal);
    REQUIRE_OK(check(in, {true, 0}, version));
  }
}
