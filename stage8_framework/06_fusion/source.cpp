#include "stage8_framework/06_fusion/source.h"

#include "stage8_framework/06_fusion/text.h"

namespace fusion {

extern const char* const kFormulasText;  // formulas.h: cmake/formulas.cmake

namespace {

// A function that a text may need.
struct Function {
  std::string name, text;
};

// Those of formulas.h, in its order: each begins with COURSE_FUNCTION.
std::vector<Function> functions_of_formulas(const std::string& before) {
  const std::string all = kFormulasText, begin = "COURSE_FUNCTION float ";
  std::vector<Function> functions;
  for (size_t at = all.find("\n" + begin); at != std::string::npos;) {
    const size_t next = all.find("\n" + begin, at + 1);
    const std::string text = all.substr(at + 1 + begin.size(), next - at - 1 - begin.size());
    functions.push_back({text.substr(0, text.find('(')),
                         before + " float " + text.substr(0, text.rfind('}') + 1) + "\n"});
    at = next;
  }
  return functions;
}

// Those that a dialect has not by itself. unknown(x) is x, of which a compiler knows nothing: see
// versions/compiled.cpp.
std::vector<Function> functions_of(Dialect dialect) {
  const auto unknown = [](const std::string& constraint) {
    return Function{"unknown",
                    "static __device__ inline float unknown(float x) {\n  asm(\"\" : \"+" +
                        constraint + "\"(x));\n  return x;\n}\n"};
  };
  if (dialect == Dialect::cuda) return {unknown("f")};
  if (dialect == Dialect::hip) return {unknown("v")};
  if (dialect == Dialect::opencl) return {};
  const auto called = [](const std::string& name, const std::string& function) {
    return Function{name, "extern \"C\" float " + function + "(float);\nstatic inline float " +
                              name + "(float x) { return " + function + "(x); }\n"};
  };
  return {
      called("exp", "expf"),
      called("log", "logf"),
      called("tanh", "tanhf"),
      {"pow",
       "extern \"C\" float powf(float, float);\n"
       "static inline float pow(float x, float y) { return powf(x, y); }\n"},
      {"sqrt",
       "#if defined(__clang_major__) && __clang_major__ < 15\n"
       "extern \"C\" float sqrtf(float);  // its own takes 1 / sqrt(-0.0f) for no negative number\n"
       "static inline float sqrt(float x) { return sqrtf(x); }\n#else\n"
       "static inline float sqrt(float x) { return __builtin_sqrtf(x); }\n#endif\n"},
      {"fabs", "static inline float fabs(float x) { return __builtin_fabsf(x); }\n"},
      {"copysign",
       "static inline float copysign(float x, float y) { return __builtin_copysignf(x, y); }\n"},
      {"float_of_bits",
       "static inline float float_of_bits(unsigned bits) {\n  float x;\n"
       "  __builtin_memcpy(&x, &bits, sizeof x);\n  return x;\n}\n"}};
}

// The functions that a text calls, and those that these call.
std::string functions_for(const std::string& text, Dialect dialect, const std::string& before) {
  std::vector<Function> known = functions_of(dialect);
  for (Function& function : functions_of_formulas(before)) known.push_back(std::move(function));
  std::string needed;
  for (size_t i = known.size(); i-- > 0;) {
    const std::string call = known[i].name + "(";
    if (text.find(call) != std::string::npos || needed.find(call) != std::string::npos)
      needed = known[i].text + needed;
  }
  return needed;
}

// What the program makes of one element of each input.
std::string function_of_element(const KernelText& kernel) {
  const Program& program = kernel.program;
  std::string parameters, lines;
  for (size_t i = 0; i < program.inputs.size(); ++i)
    parameters += "float v" + std::to_string(i) + ", ";
  for (size_t i = 0; i < program.outputs.size(); ++i)
    parameters += (i == 0 ? "float* y" : ", float* y") + std::to_string(i);
  for (size_t i = 0; i < program.code.size(); ++i)
    lines += "  " + line_of(program, i, kernel.dialect) + "\n";
  for (size_t i = 0; i < program.outputs.size(); ++i)
    lines += "  *y" + std::to_string(i) + " = v" + std::to_string(program.outputs[i]) + ";\n";
  Fillings fillings = words_of(kernel);
  fillings["text"] = program.text(), fillings["parameters"] = parameters;
  fillings["lines"] = lines;
  return filled("\n// $text\n$function void $(name)_element($parameters) {\n$lines}\n", fillings);
}

std::string kernels_of(const std::vector<KernelText>& kernels) {
  std::string text;
  for (const KernelText& kernel : kernels)
    text += function_of_element(kernel) + (kernel.program.reduction == Reduction::none
                                               ? elements_kernel(kernel)
                                               : reduction_kernel(kernel));
  const Dialect dialect = kernels.front().dialect;
  std::string first;
  if (dialect == Dialect::opencl) first = "#pragma OPENCL FP_CONTRACT OFF\n";
  if (dialect == Dialect::host) first = "typedef __SIZE_TYPE__ size_t;\n";
  return first + functions_for(text, dialect, words_of(kernels.front())["function"]) + text;
}

}  // namespace

std::string source_of(const Program& program, Dialect dialect) {
  return source_of(std::vector<Program>{program}, dialect);
}

std::string source_of(const std::vector<Program>& programs, Dialect dialect) {
  std::vector<KernelText> kernels;
  for (const Program& program : programs)
    kernels.push_back(
        {program, dialect, kernel_name(kernels.size(), programs.size()), access_of(program)});
  return kernels_of(kernels);
}

std::string kernel_name(size_t number, size_t count) {
  return count == 1 ? "fused" : "fused_" + std::to_string(number);
}

}  // namespace fusion
