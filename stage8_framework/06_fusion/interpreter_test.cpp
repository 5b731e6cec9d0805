// The interpreter: the bits of every formula and of random programs are those of own's kernels, one
// after the other; slots; what is refused.
#include <cstring>
#include <random>
#include <stdexcept>

#include "common/testing.h"
#include "stage8_framework/06_fusion/detail/slots.h"
#include "stage8_framework/06_fusion/programs_for_tests.h"

using namespace fusion_test;

namespace {

// Floats of any bits.
Floats any_floats(size_t count, std::uint32_t seed) {
  std::mt19937 bits(seed);
  Floats values(count);
  for (float& value : values) {
    const auto word = static_cast<std::uint32_t>(bits());
    std::memcpy(&value, &word, sizeof value);
  }
  return values;
}

std::string difference_of(const TestProgram& test) {
  return difference(run_fused(*fusion::interpreted(test.program), test), run_separately(test));
}

// Values 0 to `count`, each made of the one before, and then their sum from the last one back: all
// but the last one wait for it.
TestProgram with_waiting(int count) {
  TestProgram test;
  Program& program = test.program;
  program.domain = {5};
  program.inputs.push_back({Layout::contiguous({5}), Dtype::f32});
  test.storages.push_back({{1, -2, 0.5f, 3, -0.25f}, 0});
  const auto add = [&](Formula formula, int a, int b) {
    program.code.push_back(
        {formula, {static_cast<std::uint8_t>(a), static_cast<std::uint8_t>(b)}, 0});
    return program.value_count() - 1;
  };
  int total = 0;
  for (int i = 0; i < count; ++i) total = add(i % 2 == 0 ? Formula::sigmoid : Formula::neg, i, 0);
  for (int i = count; i-- > 0;) total = add(Formula::add, total, i);
  program.outputs = {static_cast<std::uint8_t>(total)};
  return test;
}

// The product of two inputs, reduced. The second input is a row.
TestProgram reduced(const Shape& domain, Reduction reduction, std::uint32_t axes) {
  Chance chance(7);
  TestProgram test;
  Program& program = test.program;
  program.domain = domain;
  const Layout row = Layout::contiguous({domain[domain.rank() - 1]});
  for (const Layout& layout : {Layout::contiguous(domain), row}) {
    program.inputs.push_back({layout, Dtype::f32});
    test.storages.push_back({{}, 0});
    for (std::int64_t i = 0; i < layout.elements(); ++i)
      test.storages.back().values.push_back(static_cast<float>(chance.below(4096)) / 1024 - 2);
  }
  program.code.push_back({Formula::mul, {0, 1}, 0});
  program.outputs = {2};
  program.reduction = reduction, program.axes = axes;
  return test;
}

std::string refusal(const Program& program) {
  return testing::what_of<std::invalid_argument>([&] { fusion::interpreted(program); });
}

}  // namespace

TEST_CASE("a formula alone has the bits of own's kernel, for floats of any bits") {
  constexpr size_t kCount = 4099;
  for (int formula = 1; formula < fusion::kFormulaCount; ++formula) {
    TestProgram test;
    Program& program = test.program;
    program.domain = {static_cast<std::int64_t>(kCount)};
    fusion::Instruction instruction{static_cast<Formula>(formula), {}, 0};
    const fusion::FormulaRow& row = row_of(instruction.formula);
    CAPTURE(row.name);
    Chance chance(static_cast<std::uint64_t>(formula));
    for (int wide = 0; wide < 2; ++wide) {
      program.inputs.clear(), program.code.clear(), test.storages.clear();
      for (int k = 0; k < row.inputs; ++k) {
        const bool is_condition = instruction.formula == Formula::select && k == 0;
        const Dtype dtype = is_condition ? Dtype::boolean : Dtype::f32;
        program.inputs.push_back({Layout::contiguous(program.domain), dtype});
        Storage storage = random_storage(chance, program.inputs[0].layout, dtype);
        if (wide == 1 && !is_condition)
          storage = {any_floats(kCount, static_cast<std::uint32_t>(8 * formula + k)), 0};
        test.storages.push_back(storage);
        instruction.values[k] = static_cast<std::uint8_t>(k);
      }
      program.code = {instruction};
      program.outputs = {static_cast<std::uint8_t>(row.inputs)};
      CHECK(difference_of(test) == "");
    }
  }
}

namespace {

// Each formula is in more than a tenth as many of the programs.
void check_programs(std::uint64_t first, std::uint64_t end) {
  int refused = 0;
  int times[fusion::kFormulaCount] = {};
  for (std::uint64_t seed = first; seed < end; ++seed) {
    const TestProgram test = random_program(seed);
    INFO("seed " << seed << ", domain " << test.program.domain.text() << ": "
                 << test.program.text());
    REQUIRE(fault_of(test.program) == "");
    std::unique_ptr<fusion::ReadyWork> work;
    try {
      work = fusion::interpreted(test.program);
    } catch (const std::invalid_argument& error) {
      REQUIRE(contains_text(error.what(), "slots"));
      ++refused;
      continue;
    }
    for (const fusion::Instruction& instruction : test.program.code)
      ++times[static_cast<int>(instruction.formula)];
    REQUIRE(difference(run_fused(*work, test), run_separately(test)) == "");
  }
  const auto programs = static_cast<int>(end - first);
  CHECK(refused < 10 + programs / 200);
  for (const int count : times) CHECK(10 * count > programs);
}

}  // namespace

