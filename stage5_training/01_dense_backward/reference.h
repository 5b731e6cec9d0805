// The reference of 5.1 in double, and how far correct float gradients may be from it.
#pragma once

#include <cstddef>
#include <vector>

namespace dense_backward {

struct Shape {
  std::size_t batch, in, out;
};

// Rows of a gradient in double, row behind row, and what a float result may be off there.
struct Expected {
  std::vector<double> value;
  std::vector<double> bound;            // gemm::bound, for any numbers
  std::vector<double> mean_zero_bound;  // gemm::bound_of_mean_zero, for random ones of mean zero
};

// The rows `rows` of a gradient, from the arrays on the host. beta times `before`, what is there
// before the launch, is added; with beta = 0 it is not read and may be empty.
Expected expect_w(const Shape& shape, const std::vector<float>& grad_y, const std::vector<float>& x,
                  float beta, const std::vector<float>& before,
                  const std::vector<std::size_t>& rows);
Expected expect_x(const Shape& shape, const std::vector<float>& grad_y, const std::vector<float>& w,
                  float beta, const std::vector<float>& before,
                  const std::vector<std::size_t>& rows);
Expected expect_bias(const Shape& shape, const std::vector<float>& grad_y, float beta,
                     const std::vector<float>& before);

}  // namespace dense_backward
