// Compiled programs: the bits of the interpreter and of separate calls, whatever the program; and
// what is said where there is no compiler. Ten thousand random ones are two tests of ctest's, which
// compile them with little optimisation: fusion_programs_0 and _1.
#include <cstdio>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/testing.h"
#include "common/tests/child.h"
#include "stage8_framework/06_fusion/compiled_work.h"
#include "stage8_framework/06_fusion/programs_for_tests.h"
#include "stage8_framework/06_fusion/source.h"

using fusion::compiled_together;
using namespace fusion_test;

namespace {

// By the interpreter; nothing where it has too few slots.
std::optional<std::vector<Floats>> by_interpreter(const TestProgram& test) {
  std::unique_ptr<fusion::ReadyWork> work;
  try {
    work = fusion::interpreted(test.program);
  } catch (const std::invalid_argument&) {
    return std::nullopt;
  }
  return run_fused(*work, test);
}
std::vector<Floats> wanted(const TestProgram& test) {
  std::optional<std::vector<Floats>> outputs = by_interpreter(test);
  return outputs ? *outputs : run_separately(test);
}

std::string name_of(const TestProgram& test) {
  return test.program.domain.text() + ": " + test.program.text();
}

// Compiles all of them from so many texts.
std::vector<std::unique_ptr<fusion::ReadyWork>> compiled_works(
    const std::vector<TestProgram>& tests, size_t texts) {
  std::vector<Program> programs;
  for (const TestProgram& test : tests) programs.push_back(test.program);
  return compiled_together(programs, texts);
}
void check_all(const std::vector<TestProgram>& tests) {
  const auto works = compiled_works(tests, 3);
  for (size_t i = 0; i < tests.size(); ++i) {
    INFO("program " << i << " of " << name_of(tests[i]));
    CHECK(difference(run_fused(*works[i], tests[i]), wanted(tests[i])) == "");
  }
}

// Calls check(tests) for the programs of these seeds, 100 at a time.
template <class Check>
void for_random_programs(std::uint64_t first, std::uint64_t end, const Check& check) {
  while (first < end) {
    CAPTURE(first);
    std::vector<TestProgram> tests;
    while (tests.size() < 100 && first < end) tests.push_back(random_program(first++));
    check(tests);
  }
}

// Each of them separately, interpreted and compiled.
void check_three(const std::vector<TestProgram>& tests) {
  const auto works = compiled_works(tests, 1);
  for (size_t i = 0; i < tests.size(); ++i) {
    INFO("program " << i << " of " << name_of(tests[i]));
    const std::vector<Floats> separate = run_separately(tests[i]);
    CHECK(difference(run_fused(*works[i], tests[i]), separate) == "");
    CHECK(difference(by_interpreter(tests[i]).value_or(separate), separate) == "");
  }
}

// A program without instructions, whose inputs are given: random numbers of these layouts.
TestProgram reading(const Shape& domain, const std::vector<Layout>& layouts, std::uint64_t seed) {
  Chance chance(seed);
  TestProgram test;
  test.program.domain = domain;
  for (const Layout& layout : layouts) {
    test.program.inputs.push_back({layout, Dtype::f32});
    test.storages.push_back(random_storage(chance, layout, Dtype::f32));
  }
  return test;
}

// gelu((y z + y) / 2) z + y
TestProgram gelu_of(const Shape& domain, const Layout& y, const Layout& z) {
  TestProgram test = reading(domain, {y, z}, 3);
  test.program = fusion::gelu_program(domain, test.program.inputs[0], test.program.inputs[1]);
  return test;
}

}  // namespace

TEST_CASE("compiled random programs have the bits of their interpreter") {
  for_random_programs(0, 40, check_all);
}
TEST_CASE("500 compiled random programs have the bits of their interpreter", "[long]") {
  for_random_programs(0, 500, check_all);
}
TEST_CASE("the first 5000 programs have the same bits in all three ways", "[.programs0]") {
  for_random_programs(0, 5000, check_three);
}
TEST_CASE("the next 5000 programs have the same bits in all three ways", "[.programs1]") {
  for_random_programs(5000, 10000, check_three);
}

