#include "stage1_vector/01_vector_add/reference.h"

#include <cmath>
#include <cstddef>

#include "common/compare.h"

namespace vector_add {

std::vector<double> add_cpu(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<double> c(a.size());
  for (std::size_t i = 0; i < c.size(); ++i)
    c[i] = static_cast<double>(a[i]) + static_cast<double>(b[i]);
  return c;
}

std::vector<double> multiply_cpu(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<double> c(a.size());
  for (std::size_t i = 0; i < c.size(); ++i)
    c[i] = static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return c;
}

double bound(double want) { return kFloatRoundoff * std::fabs(want); }

}  // namespace vector_add
