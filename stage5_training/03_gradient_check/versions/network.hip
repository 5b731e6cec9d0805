// mlp_*: two layers and a loss: the chain rule from end to end.
#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "common/device_buffer.h"
#include "stage3_ml_ops/01_matrix_activations/matrix_activations.h"
#include "stage3_ml_ops/03_losses/losses.h"
#include "stage4_forward/01_dense/dense.h"
#include "stage5_training/01_dense_backward/dense_backward.h"
#include "stage5_training/02_activation_backward/activation_backward.h"
#include "stage5_training/03_gradient_check/gradient_check.h"

namespace gradient_check {

template <class Activation>
Case network(const std::vector<Argument>& arguments, const std::vector<int>& labels) {
  const size_t batch = labels.size(), in = arguments[0].shape[1];
  const size_t hidden = arguments[1].shape[0], out = arguments[3].shape[0];
  Case c;
  c.arguments = arguments;
  c.loss = [=](const auto& v) {
    const std::vector<double> h = activated<Activation>(affine(v[0], v[1], v[2], batch));
    return mean_cross_entropy(affine(h, v[3], v[4], batch), labels);
  };
  c.backward = [=](const auto& gradients, const auto& v) {
    const gpu::DeviceBuffer<int> d_labels(labels);
    gpu::DeviceBuffer<float> sums(batch * hidden), h(batch * hidden), grad_h(batch * hidden);
    gpu::DeviceBuffer<float> logits(batch * out), grad_logits(batch * out), loss(1);
    losses::Buffers buffers(batch);
    dense_backward::Workspace workspace(batch);
    const dense::Layer first{in, hidden, v[1], v[2]}, second{hidden, out, v[3], v[4]};
    dense::forward<dense::Linear>(sums.data(), v[0], batch, first);
    matrix_activations::launch_activation<Activation>(h.data(), sums.data(), batch, hidden);
    dense::forward<dense::Linear>(logits.data(), h.data(), batch, second);
    // exercise: from the loss back to x: its gradient by the logits, the second layer, the
    // activation with the first layer's bias, the first layer (about 9 lines)
    losses::cross_entropy(loss.data(), grad_logits.data(), logits.data(),
                          {d_labels.data(), batch, out}, buffers.workspace());
    dense_backward::backward({gradients[3], gradients[4], grad_h.data()}, grad_logits.data(),
                             h.data(), batch, second, 0, workspace);
    activation_backward::backward<Activation>(grad_h.data(), gradients[2], grad_h.data(),
                                              sums.data(), batch, hidden, 0, workspace);
    dense_backward::backward({gradients[1], nullptr, gradients[0]}, grad_h.data(), v[0], batch,
                             first, 0, workspace);
    // end exercise
    HIP_CHECK(hipDeviceSynchronize());  // before the buffers go
  };
  return c;
}

// As many hidden units as inputs, and weights that leave most of them where f bends. No hidden sum
// lies so near to 0, where ReLU has its kink, that a step could take it across, which moves it by
// no more than 2 kStep: numbers are drawn until none does.
template <class Activation>
Case two_layers(const Sizes& sizes, std::uint64_t seed) {
  const auto [batch, in, out] = sizes;
  const float scale = 1.5f / std::sqrt(static_cast<float>(in));
  for (std::uint32_t attempt = 0; attempt < 1000; ++attempt) {
    const std::uint32_t stream = 1000 + 5 * attempt;
    const std::vector<Argument> arguments = {
        argument("x", {batch, in}, seed, stream), argument("w1", {in, in}, seed, stream + 1, scale),
        argument("b1", {in}, seed, stream + 2), argument("w2", {out, in}, seed, stream + 3, scale),
        argument("b2", {out}, seed, stream + 4)};
    const std::vector<std::vector<double>> v = wide(arguments);
    const std::vector<double> sums = affine(v[0], v[1], v[2], batch);
    if (std::all_of(sums.begin(), sums.end(),
                    [](double sum) { return std::fabs(sum) > 10 * kStep; }))
      return network<Activation>(arguments, random_labels(batch, out, false, seed));
  }
  throw std::invalid_argument("gradient_check: so many hidden values that some lie at a kink");
}

// The functions that this file is compiled for.
template Case network<Tanh>(const std::vector<Argument>&, const std::vector<int>&);
template Case network<Relu>(const std::vector<Argument>&, const std::vector<int>&);
template Case two_layers<Tanh>(const Sizes&, std::uint64_t);
template Case two_layers<Relu>(const Sizes&, std::uint64_t);

}  // namespace gradient_check
