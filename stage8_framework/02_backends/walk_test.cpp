// Every operation of kOps on every backend of this build, in twelve arrangements of its inputs,
// against the reference in double. ctest runs it with waves of 32 and of 64.
#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "common/testing.h"
#include "stage8_framework/02_backends/cases_for_tests.h"
#include "stage8_framework/02_backends/judge_for_tests.h"

using namespace backends_test;

namespace {

std::shared_ptr<Backend> witness() {
  static const std::shared_ptr<Backend> reference = Backend::load("reference");
  REQUIRE(reference != nullptr);
  return reference;
}

// The plug-in that every build has.
std::shared_ptr<Backend> own() {
  static const std::shared_ptr<Backend> plugin = Backend::load("own");
  REQUIRE(plugin != nullptr);
  return plugin;
}

// Nothing where its libraries are not installed; then the output says so.
std::shared_ptr<Backend> vendor() {
  static const std::shared_ptr<Backend> plugin = []() -> std::shared_ptr<Backend> {
    try {
      const std::shared_ptr<Backend> loaded = Backend::load("vendor");
      if (loaded == nullptr) WARN("vendor was not checked: this build has no such plug-in");
      return loaded;
    } catch (const std::runtime_error& error) {
      WARN("vendor was not checked: " << error.what());
      return nullptr;
    }
  }();
  return plugin;
}

// What the walk did with one operation of one backend.
struct Record {
  size_t ran = 0, made_dense = 0;
  std::set<std::string> refusals;
};

// Runs one call of a backend twice, and holds it against the expected outputs.
void check_call(const Backend& backend, const Backend& owner, TestCall call,
                const std::vector<Expected>& want, Record& record) {
  Outcome outcome = backend.run(call, owner);
  if (!outcome.refusal.empty()) {
    record.refusals.insert(outcome.refusal);
    call = call.with_dense_inputs();
    outcome = backend.run(call, owner);
    if (!outcome.refusal.empty()) {
      record.refusals.insert(outcome.refusal);
      return;
    }
    ++record.made_dense;
  }
  ++record.ran;
  CHECK(outcome.failure == "");
  CHECK(complaint(outcome.outputs, want) == "");
  const Outcome again = backend.run(call, owner);
  for (size_t o = 0; o < outcome.outputs.size() && o < again.outputs.size(); ++o)
    CHECK(again.outputs[o].bytes == outcome.outputs[o].bytes);
}

constexpr const char* kOfFactors = ", factors in ";
std::string named(const Op& op, Dtype factors) {
  return factors == Dtype::f32 ? op.name : std::string(op.name) + kOfFactors + name_of(factors);
}

std::string summary(const std::string& backend, const std::map<std::string, Record>& records,
                    size_t calls) {
  std::ostringstream text;
  text << backend << ", " << calls << " calls of each operation:";
  std::string whole, none;
  for (const auto& [op, record] : records) {
    if (record.ran == calls && record.made_dense == 0) {
      whole += " " + op;
      continue;
    }
    text << "\n  " << op << ": " << record.ran << " ran, " << record.made_dense
         << " of them with dense copies of the inputs";
    for (const std::string& refusal : record.refusals) text << "; \"" << refusal << '"';
  }
  for (const Op* op = framework::kOps; op < framework::kOps + framework::kOpCount; ++op)
    if (records.count(op->name) == 0) none += std::string(" ") + op->name;
  text << "\n  all as they are:" << whole
       << "\n  not in this backend:" << (none.empty() ? " -" : none);
  return text.str();
}

}  // namespace

TEST_CASE("every operation has ingredients for the walk, and a function of the reference") {
  for (const Op* op = framework::kOps; op < framework::kOps + framework::kOpCount; ++op) {
    CAPTURE(op->name);
    CHECK(has_ingredients(op->name));
    CHECK(witness()->has(*op));
  }
}

