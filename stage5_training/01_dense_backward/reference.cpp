#include "stage5_training/01_dense_backward/reference.h"

#include <cmath>

#include "stage2_matrix/03_gemm/reference.h"

namespace dense_backward {
namespace {

// Every gradient's rows are made alike, of the rows of another matrix: appends the sum over j of
// coefficients[j * stride] times row j of `matrix` (count, cols), plus beta times row `row` of
// `before`. The bounds are those of a matrix product, step 2.3.
void append_row(Expected& to, const float* coefficients, std::size_t stride,
                const std::vector<float>& matrix, std::size_t count, std::size_t cols, float beta,
                const std::vector<float>& before, std::size_t row) {
  const std::vector<double> zeros(cols);
  gemm::Reference sums{zeros, zeros, zeros, zeros};
  for (std::size_t j = 0; j < count; ++j) {
    const double coefficient = static_cast<double>(coefficients[j * stride]);
    const float* values = matrix.data() + j * cols;
    for (std::size_t col = 0; col < cols; ++col) {
      const double product = coefficient * static_cast<double>(values[col]);
      sums.c[col] += product, sums.absolute[col] += std::fabs(product);
      sums.squares[col] += product * product;
    }
  }
  gemm::Product p;
  p.K = count;
  for (std::size_t col = 0; col < cols; ++col) {
    if (beta != 0)
      sums.before[col] = static_cast<double>(beta) * static_cast<double>(before[row * cols + col]);
    sums.c[col] += sums.before[col];
    to.value.push_back(sums.c[col]);
    to.bound.push_back(gemm::bound(p, sums, col));
    to.mean_zero_bound.push_back(gemm::bound_of_mean_zero(p, sums, col));
  }
}

}  // namespace

Expected expect_w(const Shape& shape, const std::vector<float>& grad_y, const std::vector<float>& x,
                  float beta, const std::vector<float>& before,
                  const std::vector<std::size_t>& rows) {
  Expected to;
  for (const std::size_t row : rows)
    append_row(to, grad_y.data() + row, shape.out, x, shape.batch, shape.in, beta, before, row);
  return to;
}

Expected expect_x(const Shape& shape, const std::vector<float>& grad_y, const std::vector<float>& w,
                  float beta, const std::vector<float>& before,
                  const std::vector<std::size_t>& rows) {
  Expected to;
  for (const std::size_t row : rows)
    append_row(to, grad_y.data() + row * shape.out, 1, w, shape.out, shape.in, beta, before, row);
  return to;
}

Expected expect_bias(const Shape& shape, const std::vector<float>& grad_y, float beta,
                     const std::vector<float>& before) {
  Expected to;
  constexpr float kOne = 1;
  append_row(to, &kOne, 0, grad_y, shape.batch, shape.out, beta, before, 0);
  return to;
}

}  // namespace dense_backward
