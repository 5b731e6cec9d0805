// Kernels of the tests of step 5.2: mistakes, and slices of any length.
#include "common/gpu.h"
#include "stage5_training/02_activation_backward/detail/rounds.h"

namespace activation_backward_test {

using namespace activation_backward;
using activations::Sigmoid;
using activations::Tanh;

// f'(f(x)) in place of f'(x).
struct SlopeAtOutput : Sigmoid {
  __device__ float derivative(float x) const {
    const float y = Sigmoid{}(x);
    return Sigmoid::derivative(y);
  }
};
// The slope from the output, given the input.
struct OutputForInput : Sigmoid {
  __device__ float derivative(float x) const { return x * (1.0f - x); }
};

void launch_slope_at_output(float* grad_x, float* grad_bias, const float* grad_y, const float* kept,
                            size_t rows, size_t cols, float beta, Workspace& workspace,
                            hipStream_t stream) {
  launch_vectorized<SlopeAtOutput>(grad_x, grad_bias, grad_y, kept, rows, cols, beta, workspace,
                                   stream);
}
void launch_output_for_input(float* grad_x, float* grad_bias, const float* grad_y,
                             const float* kept, size_t rows, size_t cols, float beta,
                             Workspace& workspace, hipStream_t stream) {
  launch_vectorized<OutputForInput>(grad_x, grad_bias, grad_y, kept, rows, cols, beta, workspace,
                                    stream);
}
void launch_without_second_pass(float* grad_x, float* grad_bias, const float* grad_y,
                                const float* kept, size_t rows, size_t cols, float beta,
                                Workspace& workspace, hipStream_t) {
  const gemv::Product sums{
      1, cols, 1, workspace.partials.data(), cols, workspace.ones.data(), beta, grad_bias};
  float* half = grad_bias;  // the second of two slices overwrites the first
  for (const size_t begin : {size_t{0}, rows / 2}) {
    gemv::Product slice = sums;
    slice.y = half;
    LAUNCH((backward_with_bias<float, 1, Sigmoid>), 1,
           dim3(static_cast<unsigned>(cols), kBlock / static_cast<unsigned>(cols)), 0,
           grad_x + begin * cols, grad_y + begin * cols, kept + begin * cols, rows - rows / 2, rows,
           slice, nullptr);
  }
}

void launch_in_slices(float* grad_x, float* grad_bias, const float* grad_y, const float* kept,
                      size_t rows, size_t slice, Workspace& workspace) {
  const unsigned slices = static_cast<unsigned>(gpu::ceil_div(rows, slice));
  float* const partials = workspace.partials.data();
  const gemv::Product sums{slices, 24, 1, partials, 24, workspace.ones.data(), 0, grad_bias};
  LAUNCH((backward_with_bias<float4, 4, Tanh>), dim3(2, slices), dim3(4, 2), 0, grad_x, grad_y,
         kept, rows, slice, sums, partials);
  launch_second_pass(sums, workspace, 4, nullptr);
}

}  // namespace activation_backward_test
