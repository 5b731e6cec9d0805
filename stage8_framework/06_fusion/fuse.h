// fuse(): a graph of fewer calls. Operations on elements wait until somebody needs what they make,
// and those that wait together become one pass over memory. Plain C++ that knows no device.
//
//   12  %5 = mul(%0, %1)                 12  %7 = fused(%0, %1, %2)  gelu(div(add(mul(in0, ...
//   13  %6 = add(%5, %0)                 13  %9 = matmul(%7, %8)
//   14  %7 = gelu(%6)
//   15  %9 = matmul(%7, %8)              %5 and %6 are nowhere in memory any more
#pragma once

#include <string>
#include <vector>

#include "stage8_framework/05_capture/graph.h"

namespace fusion {

using framework::Graph;

struct Fusion {
  enum class By { best, interpreted, compiled };  // as `kernel` of the table's fuse()
  By by = By::best;
  bool reductions = true;  // a sum, mean or maximum may end a program
};

// The graph with its chains fused, by the plug-ins that have recorded their calls; calls of a
// plug-in that can't fuse, of chosen kernels, and chains that it refuses, stay as they are. All
// that must be compiled is compiled at once. The results are the same, bit for bit. Errors:
// gpu::Error, and with By::compiled std::runtime_error where a program can't be compiled, which
// says why.
Graph fuse(const Graph& graph, const Fusion& how = {});

// What runs the fused calls, a line for each that differs: "compiled in 12.3 ms".
std::vector<std::string> notes_of(const Graph& graph);

}  // namespace fusion
