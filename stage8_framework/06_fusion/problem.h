// What the program runs: three expressions, whose results are checked in double, and the character
// model of 8.4.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/compare.h"
#include "common/options.h"
#include "common/report.h"
#include "stage8_framework/04_modules/problem.h"
#include "stage8_framework/06_fusion/fusion.h"

namespace fusion {

using framework::Device;
using framework::Tensor;

// Elements of an expression, and rows of them where a sum goes over rows or columns; steps and
// width of the character model.
std::vector<Size> sizes();

// Throws UsageError where there is no room for the arrays, or the sizes do not fit each other.
void require_memory(const Options& options);

struct Expression {
  std::string name;     // of its table
  std::string sampled;  // what part of the results is checked in double; empty: all
  Work work;
  std::vector<Tensor> inputs;
  std::function<std::vector<Tensor>(const std::vector<Tensor>& inputs)> run;  // by functions.h
  // Holds the results against the same in double, where the sample looks.
  std::function<Comparison(const std::vector<Tensor>& results)> check;
};
std::vector<Expression> expressions(const Options& options, Device& device);
// What nothing that reads two arrays and writes one can be faster than: y + z.
Expression sum_of_two(const Options& options, Device& device);

// A graph of the expression, and the tensors that its replays write.
struct Recorded {
  Graph graph;
  std::vector<Tensor> results;
};
Recorded recorded(const Expression& expression);

// The results' bits: those of two versions must be equal, but for the payload of a NaN.
Comparison compare_bits(const std::vector<Tensor>& got, const std::vector<Tensor>& want);

}  // namespace fusion
