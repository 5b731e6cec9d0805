#include "stage1_vector/02_axpy/reference.h"

#include <cmath>
#include <cstddef>

#include "common/compare.h"

namespace axpy {

std::vector<double> scale_cpu(double alpha, const std::vector<float>& x) {
  std::vector<double> result(x.size());
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = alpha * static_cast<double>(x[i]);
  return result;
}

std::vector<double> axpy_cpu(double alpha, const std::vector<float>& x,
                             const std::vector<float>& y) {
  std::vector<double> result(x.size());
  for (std::size_t i = 0; i < result.size(); ++i)
    result[i] = alpha * static_cast<double>(x[i]) + static_cast<double>(y[i]);
  return result;
}

double bound(double product, double want) {
  return kFloatRoundoff * ((1 + kFloatRoundoff) * std::fabs(product) + std::fabs(want));
}

}  // namespace axpy
