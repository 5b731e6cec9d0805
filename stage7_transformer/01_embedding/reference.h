// The reference of 7.1 in double. Plain C++.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "stage7_transformer/01_embedding/workspace.h"

namespace embedding {

// Sums in double, of how many terms they are, and the sum of the squared terms. Gradients have
// either sign, so that rounding::mean_zero_bound says what a float sum may be off.
struct RowSums {
  std::vector<double> value, squares;
  std::vector<double> terms;  // one per row
  explicit RowSums(size_t rows = 0, size_t cols = 0)
      : value(rows * cols), squares(rows * cols), terms(rows) {}
  void add(size_t row, const float* values, size_t cols);
  // What element i may be off whose terms go through so many additions at most.
  double bound(size_t i, size_t cols, double (*roundings)(double terms)) const;
};

// y in double; one addition rounds once: vector_add::bound. A bad token's row is NaN.
std::vector<double> forward_cpu(const std::vector<std::int32_t>& tokens,
                                const std::vector<float>& token_table,
                                const std::vector<float>& position_table, const Shape& shape);

struct Gradients {
  RowSums token, position;
};
Gradients backward_cpu(const std::vector<float>& grad_y, const std::vector<std::int32_t>& tokens,
                       const Shape& shape);

}  // namespace embedding
