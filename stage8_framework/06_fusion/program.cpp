#include "stage8_framework/06_fusion/program.h"

#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "stage8_framework/02_backends/c_tensor.h"

namespace fusion {

std::optional<Formula> formula_named(const char* name) {
  for (int i = 1; i < kFormulaCount; ++i)
    if (std::strcmp(kFormulas[i].name, name) == 0) return static_cast<Formula>(i);
  return std::nullopt;
}

std::string Program::text() const {
  std::vector<std::string> values;
  for (size_t i = 0; i < inputs.size(); ++i) values.push_back("in" + std::to_string(i));
  for (const Instruction& instruction : code) {
    const FormulaRow& row = row_of(instruction.formula);
    std::string value = row.name;
    if (instruction.formula == Formula::number) {
      char number[32];
      std::snprintf(number, sizeof number, "%g", static_cast<double>(instruction.number));
      value = number;
    }
    for (int i = 0; i < row.inputs; ++i)
      value += (i == 0 ? "(" : ", ") + values[instruction.values[i]];
    values.push_back(value + (row.inputs > 0 ? ")" : ""));
  }
  std::string all;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const bool is_reduced = reduction != Reduction::none && i + 1 == outputs.size();
    const std::string& value = values[outputs[i]];
    all += i == 0 ? "" : "; ";
    all += is_reduced ? kReductions[static_cast<int>(reduction)] + ("(" + value + ")") : value;
  }
  return all;
}

std::string fault_of(const Program& program) {
  if (program.inputs.size() > kMaxInputs) return "more than 8 inputs";
  if (program.outputs.empty() || program.outputs.size() > kMaxOutputs) return "1 to 3 outputs";
  if (program.code.size() > kMaxInstructions) return "more than 32 instructions";
  for (const Input& input : program.inputs) {
    if (input.dtype != Dtype::f32 && input.dtype != Dtype::boolean)
      return std::string("an input of ") + name_of(input.dtype);
    if (input.layout.shape.rank() > program.domain.rank()) return "an input has more axes";
    const size_t front = program.domain.rank() - input.layout.shape.rank();
    for (size_t axis = 0; axis < input.layout.shape.rank(); ++axis)
      if (input.layout.shape[axis] != 1 && input.layout.shape[axis] != program.domain[front + axis])
        return "an input of shape " + input.layout.shape.text() + " in " + program.domain.text();
  }
  size_t known = program.inputs.size();
  for (const Instruction& instruction : program.code) {
    for (int i = 0; i < row_of(instruction.formula).inputs; ++i)
      if (instruction.values[i] >= known) return "a value is used before it is made";
    ++known;
  }
  for (const std::uint8_t output : program.outputs)
    if (output >= known) return "an output is no value";
  if (program.reduction != Reduction::none && program.axes >> program.domain.rank() != 0)
    return "there is no such axis";
  return "";
}

// ---- The same across the table ------------------------------------------------------------------

void to_c(const Program& from, CProgram* to) {
  to->instructions.clear(), to->inputs.clear();
  for (const Instruction& instruction : from.code) {
    const bool is_number = instruction.formula == Formula::number;
    to->instructions.push_back(
        {is_number ? nullptr : row_of(instruction.formula).name,
         {instruction.values[0], instruction.values[1], instruction.values[2]},
         instruction.number});
  }
  to->outputs.assign(from.outputs.begin(), from.outputs.end());
  for (const Input& input : from.inputs)
    to->inputs.push_back({nullptr, input.layout.shape.begin(), input.layout.strides.begin(),
                          static_cast<std::int32_t>(input.layout.shape.rank()),
                          static_cast<std::int32_t>(input.dtype)});
  to->program = {static_cast<std::int32_t>(from.domain.rank()),
                 from.domain.begin(),
                 static_cast<std::int32_t>(from.inputs.size()),
                 static_cast<std::int32_t>(from.code.size()),
                 static_cast<std::int32_t>(from.outputs.size()),
                 to->instructions.data(),
                 to->outputs.data(),
                 static_cast<std::int32_t>(from.reduction),
                 from.axes};
}

Program from_c(const CourseProgram& program, const CourseTensor* inputs) {
  const auto shape_of = [](const std::int64_t* values, std::int32_t rank) {
    return Shape(values, static_cast<size_t>(rank));
  };
  const auto value_of = [](std::int32_t value) {
    if (value < 0 || value > 255) throw std::invalid_argument("fused: there is no such value");
    return static_cast<std::uint8_t>(value);
  };
  Program to;
  to.domain = shape_of(program.extent, program.rank);
  for (std::int32_t i = 0; i < program.input_count; ++i) {
    Layout layout;
    layout.shape = shape_of(inputs[i].extent, inputs[i].rank);
    layout.strides = shape_of(inputs[i].stride, inputs[i].rank);
    to.inputs.push_back({layout, static_cast<Dtype>(inputs[i].dtype)});
  }
  for (std::int32_t i = 0; i < program.instruction_count; ++i) {
    const CourseInstruction& from = program.instructions[i];
    Instruction instruction{Formula::number, {}, from.number};
    if (from.formula != nullptr) {
      const std::optional<Formula> formula = formula_named(from.formula);
      if (!formula)
        throw std::invalid_argument(std::string("fused: there is no formula of ") + from.formula);
      instruction.formula = *formula;
    }
    for (int k = 0; k < row_of(instruction.formula).inputs; ++k)
      instruction.values[k] = value_of(from.values[k]);
    to.code.push_back(instruction);
  }
  for (std::int32_t i = 0; i < program.output_count; ++i)
    to.outputs.push_back(value_of(program.outputs[i]));
  to.reduction = static_cast<Reduction>(program.reduction), to.axes = program.axes;
  const std::string fault = fault_of(to);
  if (!fault.empty()) throw std::invalid_argument("fused: " + fault);
  return to;
}

}  // namespace fusion
