// Every row of kOps has a rule, and every rule is held against difference quotients, in f64 on the
// reference, for the shapes and layouts that 8.2's tests have; own's gradients are held against
// those.
#include "stage8_framework/03_autograd/rules.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "common/testing.h"
#include "stage5_training/03_gradient_check/checker.h"
#include "stage8_framework/02_backends/cases_for_tests.h"
#include "stage8_framework/02_backends/dispatch.h"
#include "stage8_framework/02_backends/functions.h"

using namespace backends_test;
using framework::Call;
using framework::Device;
using framework::Rule;
using framework::Tensor;

namespace {

constexpr Arrangement kChecked[] = {
    Arrangement::contiguous, Arrangement::other_rank,   Arrangement::ones,    Arrangement::nothing,
    Arrangement::offset,     Arrangement::transposed,   Arrangement::stepped, Arrangement::reversed,
    Arrangement::repeated,   Arrangement::channels_last};
constexpr std::uint64_t kReal = 2;

const std::shared_ptr<Backend>& witness() {
  static const std::shared_ptr<Backend> reference = Backend::load("reference");
  return reference;
}

bool has_rule(const Op& op) { return framework::rule_of(op).run != nullptr; }

// A call whose loss has a slope everywhere. Those of cast have steps, but for that to f64.
TestCall call_for(const Op& op, Arrangement arrangement) {
  TestCall call = call_of(op, arrangement, kReal, *witness());
  call.in_double = true;
  if (op.name == std::string("cast")) call.attributes = {static_cast<double>(Dtype::f64)};
  return call;
}

// Which outputs the loss counts, a bit for each: real ones.
using Counted = unsigned;

// The weight of element i of an output: the loss is the sum of all outputs times their weights.
double weight(size_t output, size_t i) {
  return static_cast<double>(random_numbers::uniform(7, static_cast<std::uint32_t>(output), i));
}

double loss_of(const TestCall& call, Counted counted) {
  const Outcome outcome = witness()->run(call);
  REQUIRE(outcome.failure + outcome.refusal == "");
  double loss = 0;
  for (size_t o = 0; o < outcome.outputs.size(); ++o) {
    if ((counted >> o & 1) == 0) continue;
    const std::vector<double> values = outcome.outputs[o].values();
    for (size_t i = 0; i < values.size(); ++i) loss += weight(o, i) * values[i];
  }
  return loss;
}

Tensor upload(Device& on, const std::vector<double>& values, const Shape& shape, Dtype dtype) {
  return Tensor::from_host(on, bytes_of(values, dtype).data(), shape, dtype);
}

// The gradients of the loss by each number of each real input's storage; of the others nothing.
std::vector<std::vector<double>> gradients(const TestCall& call, Counted counted, Device& on) {
  Call forward;
  forward.op = call.op;
  forward.input_count = static_cast<int>(call.inputs.size());
  std::copy(call.attributes.begin(), call.attributes.end(), forward.attributes);
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const Input& input = call.inputs[i];
    if (!input.is_present) continue;
    const auto count = static_cast<std::int64_t>(input.storage.size());
    Tensor& x = forward.inputs[i];
    x = upload(on, input.storage, {count}, call.dtype_of(input)).view(input.layout);
    if (input.is_real()) x.set_requires_grad();
  }
  framework::run(forward);
  for (size_t o = 0; o < 3; ++o) {  // retained: each output on its own
    const Tensor& y = forward.outputs[o];
    if ((counted >> o & 1) == 0 || !y.is_defined()) continue;
    std::vector<double> weights(static_cast<size_t>(y.elements()));
    for (size_t i = 0; i < weights.size(); ++i) weights[i] = weight(o, i);
    const Dtype type = call.inputs[0].dtype;  // a weight is a factor of the gradients' products
    if (call.op->narrow == framework::Narrow::factors)
      weights = values_of(bytes_of(weights, type), type);
    y.backward(upload(on, weights, y.shape(), y.dtype()), true);
  }
  std::vector<std::vector<double>> sums;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const Input& input = call.inputs[i];
    std::vector<double>& sum = sums.emplace_back();
    if (!input.is_real()) continue;
    sum.resize(input.storage.size());
    const Tensor grad = forward.inputs[i].grad();
    if (!grad.is_defined()) continue;  // the outputs do not depend on it
    REQUIRE(grad.shape() == input.layout.shape);
    const std::vector<double> values = grad.to(Dtype::f64).to_host<double>();
    size_t n = 0;  // a number that several indices lead to gets all their gradients
    for_each_place(input.layout, [&](size_t place) { sum[place] += values[n++]; });
  }
  return sums;
}

// The same by difference quotients.
std::vector<std::vector<double>> quotients(TestCall call, Counted counted) {
  std::vector<std::vector<double>> values, sums;
  for (const Input& input : call.inputs) values.push_back(input.storage);
  const auto loss = [&](const std::vector<std::vector<double>>& at) {
    for (size_t i = 0; i < at.size(); ++i) call.inputs[i].storage = at[i];
    return loss_of(call, counted);
  };
  const double here = loss(values);
  for (size_t i = 0; i < values.size(); ++i) {
    std::vector<double>& sum = sums.emplace_back();
    if (!call.inputs[i].is_real()) continue;
    sum.resize(values[i].size());
    std::set<size_t> places;
    for_each_place(call.inputs[i].layout, [&](size_t place) { places.insert(place); });
    for (const size_t place : places)
      sum[place] = gradient_check::difference_quotients(loss, values, i, place, here).central;
  }
  return sums;
}

