// dense: a layer's inputs, weights and bias; and the quotients that all cases are checked with.
#include <algorithm>
#include <cmath>

#include "common/device_buffer.h"
#include "stage5_training/01_dense_backward/dense_backward.h"
#include "stage5_training/03_gradient_check/gradient_check.h"

namespace gradient_check {

// Fixes : a reference that has the kernel's formula has its mistakes, too.
// Idea  : move one number up and down, and look how the loss changes.
// Costs : two losses for every number of every argument.
Slopes difference_quotients(
    const std::function<double(const std::vector<std::vector<double>>&)>& loss,
    std::vector<std::vector<double>>& values, size_t argument, size_t index, double here) {
  // exercise: the loss a step above and a step below, and the three quotients (about 10 lines)
  double& value = values[argument][index];
  const double old = value, step = kStep * std::max(1.0, std::fabs(old));
  value = old + step;
  const double high = value, loss_above = loss(values);
  value = old - step;
  const double low = value, loss_below = loss(values);
  value = old;
  return {(loss_above - loss_below) / (high - low), (loss_above - here) / (high - old),
          (here - loss_below) / (old - low)};
  // end exercise
}

// y = x w^T + bias, by step 5.1. The loss is a weighted sum of y.
static Case layer_of(const Sizes& sizes, const std::vector<Argument>& arguments,
                     const std::vector<float>& grad_y) {
  const auto [batch, in, out] = sizes;
  Case c;
  c.arguments = arguments;
  c.loss = [=, batch = batch](const auto& v) {
    return weighted_sum(affine(v[0], v[1], v[2], batch), grad_y);
  };
  c.backward = [=, batch = batch, in = in, out = out](const auto& gradients, const auto& v) {
    const gpu::DeviceBuffer<float> d_grad_y(grad_y);
    dense_backward::Workspace workspace(batch);
    dense_backward::backward({gradients[1], gradients[2], gradients[0]}, d_grad_y.data(), v[0],
                             batch, {in, out, v[1], v[2]}, 0, workspace);
    HIP_CHECK(hipDeviceSynchronize());  // before the workspace goes
  };
  return c;
}

static std::vector<Argument> arguments_of(const Sizes& sizes, std::uint64_t seed) {
  const auto [batch, in, out] = sizes;
  return {argument("x", {batch, in}, seed, 0), argument("w", {out, in}, seed, 1),
          argument("bias", {out}, seed, 2)};
}

Case dense_layer(const Sizes& sizes, std::uint64_t seed) {
  return layer_of(sizes, arguments_of(sizes, seed),
                  uniform_values(sizes.batch * sizes.out, seed, 3));
}

Case dense_layer_of_integers(const Sizes& sizes, std::uint64_t seed) {
  std::vector<Argument> arguments = arguments_of(sizes, seed);
  for (Argument& argument : arguments) argument.values = integers(argument.values.size(), seed, 4);
  return layer_of(sizes, arguments, integers(sizes.batch * sizes.out, seed, 5));
}

}  // namespace gradient_check
