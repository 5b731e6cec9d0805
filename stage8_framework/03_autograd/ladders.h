// The program's tables.
#pragma once

#include <string>

#include "common/options.h"
#include "common/report.h"
#include "stage8_framework/03_autograd/problem.h"

namespace autograd {

// The gradients of a deep perceptron by every version: time, and the most memory meanwhile.
void run_perceptron(const Case& c, const Options& options, Report& report);
// Small graphs and the way back: what the host takes.
std::string four_operations_name();  // of the table that run_small begins with
void run_small(const Options& options, Report& report);

}  // namespace autograd
