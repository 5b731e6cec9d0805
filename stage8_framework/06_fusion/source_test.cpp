// The text that compilers are given: exact numbers, operands in their places, and no more than a
// program needs. tests/python/test_fusion_sources.py gives it to them.
#include <cmath>
#include <cstdlib>

#include "common/testing.h"
#include "stage8_framework/06_fusion/source.h"
#include "stage8_framework/06_fusion/text.h"

using fusion::Dialect;
using fusion::Dtype;
using fusion::Formula;
using fusion::Layout;
using fusion::Program;
using fusion::Reduction;
using fusion::Shape;
using fusion::source_of;

namespace {

constexpr Dialect kDialects[] = {Dialect::cuda, Dialect::hip, Dialect::opencl, Dialect::host};

Program program_of(const std::vector<fusion::Instruction>& code, const Shape& domain,
                   const std::vector<Layout>& layouts) {
  Program program;
  program.domain = domain;
  for (const Layout& layout : layouts) program.inputs.push_back({layout, Dtype::f32});
  program.code = code;
  program.outputs = {static_cast<std::uint8_t>(program.value_count() - 1)};
  return program;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Where element i lies in the only input.
std::string place_in(const Shape& domain, const Layout& layout) {
  const Program program = program_of({{Formula::neg, {0}}}, domain, {layout});
  return fusion::place_of({program, Dialect::cuda, "fused", access_of(program)}, 0, "i");
}

}  // namespace

TEST_CASE("a number's text is that number") {
  for (const float number : {0.0f, -0.0f, 1.0f, 0.1f, -3.4028235e38f, 1e-45f, 1.17549435e-38f}) {
    const std::string text = fusion::text_of(number, Dialect::cuda);
    CHECK(text.back() == 'f');
    const float read = std::strtof(text.c_str(), nullptr);
    CHECK((read == number && std::signbit(read) == std::signbit(number)));
  }
  CHECK(fusion::text_of(INFINITY, Dialect::cuda) == "__uint_as_float(0x7f800000u)");
  CHECK(fusion::text_of(-INFINITY, Dialect::opencl) == "as_float(0xff800000u)");
  CHECK(fusion::text_of(std::nanf(""), Dialect::host) == "float_of_bits(0x7fc00000u)");
}

TEST_CASE("an instruction is a line with its operands in place of a b and c") {
  const Layout flat = Layout::contiguous({8});
  const auto line = [&](const fusion::Instruction& instruction, Dialect dialect = Dialect::cuda) {
    const Program program =
        program_of({{Formula::number, {}, 0.5f}, instruction}, {8}, {flat, flat, flat});
    return line_of(program, 1, dialect);
  };
  CHECK(line({Formula::sub, {1, 0}}) == "const float v4 = v1 - v0;");
  CHECK(line({Formula::select, {2, 1, 0}}) == "const float v4 = v2 != 0.0f ? v1 : v0;");
  CHECK(line({Formula::abs, {2}}) == "const float v4 = fabs(v2);");
  CHECK(line({Formula::gelu, {1}}) ==
        "const float v4 = unknown(v1) * formula_sigmoid(formula_gelu_argument(unknown(v1)));");
  // Exact wherever it is worked out, and rounded freely.
  CHECK(line({Formula::div, {0, 3}}) == "const float v4 = v0 / v3;");
  CHECK(line({Formula::pow, {0, 3}}) == "const float v4 = pow(unknown(v0), unknown(v3));");
  CHECK(line({Formula::exp, {3}}, Dialect::host) == "const float v4 = exp(v3);");
}

TEST_CASE("a text has the functions that it calls and no others") {
  const Layout flat = Layout::contiguous({8});
  const auto text = [&](Formula formula, Dialect dialect) {
    return source_of(program_of({{formula, {0, 0, 0}}}, {8}, {flat}), dialect);
  };
  for (const Dialect dialect : kDialects) {
    CHECK(!has(text(Formula::add, dialect), "formula_"));
    CHECK(has(text(Formula::sigmoid, dialect), " float formula_sigmoid(float x) {"));
    CHECK(!has(text(Formula::sigmoid, dialect), "formula_gelu"));
    const std::string slope = text(Formula::gelu_backward, dialect);
    CHECK(slope.find("float formula_gelu_argument(") < slope.find("float formula_gelu_slope("));
    CHECK(!has(slope, "COURSE_FUNCTION"));
    CHECK(!has(slope, "#include"));
  }
  CHECK(has(text(Formula::sigmoid, Dialect::host), "float expf(float);"));
  CHECK(has(text(Formula::add, Dialect::opencl), "#pragma OPENCL FP_CONTRACT OFF"));
}

TEST_CASE("places are worked out from constants") {
  CHECK(place_in({64, 128}, Layout::contiguous({64, 128})) == "i");
  CHECK(place_in({64, 128}, Layout::contiguous({})) == "0");
  CHECK(place_in({64, 128}, Layout::contiguous({128})) == "i % 128u");
  CHECK(place_in({64, 128}, Layout::contiguous({64, 1})) == "i / 128u");
  CHECK(place_in({2, 3, 4}, Layout::contiguous({2, 1, 4})) == "(int)(i / 12u) * 4 + (int)(i % 4u)");
  CHECK(place_in({4, 3}, Layout::contiguous({3, 4}).transpose(0, 1)) ==
        "(int)(i / 3u) + (int)(i % 3u) * 4");
  CHECK(place_in({5}, Layout::contiguous({5}).slice(0, 4, -1, -1)) == "(int)(i) * -1");
  CHECK(place_in({4, 3}, Layout::contiguous({4, std::int64_t{1} << 31}).slice(1, 0, 3)) ==
        "(long long)(i / 3u) * 2147483648 + (long long)(i % 3u)");
}

TEST_CASE("four elements at a time are read where rows allow it") {
  const Shape domain = {64, 128};
  const auto is_by_four = [](const Shape& of, const Layout& layout) {
    const Program program =
        program_of({{Formula::add, {0, 1}}}, of, {Layout::contiguous(of), layout});
    const bool has_loop = has(source_of(program, Dialect::cuda), "v < vectors");
    CHECK(has_loop == access_of(program).is_by_four);
    return has_loop;
  };
  CHECK(is_by_four(domain, Layout::contiguous(domain)));
  CHECK(is_by_four(domain, Layout::contiguous({128})));
  CHECK(is_by_four(domain, Layout::contiguous({64, 1})));
  CHECK(is_by_four({5, 7}, Layout::contiguous({})));
  CHECK(is_by_four(domain, Layout::contiguous({64, 132}).slice(1, 0, 128)));
  CHECK(!is_by_four(domain, Layout::contiguous({64, 130}).slice(1, 0, 128)));
  CHECK(!is_by_four(domain, Layout::contiguous({128, 64}).transpose(0, 1)));
  CHECK(!is_by_four({64, 126}, Layout::contiguous({126})));
}

TEST_CASE("many programs have kernels of their own in one text") {
  const Layout flat = Layout::contiguous({6, 8});
  Program elements = program_of({{Formula::neg, {0}}}, {6, 8}, {flat}), rows = elements;
  rows.reduction = Reduction::max, rows.axes = 2;
  for (const Dialect dialect : kDialects) {
    const std::string text = source_of({elements, rows, elements}, dialect);
    for (const char* name : {" fused_0(", " fused_1(", " fused_2("}) CHECK(has(text, name));
    CHECK(has(source_of(rows, dialect), " fused("));
  }
  CHECK(fusion::kernel_name(1, 3) == "fused_1");
}
