// What the texts of kernels are made of: the words of a dialect, and the places of inputs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "stage8_framework/06_fusion/source.h"
#include "stage8_framework/06_fusion/walks.h"

namespace fusion {

// How the inputs are walked through.
struct Accesses {
  own::Axes<kMaxInputs> axes;  // those of the domain that are left
  Way ways[kMaxInputs];
  bool is_flat;     // all inputs are flat, or one element
  bool is_by_four;  // groups of four lie in one row, and all inputs are wide or repeated there
};
// Throws std::invalid_argument where there are 2^31 elements or more that are not flat.
Accesses access_of(const Program& program);

// A kernel that is written.
struct KernelText {
  const Program& program;
  Dialect dialect;
  std::string name;
  Accesses access;
};

// $word of a pattern becomes fillings["word"]. Throws std::out_of_range where there is none.
using Fillings = std::map<std::string, std::string>;
std::string filled(const std::string& pattern, const Fillings& fillings);

// What a dialect calls things: $block_x, $thread_x, $grid_x, $shared, $barrier, $float4 (which
// makes one), $function, $index (the type of an element's number), and $name of the kernel.
Fillings words_of(const KernelText& kernel);

// A kernel's first lines: its name, its parameters, and for the host what it takes them from.
std::string beginning_of(const KernelText& kernel, unsigned threads_x, unsigned threads_y,
                         const std::vector<std::string>& sizes);

// Where element `index` of the domain lies in an input: "i", "0", "i % 128u".
std::string place_of(const KernelText& kernel, size_t input, const std::string& index);

// "in2[i % 128u]".
std::string element_of(const KernelText& kernel, size_t input, const std::string& index);
// The same for every input.
std::vector<std::string> elements_of(const KernelText& kernel, const std::string& index);

// Two lines that compute the outputs of an element, into y0, y1, ..., from these texts.
std::string call_with(const KernelText& kernel, const std::vector<std::string>& inputs,
                      const std::string& indent);

// A number, exactly.
std::string text_of(float number, Dialect dialect);

// ---- versions/ ----------------------------------------------------------------------------------

// The line that makes value inputs.size() + i: "const float v3 = v2 + v0;".
std::string line_of(const Program& program, size_t instruction, Dialect dialect);  // compiled.cpp
std::string elements_kernel(const KernelText& kernel);                             // compiled.cpp
std::string reduction_kernel(const KernelText& kernel);  // with_reduction.cpp

}  // namespace fusion
