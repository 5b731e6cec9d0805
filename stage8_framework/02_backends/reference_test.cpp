// What the reference makes of the cases where an operation could mean several things, worked out by
// hand. The walk compares everything else with kernels of earlier steps.
#include <cmath>
#include <limits>

#include "common/testing.h"
#include "stage8_framework/02_backends/call_for_tests.h"
#include "stage8_framework/02_backends/reference/numbers.h"

using namespace backends_test;
using reference::Element;
using std::vector;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

vector<Output> run(const char* op, vector<Input> inputs, vector<double> attributes = {}) {
  static const std::shared_ptr<Backend> plugin = Backend::load("reference");
  REQUIRE(plugin != nullptr);
  const Outcome outcome =
      plugin->run({&framework::op_named(op), std::move(inputs), std::move(attributes)});
  REQUIRE(outcome.failure == "");
  return outcome.outputs;
}

Input labels(vector<double> values) {
  const auto rows = static_cast<std::int64_t>(values.size());
  return dense({rows}, std::move(values), Dtype::i32);
}

}  // namespace

TEST_CASE("cross-entropy: rows that do not count, and labels that are no class") {
  const Input logits = dense({3, 2}, {0, 0, 5, 1, 0, 0});
  const double log2 = static_cast<double>(std::log(2.0f));
  CHECK(run("cross_entropy", {logits, labels({0, -1, 1})})[0].values() == vector<double>{log2});
  CHECK(run("cross_entropy_backward", {dense({}, {4}), logits, labels({0, -1, 1})})[0].values() ==
        vector<double>{-1, 1, 0, 0, 1, -1});
  CHECK(std::isnan(run("cross_entropy", {logits, labels({-1, -1, -1})})[0].values()[0]));
  CHECK(run("cross_entropy_backward", {dense({}, {4}), logits, labels({-1, -1, -1})})[0].values() ==
        vector<double>(6));
  CHECK(std::isnan(run("cross_entropy", {logits, labels({0, 2, 1})})[0].values()[0]));
  CHECK(run("cross_entropy_backward", {dense({}, {3}), logits, labels({2, -2, 1})})[0].values() ==
        vector<double>{0, 0, 0, 0, 0.5, -0.5});
}

TEST_CASE("attention: the last causal query sees all keys, and some may see none") {
  // All scores are 0: a query takes the mean of the values that it sees.
  const auto attend = [](std::int64_t Tq, vector<double> v) {
    const auto Tk = static_cast<std::int64_t>(v.size());
    const vector<double> zeros(static_cast<size_t>(std::max(Tq, Tk)));
    const auto zero = [&](std::int64_t T) {
      return dense({1, 1, T, 1}, {zeros.begin(), zeros.begin() + T});
    };
    return run("attention", {zero(Tq), zero(Tk), dense({1, 1, Tk, 1}, std::move(v))}, {1, 1});
  };
  CHECK(attend(2, {1, 3, 8})[0].values() == vector<double>{2, 4});
  CHECK(attend(3, {6})[0].values() == vector<double>{0, 0, 6});
  CHECK(attend(3, {6})[1].values() == vector<double>{-kInfinity, -kInfinity, 0});
  // A value that is not seen adds nothing, whatever it is.
  CHECK(attend(2, {5, kNaN})[0].values()[0] == 5);
}

TEST_CASE("the largest: NaN before all numbers, and the first of equals") {
  CHECK(run("argmax", {dense({3, 3}, {1, 4, 4, 2, kNaN, kNaN, -kInfinity, -kInfinity, -9})})[0]
            .values() == vector<double>{1, 1, 2});
  CHECK(std::isnan(run("max", {dense({3}, {1, kNaN, 7})}, {1, 0})[0].values()[0]));
  for (const double first : {0.0, -0.0})
    CHECK(!std::signbit(run("max", {dense({2}, {first, -first})}, {1, 0})[0].values()[0]));
  CHECK(std::isnan(run("maximum", {dense({1}, {1}), dense({1}, {kNaN})})[0].values()[0]));
  CHECK(std::isnan(run("maximum", {dense({1}, {kNaN}), dense({1}, {1})})[0].values()[0]));
  CHECK(std::isnan(run("minimum", {dense({1}, {kNaN}), dense({1}, {1})})[0].values()[0]));
  CHECK(std::isnan(run("relu", {dense({1}, {kNaN})})[0].values()[0]));

  // Windows of 2 x 2 every 2, a row and a column of padding, which is never taken.
  const vector<Output> pooled =
      run("maxpool2d", {dense({1, 1, 2, 2}, {-4, 3, 3, kNaN})}, {2, 2, 2, 2, 1, 1});
  CHECK(pooled[0].values()[0] == -4);
  CHECK(std::isnan(pooled[0].values()[3]));
  CHECK(pooled[1].values() == vector<double>{3, 2, 1, 0});
  const vector<Output> equal =
      run("maxpool2d", {dense({1, 1, 2, 2}, {1, 5, 5, 5})}, {2, 2, 1, 1, 0, 0});
  CHECK(equal[1].values() == vector<double>{1});
}

TEST_CASE("rows: equal elements, masks, and ids that are no row") {
  const vector<Output> equal =
      run("layernorm", {dense({1, 2}, {7, 7}), dense({2}, {2, 2}), dense({2}, {1, -1})}, {0});
  CHECK(equal[0].values() == vector<double>{1, -1});
  CHECK(equal[1].values() == vector<double>{7});
  CHECK(equal[2].values() == vector<double>{0});
  CHECK(run("softmax", {dense({1, 3}, {1e30, -kInfinity, 1e30})})[0].values() ==
        vector<double>{0.5, 0, 0.5});
  CHECK(std::isnan(run("softmax", {dense({1, 1}, {-kInfinity})})[0].values()[0]));
  const vector<double> looked_up =
      run("embedding", {dense({2, 1}, {8, 9}), labels({1, 2, -1})})[0].values();
  CHECK(looked_up[0] == 9);
  CHECK(std::isnan(looked_up[1]));
  CHECK(std::isnan(looked_up[2]));
}

TEST_CASE("conv2d: its padding is numbers, too") {
  const Input x = dense({1, 1, 1, 1}, {2}), w = dense({1, 1, 1, 2}, {kInfinity, 1});
  CHECK(std::isnan(run("conv2d", {x, w, absent()}, {1, 1, 0, 1})[0].values()[0]));
}

TEST_CASE("numbers go through no other type than they must") {
  const std::int64_t large = (std::int64_t{1} << 62) + 1;
  std::int64_t copied = 0;
  const auto element = [](auto* value, Dtype type) { return Element(value, type, 0); };
  std::int64_t source = large;
  element(&copied, Dtype::i64).convert_from(element(&source, Dtype::i64));
  CHECK(copied == large);
  std::int32_t narrow = 0;
  element(&narrow, Dtype::i32).convert_from(element(&source, Dtype::i64));
  CHECK(narrow == std::numeric_limits<std::int32_t>::max());
  std::uint32_t bits = 0x7fa12345;  // a NaN with a payload
  std::uint32_t same = 0;
  element(&same, Dtype::f32).convert_from(element(&bits, Dtype::f32));
  CHECK(same == bits);

  TestCall precise{&framework::op_named("add"), {dense({1}, {1}), dense({1}, {0x1p-40})}, {}, true};
  CHECK(Backend::load("reference")->run(precise).outputs[0].values() ==
        vector<double>{1 + 0x1p-40});
}
