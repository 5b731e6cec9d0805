#include "stage4_forward/01_dense/reference.h"

#include <cmath>

#include "common/rounding.h"

namespace dense {

Values exactly(const std::vector<float>& values) {
  return {std::vector<double>(values.begin(), values.end()), std::vector<double>(values.size())};
}

Values sums_cpu(const Values& x, const std::vector<float>& w, const std::vector<float>& bias,
                std::size_t batch, Terms terms) {
  using rounding::Approximate;
  const std::size_t out = bias.size(), in = out == 0 ? 0 : w.size() / out;
  const double n = static_cast<double>(in);
  Values y{std::vector<double>(batch * out), std::vector<double>(batch * out)};
  for (std::size_t i = 0; i < batch * out; ++i) {
    const double *value = x.value.data() + i / out * in, *error = x.error.data() + i / out * in;
    const float* weight = w.data() + i % out * in;
    rounding::ApproximateSum sum;
    for (std::size_t k = 0; k < in; ++k)
      sum.add({static_cast<double>(weight[k]), 0}, {value[k], error[k]});
    const double b = static_cast<double>(bias[i % out]);
    if (terms == Terms::mean_zero) {
      sum.add({b, 0});
      const Approximate result = sum.mean_zero_bound(n + 2);  // products, additions, the bias
      y.value[i] = result.value, y.error[i] = result.error;
    } else {
      const Approximate product = sum.worst_case(n, n);
      y.value[i] = product.value + b;  // one more rounding
      y.error[i] = product.error + kFloatRoundoff * (std::fabs(y.value[i]) + product.error);
    }
  }
  return y;
}

}  // namespace dense
