#include "stage7_transformer/03_layernorm_backward/problem.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "stage7_transformer/02_layernorm/layernorm.h"

namespace layernorm_backward {
namespace {

// How many parts of the rows may leave sums of `cols` columns, twice.
size_t most_parts(size_t rows, size_t cols) {
  constexpr size_t kMaxPartials = size_t{1} << 22;  // floats
  constexpr size_t kMostSlices = 8;                 // of `separate`, per multiprocessor
  const size_t multiprocessors = gpu::multiprocessors();
  const size_t slices = std::min(gpu::ceil_div(rows, kLeastSlice), multiprocessors * kMostSlices);
  const size_t blocks = std::min(gpu::ceil_div(rows, kLeastRows), multiprocessors * kMostResident);
  const size_t room = kMaxPartials / (2 * std::max(cols, size_t{1}));
  return std::max(std::min(std::max(slices, blocks), room), size_t{1});
}

}  // namespace

Workspace::Workspace(size_t max_rows, size_t max_cols, gpu::DeviceParts* parts)
    : partials(gpu::take<float>(parts, most_parts(max_rows, max_cols) * 2 * max_cols)) {}

size_t Workspace::parts(size_t rows, size_t cols) const {
  const size_t room = cols == 0 ? 0 : partials.size() / (2 * cols);
  if (room == 0)
    throw std::invalid_argument("layernorm: " + std::to_string(cols) +
                                " columns in a workspace for " +
                                std::to_string(partials.size() / 2));
  return std::min(room, most_parts(rows, cols));
}

void backward(float* grad_x, float* grad_gain, float* grad_bias, const float* grad_y,
              const float* x, const float* gain, const float* mean, const float* rstd,
              const float* grad_residual, size_t rows, size_t cols, Workspace& workspace,
              hipStream_t stream) {
  layernorm::check(cols, 0);
#if defined(GPU_BACKEND_CPU)
  constexpr Launch launch = launch_separate_by_threads<float>;
#else
  constexpr Launch launch = launch_fused;
#endif
  launch(grad_gain, grad_bias, {grad_x, grad_y, x, gain, mean, rstd, grad_residual, rows, cols},
         workspace, stream);
}

void backward(float* grad_gain, float* grad_bias, const PassOf<gpu::bfloat16>& pass,
              Workspace& workspace, hipStream_t stream) {
  layernorm::check(pass.cols, 0);
#if defined(GPU_BACKEND_CPU)
  launch_separate_by_threads(grad_gain, grad_bias, pass, workspace, stream);
#else
  launch_fused_bf16(grad_gain, grad_bias, pass, workspace, stream);
#endif
}

}  // namespace layernorm_backward
