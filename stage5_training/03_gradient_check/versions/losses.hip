// squared_error, cross_entropy ...: by the predictions and by the logits, as step 3.3 computes
// them.
#include <cmath>

#include "common/device_buffer.h"
#include "stage3_ml_ops/02_softmax/softmax.h"
#include "stage3_ml_ops/03_losses/losses.h"
#include "stage5_training/02_activation_backward/activation_backward.h"
#include "stage5_training/03_gradient_check/detail/cross_entropy_by.h"
#include "stage5_training/03_gradient_check/gradient_check.h"

namespace gradient_check {

// The mean of (p - target)^2.
Case squared_error(const Sizes& sizes, std::uint64_t seed) {
  const size_t n = sizes.batch * sizes.out;
  const std::vector<float> target = uniform_values(n, seed, 31);
  Case c;
  c.arguments = {argument("p", {sizes.batch, sizes.out}, seed, 30)};
  c.loss = [=](const auto& v) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += std::pow(v[0][i] - static_cast<double>(target[i]), 2);
    return sum / static_cast<double>(n);
  };
  c.backward = [=](const auto& gradients, const auto& v) {
    const gpu::DeviceBuffer<float> d_target(target);
    gpu::DeviceBuffer<float> d_loss(1);
    losses::Buffers buffers(0);
    losses::launch_squared_error_vectorized(d_loss.data(), gradients[0], v[0], d_target.data(), n,
                                            buffers.workspace());
    HIP_CHECK(hipDeviceSynchronize());  // before the buffers go
  };
  return c;
}

// The fused kernel of step 3.3.
static void backward_of_cross_entropy(float* grad, const float* logits,
                                      const losses::Targets& targets,
                                      const losses::Workspace& workspace) {
  gpu::DeviceBuffer<float> loss(1);
  losses::cross_entropy(loss.data(), grad, logits, targets, workspace);
  HIP_CHECK(hipDeviceSynchronize());  // before the buffer goes
}

// The chain of step 5.2: the loss by p, and p by the logits.
static void backward_through_softmax(float* grad, const float* logits,
                                     const losses::Targets& targets,
                                     const losses::Workspace& workspace) {
  gpu::DeviceBuffer<float> p(targets.rows * targets.classes);
  softmax::best(p.data(), logits, targets.rows, targets.classes);
  activation_backward::launch_composed(grad, logits, p.data(), targets, workspace);
  HIP_CHECK(hipDeviceSynchronize());  // before the buffer goes
}

Case cross_entropy(const Sizes& sizes, std::uint64_t seed) {
  return cross_entropy_by(sizes, seed, backward_of_cross_entropy, false);
}
Case cross_entropy_ignore(const Sizes& sizes, std::uint64_t seed) {
  return cross_entropy_by(sizes, seed, backward_of_cross_entropy, true);
}
Case cross_entropy_composed(const Sizes& sizes, std::uint64_t seed) {
  return cross_entropy_by(sizes, seed, backward_through_softmax, true);
}

}  // namespace gradient_check