// The largest difference, as a share of what is allowed: `tolerance` times the largest gradient, or
// 1 where that is less.
double off_by(const std::vector<std::vector<double>>& got,
              const std::vector<std::vector<double>>& want, double tolerance) {
  double worst = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    double largest = 1;
    for (const double value : want[i]) largest = std::fmax(largest, std::fabs(value));
    for (size_t n = 0; n < want[i].size(); ++n) {
      const double off = std::fabs(got[i][n] - want[i][n]) / (tolerance * largest);
      worst = std::isnan(off) ? INFINITY : std::fmax(worst, off);
    }
  }
  return worst;
}

constexpr double kQuotient = 2e-8;       // of quotients: what is left of h^2 L''' / 6
constexpr double kFloat = 32 * 0x1p-24;  // of own in f32: 32 roundings of the largest

constexpr double kMixed = 1024 * 0x1p-24;  // of a matrix unit, which cuts off for each term

// The outputs of an operation that may be in a loss, all together and one by one.
std::vector<Counted> countings(const Op& op) {
  if (op.name == std::string("maxpool2d") || op.output_count == 1) return {1};
  return op.output_count == 2 ? std::vector<Counted>{3, 1, 2} : std::vector<Counted>{7, 1, 2, 4};
}

}  // namespace

TEST_CASE("every row of kOps has a rule, or says why not") {
  REQUIRE(framework::rule_count() == framework::kOpCount);
  for (const Op* op = framework::kOps; op < framework::kOps + framework::kOpCount; ++op) {
    const Rule& rule = framework::rule_of(*op);
    CAPTURE(op->name);
    REQUIRE(rule.name == std::string(op->name));
    REQUIRE((rule.run == nullptr) == (std::string(rule.reason) != ""));
    // What has a gradient is not a part of one, and does not work in place.
    const std::string name = op->name;
    REQUIRE(has_rule(*op) != (name.find("_backward") != std::string::npos ||
                              name.find("_grad_") != std::string::npos || name == "gather" ||
                              op->updates || rule.is_constant));
  }
}

TEST_CASE("every rule is what difference quotients say") {
  Device& reference = framework::device("reference");
  for (const Op* op = framework::kOps; op < framework::kOps + framework::kOpCount; ++op) {
    if (!has_rule(*op)) continue;
    for (const Arrangement arrangement : kChecked)
      for (const Counted counted : countings(*op)) {
        const TestCall call = call_for(*op, arrangement);
        if (std::isnan(loss_of(call, counted))) continue;  // a mean of nothing
        INFO(call.text() << "; outputs " << counted);
        CHECK(off_by(gradients(call, counted, reference), quotients(call, counted), kQuotient) <=
              1);
      }
  }
}

TEST_CASE("own's gradients are those of the reference") {
  Device& reference = framework::device("reference");
  Device& own = framework::device("own");
  for (const Op* op = framework::kOps; op < framework::kOps + framework::kOpCount; ++op) {
    if (!has_rule(*op)) continue;
    for (const NamedArrangement& arrangement : kArrangements)
      for (const Counted counted : countings(*op)) {
        TestCall call = call_for(*op, arrangement.arrangement);
        INFO(call.text() << "; outputs " << counted);
        const auto want = gradients(call, counted, reference);
        call.in_double = false;
        CHECK(off_by(gradients(call, counted, own), want, kFloat) <= 1);
      }
  }
}

TEST_CASE("own's gradients of 16-bit factors are those of the reference") {
  Device& reference = framework::device("reference");
  Device& own = framework::device("own");
  for (const char* const name : {"matmul", "linear"})
    for (const NamedArrangement& arrangement : kArrangements)
      for (const Dtype type : {Dtype::bf16, Dtype::f16}) {
        const Op& op = framework::op_named(name);
        TestCall call = with_factors_in(type, call_for(op, arrangement.arrangement));
        // Nothing or relu: what goes through it has 16 bits still.
        if (!call.attributes.empty()) call.attributes[0] = std::fmod(call.attributes[0], 2);
        INFO(call.text());
        const auto want = gradients(call, 1, reference);
        call.in_double = false;
        CHECK(off_by(gradients(call, 1, own), want, kMixed) <= 1);
      }
}

TEST_CASE("every activation of a linear layer") {
  Device& reference = framework::device("reference");
  const Op& op = framework::op_named("linear");
  for (int activation = 0; activation <= 4; ++activation)
    for (const Arrangement arrangement : {Arrangement::contiguous, Arrangement::primes}) {
      TestCall call = call_for(op, arrangement);
      call.attributes = {static_cast<double>(activation)};
      INFO(call.text());
      CHECK(off_by(gradients(call, 1, reference), quotients(call, 1), kQuotient) <= 1);
    }
}

TEST_CASE("the check of rules refuses mistakes", "[harness]") {
  const Op& op = framework::op_named("linear");
  const TestCall call = call_for(op, Arrangement::contiguous);
  const auto want = quotients(call, 1);
  for (size_t i = 0; i < want.size(); ++i) {
    auto wrong = want;
    std::fill(wrong[i].begin(), wrong[i].end(), 0);
    CHECK(off_by(wrong, want, kFloat) > 1);
    wrong = want;
    std::reverse(wrong[i].begin(), wrong[i].end());
    CHECK(off_by(wrong, want, kFloat) > 1);
    wrong = want;
    wrong[i][0] = kNaN;
    CHECK(off_by(wrong, want, kFloat) > 1);
  }
}
