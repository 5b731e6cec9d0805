// The reference of 1.3 in double, and what a correct float result may be off.
#pragma once

#include <vector>

#include "common/rounding.h"

namespace dot {

// The sum of x[i] * y[i], with what bounds are made of; x and y have the same length.
rounding::Sum dot_cpu(const std::vector<float>& x, const std::vector<float>& y);

// The largest |got - want| of a correct float result whose products go through at most `depth`
// roundings each (Launch::depth), for x and y that are random with mean zero: see
// rounding::mean_zero_bound, which also says how sure that is.
double bound(double depth, const rounding::Sum& want);

// The depth of a vendor's library, which does not say in which order it adds: at least as many sums
// grow side by side as there are lanes in a few vector registers of a CPU, or in the blocks of a
// small GPU.
double depth_of_library(double n);

// How many of `items` a thread adds, at most, if `threads` threads share them.
double sum_of_thread(double items, double threads);

}  // namespace dot