TEST_CASE("random programs have the bits of their operations one after the other") {
  check_programs(0, 200);
}
TEST_CASE("2000 random programs have the bits of their operations", "[long]") {
  check_programs(200, 2000);
}

TEST_CASE("a reduction adds in the order of own's, in one part or many") {
  struct Case {
    Shape domain;
    std::uint32_t axes;
  };
  const std::vector<Case> cases = {{{200000}, 1},    {{3, 50001}, 2}, {{50001, 3}, 1},
                                   {{300, 40}, 2},   {{40, 300}, 1},  {{2, 3, 1000}, 6},
                                   {{70, 40, 9}, 3}, {{4, 1, 8}, 2},  {{0, 3}, 1},
                                   {{3, 0}, 2},      {{0, 3}, 2},     {{6, 7}, 0}};
  for (const Case& each : cases)
    for (const Reduction kind : {Reduction::sum, Reduction::mean, Reduction::max}) {
      if (each.axes == 0 && kind == Reduction::mean) continue;
      CAPTURE(each.domain.text(), each.axes, static_cast<int>(kind));
      TestProgram test = reduced(each.domain, kind, each.axes);
      const std::vector<Floats> got = run_fused(*fusion::interpreted(test.program), test);
      // Over no axes each element is its own sum; the functions would take all of them.
      if (each.axes == 0) test.program.reduction = Reduction::none;
      CHECK(difference(got, run_separately(test)) == "");
    }
}

TEST_CASE("a program may use all slots, and is refused where it needs one more") {
  const TestProgram fits = with_waiting(fusion::kSlots);
  CHECK(fusion::schedule_of(fits.program).slots == fusion::kSlots);
  CHECK(difference_of(fits) == "");
  CHECK(refusal(with_waiting(fusion::kSlots + 1).program) ==
        "interpreted: 13 values wait at the same time, and there are 12 slots");
}

TEST_CASE("a chain keeps no slot, and what nobody needs is not done") {
  const Layout five = Layout::contiguous({5});
  Program program;
  program.domain = {5};
  program.inputs = {{five, Dtype::f32}, {five, Dtype::f32}};
  program.code = {{Formula::exp, {1}, 0},   {Formula::log, {2}, 0},    {Formula::neg, {0}, 0},
                  {Formula::number, {}, 2}, {Formula::div, {4, 5}, 0}, {Formula::abs, {6}, 0}};
  program.outputs = {7};
  const fusion::Schedule schedule = fusion::schedule_of(program);
  CHECK(schedule.slots == 0);
  CHECK(schedule.steps.size() == 4);  // load, neg, div, abs
}

TEST_CASE("inputs, numbers and one value twice are outputs, too") {
  TestProgram test;
  Program& program = test.program;
  program.domain = {3, 5};
  program.inputs = {{Layout::contiguous({5}), Dtype::f32}};
  program.code = {{Formula::number, {}, -0.0f}};
  test.storages = {{{1, 2, std::nanf(""), 4, -0.0f}, 0}};
  for (const std::vector<std::uint8_t>& outputs :
       std::vector<std::vector<std::uint8_t>>{{0}, {1}, {0, 1}, {1, 0, 1}, {0, 0, 0}}) {
    program.outputs = outputs;
    CHECK(difference_of(test) == "");
  }
}

TEST_CASE("what nobody can do is refused in one line") {
  CHECK(refusal(reduced({2, 3, 4}, Reduction::sum, 2).program) ==
        "fused: a reduction takes the first axes or the last ones");
  CHECK(refusal(reduced({2, 3, 4}, Reduction::sum, 5).program) ==
        "fused: a reduction takes the first axes or the last ones");
  Program large;
  large.domain = {1 << 16, 1 << 15};
  large.inputs = {{Layout::contiguous(large.domain), Dtype::f32},
                  {Layout::contiguous({}), Dtype::f32}};
  large.code = {{Formula::add, {0, 1}, 0}};
  large.outputs = {2};
  CHECK_NOTHROW(fusion::interpreted(large));
  large.inputs[1].layout = Layout::contiguous({1 << 15});
  CHECK(refusal(large) == "fused: 2^31 elements or more must lie without gaps");
}

TEST_CASE("the best is compiled, or says why it is interpreted") {
  const TestProgram test = with_waiting(3);
  const std::unique_ptr<fusion::ReadyWork> work = fusion::best(test.program);
  CHECK((work->note().rfind("compiled", 0) == 0 || work->note().rfind("interpreted: ", 0) == 0));
  CHECK(difference(run_fused(*work, test), run_separately(test)) == "");
}
