#include "stage7_transformer/02_layernorm/problem.h"

#include <stdexcept>

#include "stage7_transformer/02_layernorm/layernorm.h"

namespace layernorm {

std::vector<Size> sizes() { return {{"rows", 65536, 512, 67}, {"cols", 4096, 1024, 131}}; }

std::vector<Shape> printed(const Shape& usual, bool sizes_given, bool quick) {
  if (sizes_given || quick) return {usual};
  if (gpu::kBackend == std::string("cpu")) return {usual, {4096, 64}};
  return {usual, {8192, 1024}, {16384, 384}, {4096, 64}};
}

std::string text(const Shape& shape) {
  return std::to_string(shape.rows) + "x" + std::to_string(shape.cols);
}

RowSample choose_matrix_rows(const Shape& shape, std::uint64_t seed) {
  constexpr size_t kRows = 64;
  return choose_rows(shape.rows, shape.cols, kRows, seed);
}

std::vector<float> exact_rows(size_t rows, size_t cols) {
  std::vector<float> x(rows * cols);
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t row = i / cols % kDistinctRows;
    const float mean = 2 * static_cast<float>(row), half = static_cast<float>(2u << row % 3);
    x[i] = i % cols % 2 == row / 3 % 2 ? mean - half : mean + half;
  }
  return x;
}

void check(size_t cols, float eps) {
  if (cols == 0) throw std::invalid_argument("layernorm needs at least one column");
  if (!(eps >= 0))
    throw std::invalid_argument("layernorm: eps is " + std::to_string(eps) +
                                ", and must be at least 0");
}

// On the CPU backend a row that one thread reads keeps the vector units busy without a barrier.
#if defined(GPU_BACKEND_CPU)
constexpr bool kOneThread = true;
#else
constexpr bool kOneThread = false;
#endif

void forward(float* y, float* mean, float* rstd, const float* x, const float* gain,
             const float* bias, size_t rows, size_t cols, float eps, hipStream_t stream) {
  check(cols, eps);
  const Launch launch = kOneThread ? launch_thread_per_row : launch_row_cached;
  launch({y, mean, rstd, gain, bias, rows, cols, eps}, x, stream);
}

void forward(gpu::bfloat16* y, float* mean, float* rstd, const float* x, const float* gain,
             const float* bias, size_t rows, size_t cols, float eps, hipStream_t stream) {
  check(cols, eps);
  launch_row_cached_bf16({y, mean, rstd, gain, bias, rows, cols, eps}, x, stream);
}

void forward_residual(float* sum, float* y, float* mean, float* rstd, const float* x,
                      const float* residual, const float* gain, const float* bias, size_t rows,
                      size_t cols, float eps, hipStream_t stream) {
  check(cols, eps);
  launch_residual_fused(sum, {y, mean, rstd, gain, bias, rows, cols, eps}, x, residual, stream);
}

}  // namespace layernorm
