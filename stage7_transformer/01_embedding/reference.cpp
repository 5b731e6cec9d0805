#include "stage7_transformer/01_embedding/reference.h"

#include <cmath>
#include <limits>

#include "common/rounding.h"

namespace embedding {

void RowSums::add(size_t row, const float* values, size_t cols) {
  terms[row] += 1;
  for (size_t c = 0; c < cols; ++c) {
    const double term = static_cast<double>(values[c]);
    value[row * cols + c] += term, squares[row * cols + c] += term * term;
  }
}

double RowSums::bound(size_t i, size_t cols, double (*roundings)(double terms)) const {
  return rounding::mean_zero_bound(roundings(terms[i / cols]), squares[i], value[i]);
}

std::vector<double> forward_cpu(const std::vector<std::int32_t>& tokens,
                                const std::vector<float>& token_table,
                                const std::vector<float>& position_table, const Shape& shape) {
  std::vector<double> y;
  for (size_t i = 0; i < tokens.size(); ++i)
    for (size_t c = 0; c < shape.C; ++c)
      y.push_back(
          is_token(tokens[i], shape.V)
              ? static_cast<double>(token_table[static_cast<size_t>(tokens[i]) * shape.C + c]) +
                    static_cast<double>(position_table[i % shape.T * shape.C + c])
              : std::numeric_limits<double>::quiet_NaN());
  return y;
}

Gradients backward_cpu(const std::vector<float>& grad_y, const std::vector<std::int32_t>& tokens,
                       const Shape& shape) {
  Gradients want{RowSums(shape.V, shape.C), RowSums(checked(shape).T_max, shape.C)};
  for (size_t i = 0; i < tokens.size(); ++i) {
    const float* row = grad_y.data() + i * shape.C;
    want.position.add(i % shape.T, row, shape.C);
    if (is_token(tokens[i], shape.V)) want.token.add(static_cast<size_t>(tokens[i]), row, shape.C);
  }
  return want;
}

}  // namespace embedding
