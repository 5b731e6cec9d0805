// Programs as source code: what a compiler is given while the program runs, and who else may read
// it. Plain C++ that knows no device.
#pragma once

#include <string>
#include <vector>

#include "stage8_framework/06_fusion/program.h"

namespace fusion {

enum class Dialect { cuda, hip, opencl, host };

// A text that includes nothing. Its kernel is named `fused`; its parameters are the outputs, the
// inputs (unsigned char where they are bool), and numbers of 64 bits:
//
//   without a reduction   n, head, vectors: elements; those before the first group of four that
//                         lies at a multiple of 16 bytes in all arrays; the groups of four
//   with one              count, results, length, parts, divisor: those of own::ReductionTask
//
// What an array's place depends on (extents, strides, which inputs are one element) is in the text,
// but for the number of elements where all inputs lie as the domain does. A program has no fault.
// Throws std::invalid_argument where nobody can do it: see work.h.
std::string source_of(const Program& program, Dialect dialect);

// Many programs in one text, which a compiler takes faster than one after the other. Where there
// are several, kernel i is named fused_i.
std::string source_of(const std::vector<Program>& programs, Dialect dialect);
std::string kernel_name(size_t number, size_t count);

// gelu((y z + y) / 2) z + y over a domain: the README's example.
Program gelu_program(const Shape& domain, const Input& y, const Input& z);

// Writes the sources of some dozens of programs, in all dialects, into a folder: NAME.cu, NAME.hip,
// NAME.cl and NAME.cpp. Throws std::runtime_error where that can't be.
void write_sources(const std::string& folder);

// Elements of a call of a kernel of Dialect::host: a block of its grid.
inline constexpr size_t kElementsOfCall = 8192;

}  // namespace fusion
