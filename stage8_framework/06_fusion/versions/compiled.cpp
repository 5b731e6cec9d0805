// The program becomes a text, and a compiler makes of it what one would have written by hand.
//
//   value 0, 1  y, z                  fused_element(float v0, float v1, float* y0) {
//         2     mul(0, 1)               const float v2 = v0 * v1;
//         3     add(2, 0)               const float v3 = v2 + v0;
//         4     the number 2            const float v4 = 0x1p+1f;
//         5     div(3, 4)               const float v5 = v3 / v4;
//
// Fixes: the interpreter asks for every step of every thread what it is, and its values wait in
//        shared memory.
// Idea:  an instruction is a line of C, from the same list of formulas as all other kernels. The
//        compiler keeps values in registers, divides by numbers that it knows, and sees loads that
//        can be under way at the same time. Around it goes the kernel of 1.1, `vectorized`.
// Costs: some 60 ms for a new program, on a CPU 200; nothing for one that was compiled before, in
//        this process or in another one.
#include <cctype>
#include <stdexcept>

#include "stage8_framework/06_fusion/compiled_work.h"
#include "stage8_framework/06_fusion/text.h"

namespace fusion {

namespace {

// Whether compilers and devices may round a formula differently.
bool is_rounded_freely(Formula formula) {
  const std::string expression = row_of(formula).expression;
  for (const char* call : {"exp(", "log(", "tanh(", "pow(", "formula_"})
    if (expression.find(call) != std::string::npos) return true;
  return false;
}

// What stands for operand k of an instruction. A GPU's compiler that knows it, if only where
// another value is 0, would work the formula out itself, and round better than the device does.
std::string operand_of(const Instruction& instruction, int k, Dialect dialect) {
  const std::string value = "v" + std::to_string(instruction.values[k]);
  const bool is_gpu = dialect == Dialect::cuda || dialect == Dialect::hip;
  return is_gpu && is_rounded_freely(instruction.formula) ? "unknown(" + value + ")" : value;
}

}  // namespace

std::string line_of(const Program& program, size_t instruction, Dialect dialect) {
  const Instruction& made_by = program.code[instruction];
  const std::string value = "const float v" + std::to_string(program.inputs.size() + instruction);
  if (made_by.formula == Formula::number)
    return value + " = " + text_of(made_by.number, dialect) + ";";
  const std::string expression = row_of(made_by.formula).expression;
  std::string text;
  // exercise: the expression, with its operands in place of a, b and c (about 9 lines)
  for (size_t at = 0; at < expression.size();) {
    size_t end = at;
    while (end < expression.size() && (std::isalnum(expression[end]) || expression[end] == '_'))
      ++end;
    const std::string word = expression.substr(at, end - at);
    const bool is_operand = word == "a" || word == "b" || word == "c";
    text += is_operand ? operand_of(made_by, word[0] - 'a', dialect) : word;
    if (end < expression.size()) text += expression[end++];
    at = end;
  }
  // end exercise
  return value + " = " + text + ";";
}

namespace {

// The lines that read, compute and store group v of four elements.
std::string lines_of_four(const KernelText& kernel) {
  const Program& program = kernel.program;
  const std::string global = kernel.dialect == Dialect::opencl ? "__global " : "";
  std::string loads, calls, stores;
  if (!kernel.access.is_flat) loads = "    const unsigned i = 4 * v;\n";
  // As 1.1 writes it: nvcc sees from such an index that 16 bytes can be stored at once.
  const auto group_of = [&](const std::string& type, const std::string& array) {
    return "((" + global + type + "*)(" + array + " + head))[v]";
  };
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const Way& way = kernel.access.ways[i];
    const bool is_f32 = program.inputs[i].dtype == Dtype::f32;
    const std::string number = std::to_string(i), in = "in" + number;
    const std::string type = !way.is_wide ? "float" : is_f32 ? "float4" : "uchar4";
    const std::string four = way.is_flat ? group_of("const " + type, in)
                                         : "*(" + global + "const " + type + "*)(" + in + " + " +
                                               place_of(kernel, i, "i") + ")";
    loads += "    const " + type + " x" + number + " = " +
             (way.is_wide ? four : element_of(kernel, i, "i")) + ";\n";
  }
  for (size_t k = 0; k < 4; ++k) {
    calls += "    " + kernel.name + "_element(";
    for (size_t i = 0; i < program.inputs.size(); ++i) {
      const std::string part = kernel.access.ways[i].is_wide ? std::string(".") + "xyzw"[k] : "";
      calls += "x" + std::to_string(i) + part + ", ";
    }
    for (size_t i = 0; i < program.outputs.size(); ++i)
      calls += (i == 0 ? "&y" : ", &y") + std::to_string(i) + "[" + std::to_string(k) + "]";
    calls += ");\n";
  }
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    const std::string number = std::to_string(i), y = "y" + number;
    loads += "    float " + y + "[4];\n";
    stores += "    " + group_of("float4", "out" + number) + " = " + words_of(kernel)["float4"] +
              "(" + y + "[0], " + y + "[1], " + y + "[2], " + y + "[3]);\n";
  }
  return loads + calls + stores;
}

std::string lines_of_one(const KernelText& kernel, const std::vector<std::string>& inputs,
                         const std::string& index) {
  std::string stores;
  for (size_t i = 0; i < kernel.program.outputs.size(); ++i)
    stores += "    out" + std::to_string(i) + "[" + index + "] = y" + std::to_string(i) + ";\n";
  return call_with(kernel, inputs, "    ") + stores;
}

}  // namespace

std::string elements_kernel(const KernelText& kernel) {
  const bool is_host = kernel.dialect == Dialect::host;
  Fillings words = words_of(kernel);
  words["beginning"] = beginning_of(kernel, vector_add::kBlock, 1, {"n", "head", "vectors"});
  words["threads"] = std::to_string(is_host ? kElementsOfCall : vector_add::kBlock);
  words["one"] = lines_of_one(kernel, elements_of(kernel, "i"), "i");
  if (is_host)
    return filled(R"($beginning  const size_t begin = block_x * (size_t)$threads;
  const size_t end = n - begin < $threads ? n : begin + $threads;
  for ($index i = begin; i < end; ++i) {
$one  }
}
)",
                  words);
  std::string by_four;
  if (kernel.access.is_by_four)
    by_four = "  for (size_t v = thread; v < vectors; v += threads) {\n" + lines_of_four(kernel) +
              "  }\n";
  return filled(R"($beginning  const size_t thread = $block_x * (size_t)$threads + $thread_x;
  const size_t threads = $grid_x * (size_t)$threads;
)" + by_four + R"(  for (size_t s = thread; s < n - 4 * vectors; s += threads) {
    const $index i = s < head ? s : s + 4 * vectors;
$one  }
}
)",
                words);
}

std::unique_ptr<ReadyWork> compiled(const Program& program) {
  return std::move(compiled_together({program}, 1).front());
}

}  // namespace fusion
