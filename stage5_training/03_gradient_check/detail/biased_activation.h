// Cases of f(x + bias), for whatever computes the gradients. Host code, but step 5.2's launchers
// bring its kernels.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/device_buffer.h"
#include "stage3_ml_ops/01_matrix_activations/matrix_activations.h"
#include "stage5_training/02_activation_backward/activation_backward.h"
#include "stage5_training/03_gradient_check/problem.h"
#include "stage5_training/03_gradient_check/reference.h"

namespace gradient_check {

// Computes the gradients by x and by bias, or by x alone.
using BackwardOfBiased = void (*)(float* grad_x, float* grad_bias, const float* grad_y,
                                  const float* x, const float* bias, size_t rows, size_t cols);

// f(x + bias), whose gradients `run` computes: by x and bias, or by x alone where the bias is no
// argument. The loss is a weighted sum of it.
template <class Activation>
Case biased_activation(const Sizes& sizes, std::uint64_t seed, BackwardOfBiased run,
                       bool with_bias) {
  const size_t rows = sizes.batch, cols = sizes.out;
  const std::vector<float> grad_y = uniform_values(rows * cols, seed, 12);
  Argument x = argument("x", {rows, cols}, seed, 10, 4);
  Argument bias = argument("bias", {cols}, seed, 11);
  for (size_t i = 0; i < x.values.size(); ++i)
    if (std::fabs(x.values[i] + bias.values[i % cols]) < kAway) x.values[i] += 2 * kAway;
  Case c;
  c.arguments = {x};
  if (with_bias) c.arguments.push_back(bias);
  const std::vector<double> fixed(bias.values.begin(), bias.values.end());
  c.loss = [=](const auto& v) {
    return weighted_sum(activated<Activation>(biased(v[0], with_bias ? v.back() : fixed)), grad_y);
  };
  c.backward = [=](const auto& gradients, const auto& v) {
    const gpu::DeviceBuffer<float> d_grad_y(grad_y), d_bias(bias.values);
    run(gradients[0], with_bias ? gradients.back() : nullptr, d_grad_y.data(), v[0],
        with_bias ? v.back() : d_bias.data(), rows, cols);
    HIP_CHECK(hipDeviceSynchronize());  // before the buffers go
  };
  return c;
}

// Step 5.2, from the sums x + bias.
template <class Activation>
void backward_of_layer(float* grad_x, float* grad_bias, const float* grad_y, const float* x,
                       const float* bias, size_t rows, size_t cols) {
  gpu::DeviceBuffer<float> sums(rows * cols);
  activation_backward::Workspace workspace(rows);
  matrix_activations::launch_forward_vectorized<matrix_activations::Identity>(sums.data(), x, bias,
                                                                              rows, cols);
  activation_backward::backward<Activation>(grad_x, grad_bias, grad_y, sums.data(), rows, cols, 0,
                                            workspace);
  HIP_CHECK(hipDeviceSynchronize());  // before the buffers go
}

}  // namespace gradient_check
