#include "stage1_vector/03_dot/reference.h"

#include <cmath>

#include "common/gpu_runtime.h"

namespace dot {

rounding::Sum dot_cpu(const std::vector<float>& x, const std::vector<float>& y) {
  return rounding::dot(x.data(), y.data(), x.size());
}

double bound(double depth, const rounding::Sum& want) { return want.mean_zero_bound(depth); }

double depth_of_library(double n) {
#if defined(GPU_BACKEND_CPU)
  constexpr double kSums = 32;
#else
  constexpr double kSums = 16384;
#endif
  return 1 + sum_of_thread(n, kSums) + kSums;
}

double sum_of_thread(double items, double threads) { return std::ceil(items / threads); }

}  // namespace dot
