// *_from_output: f(x + bias) by x and bias, as step 5.2 computes it from the outputs.
#include "stage5_training/03_gradient_check/detail/biased_activation.h"
#include "stage5_training/03_gradient_check/gradient_check.h"

namespace gradient_check {

// Step 5.2, from the outputs f(x + bias).
template <class Activation>
static void backward_from_output(float* grad_x, float* grad_bias, const float* grad_y,
                                 const float* x, const float* bias, size_t rows, size_t cols) {
  using Slope = activation_backward::OfOutput<Activation>;
  gpu::DeviceBuffer<float> y(rows * cols);
  activation_backward::Workspace workspace(rows);
  matrix_activations::launch_forward_vectorized<Activation>(y.data(), x, bias, rows, cols);
  activation_backward::backward<Slope>(grad_x, grad_bias, grad_y, y.data(), rows, cols, 0,
                                       workspace);
  HIP_CHECK(hipDeviceSynchronize());  // before the buffers go
}

template <class Activation>
Case activation_from_output(const Sizes& sizes, std::uint64_t seed) {
  return biased_activation<Activation>(sizes, seed, backward_from_output<Activation>, true);
}

template Case activation_from_output<Relu>(const Sizes&, std::uint64_t);
template Case activation_from_output<Sigmoid>(const Sizes&, std::uint64_t);
template Case activation_from_output<Tanh>(const Sizes&, std::uint64_t);
template Case activation_from_output<Softplus>(const Sizes&, std::uint64_t);

}  // namespace gradient_check
