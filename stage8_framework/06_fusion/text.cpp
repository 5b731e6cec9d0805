#include "stage8_framework/06_fusion/text.h"

#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace fusion {

namespace {

// Whether places may be 2^31 or more.
bool is_far(const Accesses& access, size_t input) {
  std::int64_t furthest = 0;
  for (int axis = 0; axis < access.axes.rank; ++axis)
    furthest += (access.axes.extent[axis] - 1) * std::abs(access.axes.stride[input][axis]);
  return furthest >= std::int64_t{1} << 31;
}

std::string type_of(const KernelText& kernel, size_t input) {
  const bool is_boolean = kernel.program.inputs[input].dtype == Dtype::boolean;
  const std::string type = is_boolean ? "unsigned char" : "float";
  return (kernel.dialect == Dialect::opencl ? "__global const " : "const ") + type;
}

}  // namespace

Accesses access_of(const Program& program) {
  Accesses access{axes_of(program), {}, true, true};
  const std::int64_t elements = program.elements();
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    Way& way = access.ways[i];
    way = way_of(access.axes, i);
    // One element is walked as many are, so that it needs no kernel of its own.
    if (elements <= 1) way = {false, true, true, 1};
    access.is_flat = access.is_flat && (way.is_one || way.is_flat);
    access.is_by_four = access.is_by_four && (way.is_wide || way.step == 0);
  }
  const int rank = access.axes.rank;
  if (!access.is_flat && access.axes.extent[rank - 1] % 4 != 0) access.is_by_four = false;
  require_places(program, access.is_flat);
  return access;
}

std::string filled(const std::string& pattern, const Fillings& fillings) {
  std::string text;
  for (size_t at = 0; at < pattern.size();) {
    if (pattern[at] != '$') {
      text += pattern[at++];
      continue;
    }
    const bool is_bracketed = pattern[at + 1] == '(';
    const size_t begin = at + (is_bracketed ? 2 : 1);
    size_t end = begin;
    while (end < pattern.size() &&
           (std::isalnum(static_cast<unsigned char>(pattern[end])) != 0 || pattern[end] == '_'))
      ++end;
    text += fillings.at(pattern.substr(begin, end - begin));
    at = end + (is_bracketed ? 1 : 0);
  }
  return text;
}

Fillings words_of(const KernelText& kernel) {
  Fillings words{{"name", kernel.name}, {"index", kernel.access.is_flat ? "size_t" : "unsigned"}};
  if (kernel.dialect == Dialect::host) {
    words.insert({{"function", "static inline"}});
  } else if (kernel.dialect == Dialect::opencl) {
    words.insert({{"function", "static inline"},
                  {"block_x", "get_group_id(0)"},
                  {"block_y", "get_group_id(1)"},
                  {"thread_x", "get_local_id(0)"},
                  {"thread_y", "get_local_id(1)"},
                  {"grid_x", "get_num_groups(0)"},
                  {"shared", "__local"},
                  {"barrier", "barrier(CLK_LOCAL_MEM_FENCE)"},
                  {"float4", "(float4)"},
                  {"global", "__global "}});
  } else {
    words.insert({{"function", "static __device__ inline"},
                  {"block_x", "blockIdx.x"},
                  {"block_y", "blockIdx.y"},
                  {"thread_x", "threadIdx.x"},
                  {"thread_y", "threadIdx.y"},
                  {"grid_x", "gridDim.x"},
                  {"shared", "__shared__"},
                  {"barrier", "__syncthreads()"},
                  {"float4", "make_float4"},
                  {"global", ""}});
  }
  return words;
}

