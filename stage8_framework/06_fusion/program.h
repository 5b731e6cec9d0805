// A program: operations on elements that are run as one, in one pass over memory. It is what the
// fusing of a graph makes, what the interpreter goes through, and what source code is made of.
// Plain C++ that knows no device.
//
//   value 0, 1      the inputs y, z, broadcast to the domain         gelu((y * z + y) / 2) * z + y
//         2         mul(0, 1)
//         3         add(2, 0)          the domain: the shape that all values have
//         4         the number 2
//         5         div(3, 4)
//   ...   8         add(7, 0)          stored as output 0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "stage8_framework/01_tensor/layout.h"
#include "stage8_framework/02_backends/abi.h"

namespace fusion {

using framework::Dtype;
using framework::Layout;
using framework::Shape;

inline constexpr int kMaxInputs = 8, kMaxOutputs = 3, kMaxInstructions = 32;

// The rows of formulas.h, and a number.
enum class Formula : std::uint8_t {
  number,
#define FORMULA(name, inputs, expression) name,
#include "stage8_framework/02_backends/formula_list.h"
};

// kFormulas[i] is Formula i.
struct FormulaRow {
  const char* name;
  int inputs;
  const char* expression;
};
inline constexpr FormulaRow kFormulas[] = {
    {"number", 0, ""},
#define FORMULA(name, inputs, expression) {#name, inputs, #expression},
#include "stage8_framework/02_backends/formula_list.h"
};
inline constexpr int kFormulaCount = static_cast<int>(sizeof kFormulas / sizeof kFormulas[0]);
inline const FormulaRow& row_of(Formula formula) { return kFormulas[static_cast<int>(formula)]; }
// The formula of an operation; nothing where it has none.
std::optional<Formula> formula_named(const char* name);

struct Instruction {
  Formula formula;
  std::uint8_t values[3] = {};  // what it is made of
  float number = 0;             // of Formula::number
};

// Of which kOps has a row each.
enum class Reduction : std::uint8_t { none, sum, mean, max };
inline constexpr const char* kReductions[] = {"none", "sum", "mean", "max"};

// How an input is read, beside a domain: it is broadcast to that shape.
struct Input {
  Layout layout;             // of that many axes or fewer; the offset is of no account
  Dtype dtype = Dtype::f32;  // f32 or boolean, of which true is 1
};

struct Program {
  Shape domain;
  std::vector<Input> inputs;
  std::vector<Instruction> code;          // instruction i makes value inputs.size() + i
  std::vector<std::uint8_t> outputs;      // the values that are stored
  Reduction reduction = Reduction::none;  // of the last output, over the axes of this mask
  std::uint32_t axes = 0;

  std::int64_t elements() const {
    std::int64_t product = 1;
    for (const std::int64_t extent : domain) product *= extent;
    return product;
  }
  int value_count() const { return static_cast<int>(inputs.size() + code.size()); }
  // "add(mul(in0, in1), in0); sum(...)": a text for each output, in one line.
  std::string text() const;
};

// Why a program can't be run, in a few words; empty where it can.
std::string fault_of(const Program& program);

// ---- The same across the table of a plug-in
// ------------------------------------------------------

// What a CourseProgram points into, beside the program itself.
struct CProgram {
  CourseProgram program;
  std::vector<CourseInstruction> instructions;
  std::vector<std::int32_t> outputs;
  std::vector<CourseTensor> inputs;
};
// `to` points into itself and into `from`: both must stay where they are.
void to_c(const Program& from, CProgram* to);
// Throws std::invalid_argument for a formula that this build has not, or a program with a fault.
Program from_c(const CourseProgram& program, const CourseTensor* inputs);

}  // namespace fusion