TEST_CASE("every operation on every backend, in twelve arrangements", "[long]") {
  std::vector<std::shared_ptr<Backend>> backends{witness()};
  backends.push_back(own());
  if (vendor() != nullptr) backends.push_back(vendor());

  std::vector<std::map<std::string, Record>> records(backends.size());
  const auto check_on_all = [&](const Op& op, const NamedArrangement& arrangement,
                                std::uint64_t seed, Dtype type) {
    const TestCall call =
        with_factors_in(type, call_of(op, arrangement.arrangement, seed, *witness()));
    const std::vector<Expected> want = expected_of(call, *witness());
    for (size_t b = 0; b < backends.size(); ++b) {
      if (!backends[b]->has(op)) continue;
      // cuDNN takes the fastest algorithm, which may be Winograd's or a Fourier transform.
      const bool may_transform =
          std::string(backends[b]->name()) == "vendor" && std::string(op.name) == "conv2d";
      INFO(backends[b]->name() << ", " << arrangement.name << ", seed " << seed << ": "
                               << call.text());
      const Backend& owner = backends[b]->has_memory() ? *backends[b] : *own();
      check_call(*backends[b], owner, call,
                 may_transform ? expected_of(call, *witness(), true) : want,
                 records[b][named(op, type)]);
    }
  };
  for (const Op* op = framework::kOps; op < framework::kOps + framework::kOpCount; ++op)
    for (const NamedArrangement& arrangement : kArrangements)
      for (const std::uint64_t seed : kSeeds)
        for (const Dtype type : factor_types(*op)) check_on_all(*op, arrangement, seed, type);
  for (size_t b = 0; b < backends.size(); ++b)
    WARN(summary(backends[b]->name(), records[b], std::size(kArrangements) * std::size(kSeeds)));
  // Whatever a backend says that it has, it runs at least once; vendor has it in f32, and own has
  // attention in bf16 where the device has its instructions.
  for (size_t b = 0; b < backends.size(); ++b)
    for (const auto& [op, record] : records[b]) {
      INFO(backends[b]->name() << ": " << op);
      const bool is_refused =
          (backends[b] == vendor() && op.find(kOfFactors) != std::string::npos) ||
          record.refusals.count("attention of bf16 needs sm_80") > 0;
      CHECK((record.ran > 0) != is_refused);
    }
}

TEST_CASE(
    "NaN, infinities, zeros of both signs and numbers next to them, in elementwise operations") {
  std::vector<std::shared_ptr<Backend>> backends{witness()};
  backends.push_back(own());
  for (const char* const name :
       {"neg",    "abs",     "square",  "sqrt",          "rsqrt",     "reciprocal", "exp",
        "log",    "tanh",    "sigmoid", "relu",          "add",       "sub",        "mul",
        "div",    "maximum", "minimum", "pow",           "equal",     "less",       "less_equal",
        "select", "copy",    "argmax",  "relu_backward", "maxpool2d", "embedding"}) {
    const Op& op = framework::op_named(name);
    for (const Arrangement arrangement : {Arrangement::contiguous, Arrangement::transposed}) {
      const TestCall call = call_of(op, arrangement, kSpecialSeed, *witness());
      const std::vector<Expected> want = expected_of(call, *witness());
      for (const auto& backend : backends) {
        if (!backend->has(op)) continue;
        INFO(backend->name() << ": " << call.text());
        Record record;
        check_call(*backend, *backend, call, want, record);
        CHECK(record.ran == 1);
      }
    }
  }
}

TEST_CASE("fill, in every type") {
  const Op& fill = framework::op_named("fill");
  std::set<std::string> refusals;
  for (const Dtype dtype : framework::kDtypes)
    for (const Shape& shape : {Shape{}, Shape{0, 3}, Shape{3, 7}, Shape{1031}})
      for (const double value : {-2.75, 3e9, 0.1}) {
        const std::vector<double> before(static_cast<size_t>(Layout::contiguous(shape).elements()),
                                         77);
        const TestCall call{&fill, {}, {value}, false, {dense(shape, before, dtype)}};
        const Outcome want = witness()->run(call);
        REQUIRE(want.failure == "");
        const std::vector<double> filled = want.outputs[0].values();
        CHECK(filled == std::vector<double>(filled.size(), filled.empty() ? 0 : filled[0]));
        if (dtype == Dtype::f64 && !filled.empty()) CHECK(filled[0] == value);
        if (dtype == Dtype::i32 && !filled.empty())
          CHECK(filled[0] == std::trunc(std::fmin(value, 2147483647)));
        if (!own()->has(fill)) continue;
        const Outcome got = own()->run(call);
        if (!got.refusal.empty()) {
          refusals.insert(std::string(name_of(dtype)) + ": " + got.refusal);
          continue;
        }
        INFO(name_of(dtype) << ' ' << shape.text() << ' ' << value);
        CHECK(got.failure == "");
        CHECK(got.outputs[0].bytes == want.outputs[0].bytes);
      }
  for (const std::string& refusal : refusals) WARN("own does not fill " << refusal);
}

