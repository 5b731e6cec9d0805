// The reference of 2.2 in double, and what a correct float result may be off.
#pragma once

#include <vector>

#include "common/rounding.h"

namespace gemv {

// One element of y, and what its bound is made of: alpha times the dot product of `line`, the
// element's row of A (transposed: its column), and x, plus beta times `y`, its old value. With
// alpha = 0 or beta = 0 what is multiplied by it does not matter, not even a NaN.
rounding::Sum gemv_cpu(float alpha, const std::vector<float>& line, const std::vector<float>& x,
                       float beta, float y);

// What the element may be off whose products go through at most `depth` roundings, and then
// through the multiplication by alpha and the addition of beta y. For terms of random sign; see
// mean_zero_bound in common/rounding.h.
double bound(double depth, const rounding::Sum& want);

}  // namespace gemv
