// The references of 1.2 in double, and what a correct float result may be off.
#pragma once

#include <vector>

namespace axpy {

// alpha * x[i], and alpha * x[i] + y[i]; x and y have the same length.
std::vector<double> scale_cpu(double alpha, const std::vector<float>& x);
std::vector<double> axpy_cpu(double alpha, const std::vector<float>& x,
                             const std::vector<float>& y);

// The largest |got - want| of a correct float result, where `product` is alpha * x[i] (scale: 0)
// and `want` the reference. The compiler may fuse alpha * x + y into one instruction that rounds
// once. Not fused, the product and the sum round once each: u |product|, and u |sum| of the rounded
// product (Higham: Accuracy and Stability of Numerical Algorithms, 2nd ed., equation 2.4).
double bound(double product, double want);

}  // namespace axpy
