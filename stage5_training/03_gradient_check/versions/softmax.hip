// softmax: x through a row's Jacobian, as step 5.2 computes it.
#include <cmath>

#include "common/device_buffer.h"
#include "stage3_ml_ops/02_softmax/softmax.h"
#include "stage5_training/02_activation_backward/activation_backward.h"
#include "stage5_training/03_gradient_check/gradient_check.h"

namespace gradient_check {

// p = softmax(x), row by row. The loss is a weighted sum of p.
Case softmax_layer(const Sizes& sizes, std::uint64_t seed) {
  const size_t rows = sizes.batch, cols = sizes.out;
  const std::vector<float> grad_p = uniform_values(rows * cols, seed, 21);
  Case c;
  c.arguments = {argument("x", {rows, cols}, seed, 20, 2)};
  c.loss = [=](const auto& v) {
    std::vector<double> p = v[0];
    for (size_t row = 0; row < rows; ++row) {
      const double scale = log_sum_exp(v[0].data() + row * cols, cols);
      for (size_t i = row * cols; i < (row + 1) * cols; ++i) p[i] = std::exp(p[i] - scale);
    }
    return weighted_sum(p, grad_p);
  };
  c.backward = [=](const auto& gradients, const auto& v) {
    const gpu::DeviceBuffer<float> d_grad_p(grad_p);
    gpu::DeviceBuffer<float> d_p(rows * cols);
    softmax::best(d_p.data(), v[0], rows, cols);
    activation_backward::softmax_backward(gradients[0], d_grad_p.data(), d_p.data(), rows, cols);
    HIP_CHECK(hipDeviceSynchronize());  // before the buffers go
  };
  return c;
}

}  // namespace gradient_check