TEST_CASE("gather, in every type: packs of all sizes, rows that overlap, and ids that are no row") {
  struct Rows {
    const char* name;
    Layout layout;
  };
  const Rows all[] = {{"rows of 784", Layout::contiguous({9, 784})},
                      {"rows of 30 from 1 on", {{9, 30}, {30, 1}, 1}},
                      {"windows of 64", {{200, 64}, {1, 1}, 3}},
                      {"windows 8 apart", {{20, 64}, {8, 1}, 0}},
                      {"matrices, turned", {{3, 4, 6}, {24, 1, 4}, 0}},
                      {"backwards", {{5, 8}, {-8, 1}, 32}},
                      {"one row for all", {{5, 32}, {0, 1}, 0}},
                      {"numbers", Layout::contiguous({7})}};
  const Op& gather = framework::op_named("gather");
  for (const Dtype dtype : framework::kDtypes)
    for (const Rows& rows : all) {
      Input a{rows.layout, dtype, {}};
      for (std::int64_t i = 0; i < rows.layout.span().end; ++i)
        a.storage.push_back(static_cast<double>(i % (dtype == Dtype::boolean ? 2 : 113)));
      const std::int64_t last = rows.layout.shape[0] - 1;
      std::vector<double> ids(35);
      for (size_t i = 0; i < ids.size(); ++i)
        ids[i] = static_cast<double>(static_cast<std::int64_t>(5 * i) % (last + 1));
      ids[2] = -1, ids[3] = static_cast<double>(last), ids[4] = static_cast<double>(last + 1);
      ids[30] = -2147483648.0, ids[31] = 2147483647;
      const TestCall call{&gather, {a, dense({5, 7}, ids, Dtype::i32)}, {}};
      INFO(rows.name << ": " << call.text());
      const Outcome want = witness()->run(call), got = own()->run(call);
      REQUIRE(want.failure + got.failure + got.refusal == "");
      CHECK(got.outputs[0].bytes == want.outputs[0].bytes);
      const std::vector<double> values = want.outputs[0].values(), source = a.values();
      const size_t size = values.size() / ids.size();
      const bool has_nan = std::isnan(values[2 * size]);
      CHECK(has_nan == (dtype == Dtype::f32 || dtype == Dtype::f64 || dtype == Dtype::f16 ||
                        dtype == Dtype::bf16));
      CHECK(values[4 * size - 1] == source[source.size() - 1]);
    }
}

TEST_CASE("every rule of the optimizers, in every shape, at every alignment") {
  for (int kind = 0; kind < 4; ++kind)
    for (const Arrangement arrangement :
         {Arrangement::contiguous, Arrangement::other_rank, Arrangement::ones, Arrangement::nothing,
          Arrangement::primes, Arrangement::offset})
      for (const std::uint64_t seed : kSeeds) {
        const TestCall call = optimizer_call(kind, arrangement, seed);
        INFO(call.text());
        Record record;
        check_call(*own(), *own(), call, expected_of(call, *witness()), record);
        CHECK(record.ran == 1);
      }
}

TEST_CASE("own writes no output that has gaps in place") {
  TestCall call = optimizer_call(0, Arrangement::contiguous, kSeeds[0]);
  call.given[0].layout = call.given[0].layout.transpose(-1, -2);
  call.inputs[0].layout = call.inputs[0].layout.transpose(-1, -2);
  call.given[1].layout = Layout::contiguous(Maker::with({0}, call.given[0].layout.shape));
  CHECK(witness()->run(call).failure == "");
  CHECK(own()->run(call.with_dense_inputs()).refusal == "outputs must be row-major without gaps");
}