TEST_CASE(
    "a compiled formula has the bits of own's kernel for numbers that the compiler knows too") {
  std::vector<TestProgram> tests;
  for (int formula = 1; formula < fusion::kFormulaCount; ++formula) {
    const auto it = static_cast<Formula>(formula);
    if (it == Formula::select) continue;  // whose condition is a bool for own's kernel
    const Layout layout = Layout::contiguous({4099});
    TestProgram test =
        reading({4099}, {layout, layout, layout}, static_cast<std::uint64_t>(formula));
    for (const float number : {0.1f, 2.0f, 0.5f, -0.0f, INFINITY, NAN, 1e-40f, 88.7f})
      test.program.code.push_back({Formula::number, {}, number});
    test.program.code.push_back({it, {0, 1, 2}});  // value 11
    std::uint8_t total = 11;
    const auto add_to_total = [&](std::uint8_t value) {
      test.program.code.push_back({Formula::less, {value, 0}});
      test.program.code.push_back({Formula::add, {total, value}});
      total = static_cast<std::uint8_t>(test.program.value_count() - 1);
    };
    for (const std::uint8_t number : {3, 4}) {
      test.program.code.push_back({it, {number, number, number}});
      add_to_total(static_cast<std::uint8_t>(test.program.value_count() - 1));
      test.program.code.push_back({it, {0, number, number}});
      add_to_total(static_cast<std::uint8_t>(test.program.value_count() - 1));
    }
    test.program.outputs = {11, static_cast<std::uint8_t>(total - 4), total};
    tests.push_back(test);
    for (const std::uint8_t number : {5, 6, 7, 8, 9, 10}) {
      test.program.code.resize(8);
      test.program.code.push_back({it, {number, number, number}});
      test.program.code.push_back({it, {0, number, number}});
      test.program.outputs = {11, 12};
      tests.push_back(test);
    }
  }
  check_all(tests);
}

TEST_CASE("one compiled kernel takes every size and every alignment") {
  std::string source;
  for (const std::int64_t n : {0, 1, 3, 4, 5, 257, 4099, 20000})
    for (size_t shift = 0; shift < 4; ++shift)
      for (const std::int64_t other : {0, 1}) {
        CAPTURE(n, shift, other);
        TestProgram test = gelu_of({n}, Layout::contiguous({n}), Layout::contiguous({n}));
        for (size_t i = 0; i < 2; ++i) {
          const size_t begin = shift + (i == 1 ? static_cast<size_t>(other) : 0);
          test.storages[i].values.assign(begin + static_cast<size_t>(n), 0.0f);
          test.storages[i].begin = static_cast<std::int64_t>(begin);
          Chance chance(n + i);
          for (float& value : test.storages[i].values) value = chance.number();
        }
        test.output_shift = shift;
        const std::string text = source_of(test.program, fusion::Dialect::host);
        if (source.empty()) source = text;
        CHECK(text == source);
        CHECK(difference(run_fused(*fusion::compiled(test.program), test), wanted(test)) == "");
      }
}

TEST_CASE("a compiled reduction adds in the order of own's") {
  struct Case {
    Shape domain;
    std::uint32_t axes;
  };
  const std::vector<Case> cases = {
      {{200000}, 1},  {{3, 50001}, 2},   {{50001, 3}, 1},  {{300, 40}, 2},
      {{40, 300}, 1}, {{2, 3, 1000}, 6}, {{70, 40, 9}, 3}, {{4, 1, 8}, 2},
      {{0, 3}, 1},    {{3, 0}, 2},       {{0, 3}, 2},      {{257, 4}, 1},
      {{257, 5}, 2},  {{67, 4099}, 1},   {{6, 7}, 3},      {{6, 7}, 0}};
  std::vector<TestProgram> tests;
  for (const Case& each : cases)
    for (const Reduction kind : {Reduction::sum, Reduction::mean, Reduction::max})
      for (const bool stores_more : {false, true}) {
        const std::int64_t last = each.domain[each.domain.rank() - 1];
        TestProgram test =
            gelu_of(each.domain, Layout::contiguous(each.domain), Layout::contiguous({last}));
        if (stores_more) test.program.outputs = {3, 5, 8};
        test.program.reduction = kind, test.program.axes = each.axes;
        tests.push_back(test);
      }
  check_all(tests);
}

