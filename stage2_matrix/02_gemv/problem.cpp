#include "stage2_matrix/02_gemv/problem.h"

#include <algorithm>

#include "common/random.h"
#include "common/timer.h"
#include "stage2_matrix/02_gemv/reference.h"

namespace gemv {

std::vector<Size> sizes() { return {{"rows", 16384, 512, 43}, {"cols", 16384, 2048, 203}}; }

double Shape::bytes() const {
  const double m = static_cast<double>(rows), n = static_cast<double>(cols);
  return sizeof(float) * (m * n + m + n);
}

std::string Shape::name() const {
  return (transposed ? "y = alpha A^T x   A " : "y = alpha A x   A ") + size_text(rows) + "x" +
         size_text(cols) + " float32";
}

std::vector<Shape> printed(std::size_t rows, std::size_t cols, bool sizes_given) {
  std::vector<Shape> shapes = {{false, rows, cols}};
  if (!sizes_given) {
    shapes.push_back({false, rows / 16, 4 * cols});
    shapes.push_back({false, std::max(rows / 128, std::size_t{1}), 32 * cols});
  }
  shapes.push_back({true, rows, cols});
  return shapes;
}

std::vector<double> Expected::values() const {
  std::vector<double> result;
  for (const rounding::Sum& sum : sums) result.push_back(sum.value);
  return result;
}

Expected expect(const Shape& shape, Values values, std::uint64_t seed, std::size_t at_most) {
  const auto number =
      values == Values::integers ? random_numbers::integer : random_numbers::uniform;
  Expected expected{choose_rows(shape.outputs(), 1, at_most, seed), {}, 0};
  std::vector<float> line(shape.terms()), x(shape.terms());
  for (std::size_t k = 0; k < x.size(); ++k) x[k] = number(seed, 1, k);
  for (const std::size_t i : expected.sample.rows) {
    for (std::size_t k = 0; k < line.size(); ++k)
      line[k] = number(seed, 0, shape.transposed ? k * shape.cols + i : i * shape.cols + k);
    HostTimer timer;
    expected.sums.push_back(gemv_cpu(1, line, x, 0, 0));
    expected.reference_ms += timer.ms();
  }
  return expected;
}

}  // namespace gemv
