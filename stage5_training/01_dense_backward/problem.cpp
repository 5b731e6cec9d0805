#include "stage5_training/01_dense_backward/problem.h"

#include <string_view>

#include "common/gpu_runtime.h"
#include "stage5_training/01_dense_backward/dense_backward.h"
#include "stage5_training/01_dense_backward/slices.h"

namespace dense_backward {

std::vector<Size> sizes() {
  return {{"batch", 4096, 128, 33}, {"in", 4096, 256, 129}, {"out", 4096, 128, 65}};
}

std::vector<Shape> printed(const Shape& usual, bool only_usual) {
  if (only_usual) return {usual};
  if (std::string_view(gpu::kBackend) == "cpu") return {{64, 784, 128}, usual};
  return {{64, 128, 10}, {64, 784, 128}, {65536, 784, 128}, usual};
}

std::string name(const Shape& shape) {
  return "grad_W, grad_b, grad_X   batch " + std::to_string(shape.batch) + ", " +
         std::to_string(shape.in) + " -> " + std::to_string(shape.out) + " float32";
}

double multiplications(const Shape& shape) {
  return static_cast<double>(shape.batch) * static_cast<double>(shape.in) *
         static_cast<double>(shape.out);
}

// x, w and grad_y are read; grad_w, grad_bias and grad_x are written.
double bytes(const Shape& shape) {
  const double in = static_cast<double>(shape.in), out = static_cast<double>(shape.out);
  return sizeof(float) * (static_cast<double>(shape.batch) * (2 * in + out) + 2 * in * out + out);
}

double device_bytes(const Shape& shape) {
  const double slices = static_cast<double>(count_slices(shape.batch, shape.in, shape.out));
  const auto row = static_cast<double>(slice_row(shape.in, shape.out));
  return bytes(shape) +
         sizeof(float) * (slices * row + static_cast<double>(gemv::kMaxPartials + shape.batch));
}

Samples samples_of(const Shape& shape, std::uint64_t seed) {
  constexpr double kWhole = 1 << 25;  // multiplications up to which all rows are compared
  constexpr std::size_t kRows = 8;    // rows of a gradient that are compared where there are more
  const bool whole = multiplications(shape) <= kWhole;
  Samples samples;
  samples.w = choose_rows(shape.out, shape.in, whole ? shape.out + 2 : kRows, seed);
  samples.x = choose_rows(shape.batch, shape.in, whole ? shape.batch + 2 : kRows, seed);
  samples.bias = choose_rows(1, shape.out, 2, seed);
  if (!whole) samples.text = samples.w.text + " of grad_w and as many of grad_x";
  return samples;
}

ExpectedGradients expect(const Shape& shape, const Samples& samples, const std::vector<float>& x,
                         const std::vector<float>& w, const std::vector<float>& grad_y) {
  return {expect_w(shape, grad_y, x, 0, {}, samples.w.rows), expect_bias(shape, grad_y, 0, {}),
          expect_x(shape, grad_y, w, 0, {}, samples.x.rows)};
}

}  // namespace dense_backward