TEST_CASE("a compiled square root of -0 is -0 whatever comes behind it") {
  TestProgram test = reading({5}, {Layout::contiguous({5})}, 1);  // clang 14 left out the relu
  test.storages[0].values = {-0.0f, 0.0f, 4.0f, -1.0f, INFINITY};
  test.storages[0].begin = 0;
  test.program.code = {{Formula::rsqrt, {0}}, {Formula::relu, {1}}};
  test.program.outputs = {2};
  check_all({test});
}

TEST_CASE("a compiled program runs in a graph") {
  const TestProgram test =
      gelu_of({33, 20}, Layout::contiguous({33, 20}), Layout::contiguous({20}));
  const auto work = fusion::compiled(test.program);
  const gpu::DeviceBuffer<float> y(test.storages[0].values), z(test.storages[1].values);
  gpu::DeviceBuffer<float> out(33 * 20);
  fusion::FusedArrays arrays;
  arrays.in[0] = y.data() + test.storages[0].begin,
  arrays.in[1] = z.data() + test.storages[1].begin;
  arrays.out[0] = out.data();
  const gpu::Stream stream;
  const gpu::Graph graph(stream, [&] { work->run(arrays, stream); });
  CHECK(graph.nodes() == 1);
  graph.launch(stream);
  HIP_CHECK(hipStreamSynchronize(stream));
  CHECK(difference({out.to_host()}, wanted(test)) == "");
}

TEST_CASE("what no kernel takes is refused before anything is compiled") {
  const Shape huge = {1 << 16, 1 << 15};
  Program program;
  program.domain = huge;
  program.inputs = {{Layout::contiguous({1 << 15}), Dtype::f32}};
  program.code = {{Formula::neg, {0}}};
  program.outputs = {1};
  const auto refusal = [&] {
    return testing::what_of<std::invalid_argument>([&] { fusion::compiled(program); });
  };
  CHECK(refusal() == "fused: 2^31 elements or more must lie without gaps");
  program.inputs[0].layout = Layout::contiguous(huge);
  CHECK_NOTHROW(fusion::compiled(program));
  program.domain = {2, 3, 4}, program.inputs[0].layout = Layout::contiguous(program.domain);
  program.reduction = Reduction::sum, program.axes = 2;
  CHECK(refusal() == "fused: a reduction takes the first axes or the last ones");
}

TEST_CASE("says who runs a program", "[.child]") {
  TestProgram test = gelu_of({5}, Layout::contiguous({5}), Layout::contiguous({5}));
  const auto work = fusion::best(test.program);
  const bool is_right = difference(run_fused(*work, test), wanted(test)).empty();
  std::printf("%s; %s\n", work->note().c_str(), is_right ? "right" : "wrong");
}
TEST_CASE("where nothing can be compiled the interpreter runs it and says why") {
  const std::string empty = "/proc/self/fdinfo";  // a folder without programs
  if (std::string(gpu::kBackend) == "cpu")
    CHECK(run_child("says who runs a program", "-u CXX PATH=" + empty)
              .says("interpreted: no compiler: g++ is not found; right"));
  CHECK(run_child("says who runs a program", "-u COURSE_CACHE_DIR -u XDG_CACHE_HOME -u HOME")
            .says("not kept: neither COURSE_CACHE_DIR nor HOME is set; right"));
}
