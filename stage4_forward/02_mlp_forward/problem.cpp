#include "stage4_forward/02_mlp_forward/problem.h"

namespace mlp_forward {

std::vector<Size> sizes() {
  return {
      {"batch", 8192, 128, 33}, {"in", 784, 256, 65}, {"hidden", 128, 64, 31}, {"out", 10, 10, 7}};
}

std::vector<Shape> printed(const Shape& usual, bool sizes_given, bool quick) {
  const Shape exclusive_or{4, 2, 16, 1}, mnist{64, 784, 128, 10};
  if (sizes_given) return {usual};
  if (quick) return {exclusive_or, usual};
  return {exclusive_or, mnist, usual};
}

std::string name(const Shape& shape) {
  return "batch " + std::to_string(shape.batch) + ", " + std::to_string(shape.in) + " -> " +
         std::to_string(shape.hidden) + " -> " + std::to_string(shape.out) + " float32";
}

static double weights(const Shape& shape) {
  return static_cast<double>(shape.hidden) *
         (static_cast<double>(shape.in) + static_cast<double>(shape.out));
}

double operations(const Shape& shape) {
  return 2 * static_cast<double>(shape.batch) * weights(shape);
}

double bytes(const Shape& shape) {
  const double values = static_cast<double>(shape.in) + static_cast<double>(shape.out);
  const double biases = static_cast<double>(shape.hidden) + static_cast<double>(shape.out);
  return sizeof(float) * (static_cast<double>(shape.batch) * values + weights(shape) + biases);
}

RowSample rows_of(const Shape& shape, std::uint64_t seed) {
  constexpr std::size_t kRows = 64;
  return choose_rows(shape.batch, shape.out, kRows, seed);
}

}  // namespace mlp_forward
