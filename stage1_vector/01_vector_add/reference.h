// The reference of 1.1 in double, and what a correct float result may be off.
#pragma once

#include <vector>

namespace vector_add {

// c[i] = a[i] + b[i] and c[i] = a[i] * b[i]; both arrays have the same length.
std::vector<double> add_cpu(const std::vector<float>& a, const std::vector<float>& b);
std::vector<double> multiply_cpu(const std::vector<float>& a, const std::vector<float>& b);

// The largest |got - want| of a correct float result. Each operation rounds once: u |want| (Higham,
// Accuracy and Stability of Numerical Algorithms, 2nd ed., equation 2.4).
double bound(double want);

}  // namespace vector_add
