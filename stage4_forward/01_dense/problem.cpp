#include "stage4_forward/01_dense/problem.h"

#include <algorithm>
#include <cmath>

namespace dense {

std::vector<Size> sizes() {
  return {{"batch", 4096, 32, 33}, {"in", 4096, 256, 129}, {"out", 4096, 128, 65}};
}

std::vector<Shape> printed(const Shape& usual, bool sizes_given, bool quick) {
  if (sizes_given) return {usual};
  if (quick) return {usual, {1, 255, 129}};
  return {{64, 784, 128}, usual, {1, usual.in, usual.out}};
}

std::string name(const Shape& shape) {
  return "relu(X W^T + b)   batch " + std::to_string(shape.batch) + ", " +
         std::to_string(shape.in) + " -> " + std::to_string(shape.out) + " float32";
}

double operations(const Shape& shape) {
  return 2.0 * static_cast<double>(shape.batch) * static_cast<double>(shape.in) *
         static_cast<double>(shape.out);
}

double bytes(const Shape& shape) {
  const double batch = static_cast<double>(shape.batch), in = static_cast<double>(shape.in);
  const double out = static_cast<double>(shape.out);
  return sizeof(float) * (batch * in + out * in + batch * out + out);
}

float weight_scale(const Shape& shape) {
  return 1 / std::sqrt(static_cast<float>(std::max(shape.in, std::size_t{1})));
}

RowSample rows_of(const Shape& shape, std::uint64_t seed) {
  constexpr double kWhole = 1 << 27;  // operations up to which all rows are compared
  constexpr std::size_t kRows = 8;
  const bool whole = operations(shape) <= kWhole;
  return choose_rows(shape.batch, shape.out, whole ? shape.batch + 2 : kRows, seed);
}

}  // namespace dense