TEST_CASE("every kernel that a backend has a name for") {
  std::map<std::string, Record> records;
  for (const Op* op = framework::kOps; op < framework::kOps + framework::kOpCount; ++op) {
    if (!own()->has(*op)) continue;
    const std::vector<std::string> kernels = own()->kernels(*op);
    for (const Arrangement arrangement :
         {Arrangement::contiguous, Arrangement::other_rank, Arrangement::primes}) {
      if (kernels.empty()) continue;
      const TestCall call = call_of(*op, arrangement, kSeeds[0], *witness()).with_dense_inputs();
      const std::vector<Expected> want = expected_of(call, *witness());
      for (size_t k = 0; k < kernels.size(); ++k) {
        INFO(kernels[k] << ": " << call.text());
        Record& record = records[op->name + (" " + kernels[k])];
        const Outcome outcome = own()->run(call, *own(), static_cast<std::int32_t>(k + 1));
        if (!outcome.refusal.empty()) {
          record.refusals.insert(outcome.refusal);
          continue;
        }
        ++record.ran;
        CHECK(outcome.failure == "");
        CHECK(complaint(outcome.outputs, want) == "");
      }
    }
  }
  // Each takes one of the calls at least.
  for (const auto& [kernel, record] : records) {
    CAPTURE(kernel, record.refusals);
    CHECK(record.ran > 0);
  }
}

TEST_CASE("kernels of 1.1 take arrays of one shape, but for axes of one element in front") {
  const Op& add = framework::op_named("add");
  const Input three = dense({3}, {1, 2, 3}), row = dense({1, 3}, {10, 20, 30});
  for (const TestCall& call : {TestCall{&add, {three, row}, {}}, TestCall{&add, {row, three}, {}}})
    for (const std::int32_t kernel : {0, 1}) {
      const Outcome got = own()->run(call, *own(), kernel);
      REQUIRE(got.refusal + got.failure == "");
      CHECK(got.outputs[0].values() == std::vector<double>{11, 22, 33});
    }
  const std::string refusal = "1.1 takes arrays of one shape without gaps";
  const Input rows = dense({2, 3}, {1, 2, 3, 4, 5, 6});
  CHECK(own()->run({&add, {three, rows}, {}}, *own(), 1).refusal == refusal);
  CHECK(own()->run({&add, {row, rows}, {}}, *own(), 1).refusal == refusal);
  const Input turned{Layout::contiguous({3, 2}).transpose(0, 1), rows.dtype, rows.storage};
  CHECK(own()->run({&add, {turned, rows}, {}}, *own(), 1).refusal == refusal);
}

TEST_CASE("own has one kernel for factors of 16 bits") {
  for (const char* const name : {"matmul", "linear", "attention", "attention_backward"}) {
    const Op& op = framework::op_named(name);
    const TestCall call =
        with_factors_in(Dtype::bf16, call_of(op, Arrangement::contiguous, kSeeds[0], *witness()));
    CHECK(own()->run(call, *own(), 1).refusal == "the kernels that have names take f32");
  }
}

TEST_CASE("every operation that the course has a kernel of is in another backend, too") {
  for (const Op* op = framework::kOps; op < framework::kOps + framework::kOpCount; ++op) {
    CAPTURE(op->name);
    CHECK((own()->has(*op) || (vendor() != nullptr && vendor()->has(*op))));
  }
}

// ---- The walk refuses mistakes
// --------------------------------------------------------------------

