// The sources of some dozens of programs, in all dialects, for whoever wants to read or compile
// them: one text for each group.
#include <cmath>
#include <cstdio>
#include <functional>
#include <stdexcept>

#include "common/output_file.h"
#include "stage8_framework/06_fusion/source.h"

namespace fusion {

Program gelu_program(const Shape& domain, const Input& y, const Input& z) {
  Program program;
  program.domain = domain;
  program.inputs = {y, z};
  program.code = {{Formula::mul, {0, 1}}, {Formula::add, {2, 0}}, {Formula::number, {}, 2},
                  {Formula::div, {3, 4}}, {Formula::gelu, {5}},   {Formula::mul, {6, 1}},
                  {Formula::add, {7, 0}}};
  program.outputs = {8};
  return program;
}

namespace {

Input like(const Shape& shape, Dtype dtype = Dtype::f32) {
  return {Layout::contiguous(shape), dtype};
}

// Each formula of inputs, and of numbers that the compiler knows.
std::vector<Program> of_formulas() {
  std::vector<Program> programs;
  for (int formula = 1; formula < kFormulaCount; ++formula) {
    Program program;
    program.domain = {4099};
    program.inputs = {like({4099}), like({4099}), like({4099}, Dtype::boolean)};
    const Formula it = static_cast<Formula>(formula);
    program.code = {{Formula::number, {}, 0.1f}, {it, {0, 1, 2}}, {it, {3, 3, 3}}, {it, {5, 4, 0}}};
    program.outputs = {4, 6};
    programs.push_back(program);
  }
  return programs;
}

std::vector<Program> of_layouts() {
  const Shape domain = {64, 128}, odd = {3, 5, 7};
  const Layout columns = Layout::contiguous({128, 64}).transpose(0, 1);
  const Layout apart = Layout::contiguous({64, std::int64_t{1} << 28}).slice(1, 0, 128);
  std::vector<Program> programs = {
      gelu_program(domain, like(domain), like({})),
      gelu_program(domain, like(domain), like({128})),
      gelu_program(domain, like({64, 1}), like({128}, Dtype::boolean)),
      gelu_program(domain, {columns}, like(domain, Dtype::boolean)),
      gelu_program(domain, {apart}, like(domain)),
      gelu_program(odd, like(odd), like({5, 1})),
      gelu_program(odd, {Layout::contiguous(odd).slice(2, 6, -1, -1)}, like({3, 1, 7})),
      gelu_program({1}, like({}), like({1}))};
  Program numbers;
  numbers.domain = {7};
  for (const float number : {0.0f, -0.0f, 0.1f, -1e-40f, 3e38f, INFINITY, -INFINITY, NAN})
    numbers.code.push_back({Formula::number, {}, number});
  numbers.code.push_back({Formula::select, {0, 5, 7}});
  numbers.outputs = {2, 6, 8};
  programs.push_back(numbers);
  return programs;
}

std::vector<Program> of_reductions() {
  std::vector<Program> programs;
  for (const Reduction reduction : {Reduction::sum, Reduction::mean, Reduction::max})
    for (const std::uint32_t axes : {1u, 2u, 3u}) {  // columns, rows, all
      Program program = gelu_program({300, 40}, like({300, 40}), like({40}));
      program.outputs = {5, 3, 8};
      program.reduction = reduction, program.axes = axes;
      programs.push_back(program);
    }
  return programs;
}

}  // namespace

void write_sources(const std::string& folder) {
  const Input flat = like({std::int64_t{1} << 26});
  const std::pair<const char*, std::vector<Program>> groups[] = {
      {"gelu", {gelu_program(flat.layout.shape, flat, flat)}},
      {"formulas", of_formulas()},
      {"layouts", of_layouts()},
      {"reductions", of_reductions()}};
  const std::pair<const char*, Dialect> dialects[] = {{".cu", Dialect::cuda},
                                                      {".hip", Dialect::hip},
                                                      {".cl", Dialect::opencl},
                                                      {".cpp", Dialect::host}};
  for (const auto& [name, programs] : groups)
    for (const auto& [suffix, dialect] : dialects) {
      const std::string text = source_of(programs, dialect);
      output_file::replace(folder + "/" + name + suffix, [&](std::FILE* file) {
        return std::fwrite(text.data(), 1, text.size(), file) == text.size();
      });
    }
}

}  // namespace fusion