std::string beginning_of(const KernelText& kernel, unsigned threads_x, unsigned threads_y,
                         const std::vector<std::string>& sizes) {
  const Program& program = kernel.program;
  const bool is_host = kernel.dialect == Dialect::host, is_cl = kernel.dialect == Dialect::opencl;
  std::vector<std::string> parameters;
  const std::string pointer = is_cl ? "* restrict " : "* __restrict__ ";
  const std::string constant = is_host ? "const " : "";
  for (size_t i = 0; i < program.outputs.size(); ++i)
    parameters.push_back((is_cl ? "__global float" : "float") + pointer + constant + "out" +
                         std::to_string(i));
  for (size_t i = 0; i < program.inputs.size(); ++i)
    parameters.push_back(type_of(kernel, i) + pointer + constant + "in" + std::to_string(i));
  const size_t pointers = parameters.size();
  for (const std::string& size : sizes)
    parameters.push_back((is_host ? "const size_t "
                          : is_cl ? "ulong "
                                  : "unsigned long long ") +
                         size);
  if (is_host) {
    std::string text =
        "\nextern \"C\" void " + kernel.name +
        "(unsigned block_x, unsigned block_y, const unsigned long long* arguments) {\n";
    for (size_t i = 0; i < parameters.size(); ++i) {
      const std::string type = i < program.outputs.size() ? "(float*)"
                               : i < pointers
                                   ? "(" + type_of(kernel, i - program.outputs.size()) + "*)"
                                   : "";
      text += "  " + parameters[i] + " = " + type + "arguments[" + std::to_string(i) + "];\n";
    }
    return text;
  }
  const std::string x = std::to_string(threads_x), y = std::to_string(threads_y);
  std::string text =
      is_cl ? "\n__kernel __attribute__((reqd_work_group_size(" + x + ", " + y + ", 1)))\nvoid "
            : "\nextern \"C\" __global__ void __launch_bounds__(" +
                  std::to_string(threads_x * threads_y) + ")\n    ";
  text += kernel.name + "(";
  for (size_t i = 0; i < parameters.size(); ++i)
    text += (i == 0 ? "" : i % 3 == 0 ? ",\n          " : ", ") + parameters[i];
  return text + ") {\n";
}

std::string place_of(const KernelText& kernel, size_t input, const std::string& index) {
  const Accesses& access = kernel.access;
  if (access.ways[input].is_one) return "0";
  if (access.ways[input].is_flat) return index;
  const std::string type = !is_far(access, input)              ? "(int)"
                           : kernel.dialect == Dialect::opencl ? "(long)"
                                                               : "(long long)";
  std::string sum, number;
  std::int64_t inner = 1;  // elements behind an index of this axis
  bool is_plain = true;    // a number without a factor
  for (int axis = access.axes.rank - 1; axis >= 0; --axis) {
    const std::int64_t extent = access.axes.extent[axis];
    const std::int64_t stride = access.axes.stride[input][axis];
    if (stride != 0) {
      number = index;
      if (inner > 1) number += " / " + std::to_string(inner) + "u";
      if (axis > 0) number += " % " + std::to_string(extent) + "u";
      is_plain = sum.empty() && stride == 1;
      const std::string factor = stride == 1 ? "" : " * " + std::to_string(stride);
      sum = type + "(" + number + ")" + factor + (sum.empty() ? "" : " + " + sum);
    }
    inner *= extent;
  }
  return is_plain ? number : sum;
}

std::string element_of(const KernelText& kernel, size_t input, const std::string& index) {
  return "in" + std::to_string(input) + "[" + place_of(kernel, input, index) + "]";
}

std::vector<std::string> elements_of(const KernelText& kernel, const std::string& index) {
  std::vector<std::string> elements;
  for (size_t i = 0; i < kernel.program.inputs.size(); ++i)
    elements.push_back(element_of(kernel, i, index));
  return elements;
}

std::string call_with(const KernelText& kernel, const std::vector<std::string>& inputs,
                      const std::string& indent) {
  std::string declared, arguments;
  for (const std::string& input : inputs) arguments += input + ", ";
  for (size_t i = 0; i < kernel.program.outputs.size(); ++i) {
    const std::string number = std::to_string(i);
    declared += (i == 0 ? "float y" : ", y") + number;
    arguments += (i == 0 ? "&y" : ", &y") + number;
  }
  return indent + declared + ";\n" + indent + kernel.name + "_element(" + arguments + ");\n";
}

std::string text_of(float number, Dialect dialect) {
  char text[64];
  if (std::isfinite(number)) {
    std::snprintf(text, sizeof text, "%af", static_cast<double>(number));
    return text;
  }
  std::uint32_t bits = 0;
  std::memcpy(&bits, &number, sizeof bits);
  const char* const function = dialect == Dialect::opencl ? "as_float"
                               : dialect == Dialect::host ? "float_of_bits"
                                                          : "__uint_as_float";
  std::snprintf(text, sizeof text, "%s(0x%08xu)", function, bits);
  return text;
}

}  // namespace fusion