namespace {

// The largest difference of finite numbers, as a share of the largest one. 1 where one of two is
// not finite.
double difference(const std::vector<Output>& a, const std::vector<Output>& b) {
  double largest = 0, off = 0;
  for (size_t o = 0; o < a.size(); ++o) {
    const std::vector<double> x = a[o].values(), y = b[o].values();
    for (size_t i = 0; i < x.size(); ++i) {
      if (std::isfinite(x[i]) != std::isfinite(y[i])) return 1;
      if (!std::isfinite(x[i])) continue;
      largest = std::fmax(largest, std::fabs(x[i])), off = std::fmax(off, std::fabs(x[i] - y[i]));
    }
  }
  return largest == 0 ? 0 : off / largest;
}

// The reference's outputs with one of the inputs' numbers left out, the first one that changes an
// output by 1 % of the largest.
std::vector<Output> with_a_term_dropped(const TestCall& call, const std::vector<Output>& right) {
  TestCall wrong = call;
  std::vector<std::vector<double>*> terms;
  for (Input* const array : wrong.read()) terms.push_back(&array->storage);
  if (terms.empty()) terms.push_back(&wrong.attributes);
  for (std::vector<double>* const numbers : terms)
    for (double& value : *numbers) {
      const double before = value;
      value = before == 0 ? 1 : 0;
      const std::vector<Output> outputs = witness()->run(wrong).outputs;
      if (difference(right, outputs) > 0.01) return outputs;
      value = before;
    }
  return right;
}

// Two neighbours change places, those that differ most.
std::vector<Output> with_elements_swapped(std::vector<Output> outputs) {
  const auto bytes = static_cast<std::ptrdiff_t>(size_of(outputs[0].dtype));
  const std::vector<double> values = outputs[0].values();
  size_t first = 0;
  const auto step = [&](size_t i) { return std::fabs(values[i + 1] - values[i]); };
  for (size_t i = 0; i + 1 < values.size(); ++i)
    if (step(i) > step(first)) first = i;
  const auto at = outputs[0].bytes.begin() + static_cast<std::ptrdiff_t>(first) * bytes;
  std::swap_ranges(at, at + bytes, at + bytes);
  return outputs;
}

// One output, all of one byte.
std::vector<Output> overwritten(std::vector<Output> outputs, size_t o, unsigned char byte) {
  std::fill(outputs[o].bytes.begin(), outputs[o].bytes.end(), byte);
  return outputs;
}

// A scalar's, or what fill makes.
bool are_alike(const std::vector<double>& values) {
  return std::equal(values.begin() + 1, values.end(), values.begin());
}

}  // namespace

TEST_CASE("the walk takes the reference and refuses mistakes, of every operation", "[harness]") {
  const auto check = [](const Op* op, std::uint64_t seed, Dtype type) {
    const TestCall call = with_factors_in(
        type, call_of(*op, Arrangement::contiguous, seed, *witness()).with_dense_inputs());
    INFO(call.text());
    const std::vector<Expected> want = expected_of(call, *witness());
    const std::vector<Output> right = witness()->run(call).outputs;
    CHECK(complaint(right, want) == "");
    CHECK(complaint(with_a_term_dropped(call, right), want) != "");
    if (!are_alike(right[0].values())) CHECK(complaint(with_elements_swapped(right), want) != "");
    for (size_t o = 0; o < right.size(); ++o) {
      CAPTURE(o);
      if (right[o].bytes.empty()) continue;  // the states of an optimizer that has none
      CHECK(complaint(overwritten(right, o, 0), want) != "");
      CHECK(complaint(overwritten(right, o, 0xFF), want) != "");
    }
  };
  for (const Op* op = framework::kOps; op < framework::kOps + framework::kOpCount; ++op)
    for (const std::uint64_t seed : kSeeds)
      for (const Dtype type : factor_types(*op)) check(op, seed, type);
}

TEST_CASE("the walk refuses an optimizer that leaves out a term, or miscounts", "[harness]") {
  // What each rule depends on: attributes 1 to 5, and the steps.
  const std::vector<std::vector<size_t>> used = {{}, {1}, {2, 3, 4}, {2, 3, 4, 5}};
  for (int kind = 0; kind < 4; ++kind) {
    const TestCall call = optimizer_call(kind, Arrangement::contiguous, 3);
    const std::vector<Expected> want = expected_of(call, *witness());
    const auto complaint_of = [&](const TestCall& wrong) {
      return complaint(witness()->run(wrong).outputs, want);
    };
    CHECK(complaint_of(call) == "");
    for (size_t attribute = 1; attribute <= 5; ++attribute) {
      TestCall wrong = call;
      wrong.attributes[attribute] *= 1 - 0x1p-10;
      const std::vector<size_t>& of_kind = used[static_cast<size_t>(kind)];
      const bool is_used = std::count(of_kind.begin(), of_kind.end(), attribute) > 0;
      INFO("kind " << kind << ", attribute " << attribute);
      CHECK((complaint_of(wrong) != "") == is_used);
    }
    // The bias is corrected for the step that begins, not for the one before.
    TestCall late = call;
    late.given[2].storage[0] -= 1;
    std::vector<Output> outputs = witness()->run(late).outputs;
    CHECK(complaint(outputs, want) != "");
    outputs[2] = want[2].rounded;
    CHECK((complaint(outputs, want) != "") == (kind >= 2));
  }
}
